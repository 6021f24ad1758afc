package web

import (
	"net/http"

	"turnpike/internal/fault"
	"turnpike/internal/ids"
)

// PathID is the format of the {id} in a route's path.
type PathID struct {
	Prefix string // empty for any format
	Kind   string // of the resource, for the error
}

// Check rejects an ID of another format, which can't exist.
func (p PathID) Check(r *http.Request) error {
	if id := r.PathValue("id"); p.Prefix != "" && id != "" && !ids.Valid(p.Prefix, id) {
		return fault.NoSuch(p.Kind, Sanitize(id, 64))
	}
	return nil
}
