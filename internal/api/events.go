package api

import (
	"encoding/json"

	"turnpike/internal/events"
	"turnpike/internal/ids"
)

// An event is shown as it is delivered, byte for byte.

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
	found, err := events.List(c.Context(), c.s.DB, c.Principal.WorkspaceID, string(c.Principal.Environment), f, page)
	if err != nil {
		return nil, err
	}
	data := make([]json.RawMessage, len(found.Rows))
	l := newList(data, func(json.RawMessage) string { return "" }, found.More)
	for i, e := range found.Rows {
		data[i] = e.Body
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
	e, err := events.Get(c.Context(), c.s.DB, c.Principal.WorkspaceID, string(c.Principal.Environment), id)
	if err != nil {
		return nil, err
	}
	return json.RawMessage(e.Body), nil
}
