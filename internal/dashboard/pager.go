package dashboard

import (
	"time"

	"turnpike/internal/db"
	"turnpike/internal/ids"
)

// rowsPerPage is what fits a screen and stays below 100 KB.
const rowsPerPage = 50

// page is the part of a list that the address asks for, the newest first.
// prefix is that of the ids; an address with anything else begins the list.
func (v *visit) page(prefix string) db.Page {
	p := db.Page{Limit: rowsPerPage}
	if after := v.query("after"); prefix == "" || ids.Valid(prefix, after) {
		p.After = after
	}
	return p
}

// pager leads to the other parts of a list.
type pager struct {
	First string // the beginning of the list, when this is not it
	Next  string // what comes after this page
}

// pager is that of a list by id. Only a page that has more needs its last one.
func (v *visit) pager(p db.Page, more bool, last func() string) pager {
	next := ""
	if more {
		next = last()
	}
	return v.pagerAt(p.After != "", next)
}

// pagerAt is that of a page that is further on in a list, or its beginning.
// What comes after it, if anything does, begins behind next.
func (v *visit) pagerAt(further bool, next string) pager {
	var out pager
	q := v.r.URL.Query()
	if further {
		q.Del("after")
		out.First = v.r.URL.Path + "?" + q.Encode()
	}
	if next != "" {
		q.Set("after", next)
		out.Next = v.r.URL.Path + "?" + q.Encode()
	}
	return out
}

// looked is how far a search went that was ended by its bound: there may be
// more further back.
type looked struct {
	Rows int
	Back time.Time
	Next string // goes on
}

// lookedThrough is nil for a page that is whole.
func lookedThrough[T any](f *db.Found[T], next pager) *looked {
	if f.Looked == 0 {
		return nil
	}
	return &looked{f.Looked, ids.Time(f.Cursor), next.Next}
}
