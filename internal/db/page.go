package db

// Page is a request for one page of a list by keyset: the rows behind After in
// the order asked for. Lists read one row more than Limit to know if there is more.
type Page struct {
	Limit int
	After string
	Asc   bool
}

// Past is the comparison that finds what lies behind After, and Order the
// direction, for the page's ORDER BY.
func (p Page) Past() string {
	if p.Asc {
		return ">"
	}
	return "<"
}

// Order is ASC or DESC.
func (p Page) Order() string {
	if p.Asc {
		return "ASC"
	}
	return "DESC"
}

// Cut drops the extra row and says whether there was one.
func Cut[T any](p Page, rows []T) (page []T, more bool) {
	if len(rows) > p.Limit {
		return rows[:p.Limit], true
	}
	return rows, false
}
