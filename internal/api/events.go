package api

import (
	"encoding/json"
	"time"

	"turnpike/internal/events"
	"turnpike/internal/files"
	"turnpike/internal/ids"
)

// An event is shown as it is delivered, byte for byte, but for links: those are
// minted anew for whoever asks.
const linkLife = 24 * time.Hour

func (c *Call) shownEvent(e *events.Event) (json.RawMessage, error) {
	if c.s.Files == nil {
		return e.Body, nil
	}
	expires := c.s.Now().Add(linkLife)
	return events.Link(e.Type, e.Body, func(sha256, name string) (string, int64) {
		return c.s.Files.URL(files.Owner{WorkspaceID: e.WorkspaceID, Environment: e.Environment}, files.File{SHA256: sha256}, name, expires), expires.Unix()
	})
}

func listEvents(c *Call) (any, error) {
	q := c.query(append(pageParams, "type", "since", "until")...)
	page := q.page(ids.Event)
	f := events.Filter{Type: events.Type(q.text("type")), Since: q.time("since"), Until: q.time("until")}
	if f.Type != "" {
		if _, err := events.ParseType("type", string(f.Type)); err != nil {
			q.fail(err)
		}
	}
	if q.err != nil {
		return nil, q.err
	}
	portion := c.portion()
	found, err := events.List(c.Context(), portion, c.Principal.Visibility(), f, page)
	if err != nil {
		return nil, err
	}
	cutPage(portion, found, func(e *events.Event) string { return e.ID })
	data := make([]json.RawMessage, len(found.Rows))
	l := newList(data, func(json.RawMessage) string { return "" }, found.More)
	for i, e := range found.Rows {
		if data[i], err = c.shownEvent(e); err != nil {
			return nil, err
		}
	}
	if n := len(found.Rows); n > 0 {
		l.FirstID, l.LastID = &found.Rows[0].ID, &found.Rows[n-1].ID
	}
	l.goOnFrom(found.Cursor)
	return l, nil
}

func getEvent(c *Call) (any, error) {
	id, err := c.pathID(ids.Event, "event")
	if err != nil {
		return nil, err
	}
	e, err := events.Get(c.Context(), c.s.DB, c.Principal.Visibility(), id)
	if err != nil {
		return nil, err
	}
	return c.shownEvent(e)
}
