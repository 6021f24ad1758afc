package db

// Page requests the rows after After. Lists read one row more than Limit to find
// out whether there are more.
type Page struct {
	Limit int
	After string
	Asc   bool
}

// Past returns the comparison that finds the rows after After.
func (p Page) Past() string {
	if p.Asc {
		return ">"
	}
	return "<"
}

// Order returns ASC or DESC.
func (p Page) Order() string {
	if p.Asc {
		return "ASC"
	}
	return "DESC"
}

// Cut drops the extra row and reports whether there was one.
func Cut[T any](p Page, rows []T) (page []T, more bool) {
	if len(rows) > p.Limit {
		return rows[:p.Limit], true
	}
	return rows, false
}
