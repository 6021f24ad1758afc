package dashboard

import (
	"time"

	"turnpike/internal/db"
	"turnpike/internal/ids"
)

// rowsPerPage fits a screen and keeps pages below 100 KB.
const rowsPerPage = 50

// page returns the part of a list that the query asks for, newest first. prefix is that
// of the IDs; anything else starts the list.
func (req *request) page(prefix string) db.Page {
	p := db.Page{Limit: rowsPerPage}
	if after := req.query("after"); prefix == "" || ids.Valid(prefix, after) {
		p.After = after
	}
	return p
}

// pager has links to the other parts of a list.
type pager struct {
	First string // the start of the list, unless this is it
	Next  string // the next page
}

// pager returns the pager of a list by ID. last is only called if there is more.
func (req *request) pager(p db.Page, more bool, last func() string) pager {
	next := ""
	if more {
		next = last()
	}
	return req.pagerAt(p.After != "", next)
}

// pagerAt returns the pager of a page by its position. next is the cursor of the next
// page, or empty.
func (req *request) pagerAt(further bool, next string) pager {
	var out pager
	q := req.R.URL.Query()
	if further {
		q.Del("after")
		out.First = req.R.URL.Path + "?" + q.Encode()
	}
	if next != "" {
		q.Set("after", next)
		out.Next = req.R.URL.Path + "?" + q.Encode()
	}
	return out
}

// scanned is how far a search went before it reached its limit. There may be more rows
// further back.
type scanned struct {
	Rows int
	Back time.Time
	Next string // continues
}

// scanLimit returns nil for a search that is complete.
func scanLimit[T any](f *db.Found[T], next pager) *scanned {
	if f.Looked == 0 {
		return nil
	}
	return &scanned{f.Looked, ids.Time(f.Cursor), next.Next}
}
