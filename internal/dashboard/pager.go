package dashboard

import (
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

func (v *visit) pager(p db.Page, more bool, last func() string) pager {
	var out pager
	q := v.r.URL.Query()
	if p.After != "" {
		q.Del("after")
		out.First = v.r.URL.Path + "?" + q.Encode()
	}
	if more {
		q.Set("after", last())
		out.Next = v.r.URL.Path + "?" + q.Encode()
	}
	return out
}
