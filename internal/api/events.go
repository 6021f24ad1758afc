package api

import (
	"context"
	"encoding/json"
	"time"

	"turnpike/internal/events"
	"turnpike/internal/files"
	"turnpike/internal/ids"
)

const linkLifetime = 24 * time.Hour

// eventWithLinks returns an event as it is delivered, byte for byte, with new
// download links.
func (c *Call) eventWithLinks(e *events.Event) (json.RawMessage, error) {
	expires := c.s.Now().Add(linkLifetime)
	return events.Link(e.Type, e.Body, func(sha256, name string) (string, int64) {
		return c.s.Files.URL(e.Tenant, files.File{SHA256: sha256}, name, expires), expires.Unix()
	})
}

func listEvents(ctx context.Context, c *Call) (any, error) {
	q := c.query(append(pageParams, "type", "since", "until")...)
	page := q.page(ids.Event)
	f := events.Filter{Type: q.eventType(), Since: q.time("since"), Until: q.time("until")}
	if q.err != nil {
		return nil, q.err
	}
	budget := c.pageBudget()
	budget.Querier = c.s.DB.Replica()
	found, err := events.List(ctx, budget, c.Principal.Visibility(), f, page)
	if err != nil {
		return nil, err
	}
	truncatePage(budget, found, func(e *events.Event) string { return e.ID })
	data := make([]json.RawMessage, len(found.Rows))
	for i, e := range found.Rows {
		if data[i], err = c.eventWithLinks(e); err != nil {
			return nil, err
		}
	}
	return foundList(found, data, func(e *events.Event) string { return e.ID }), nil
}

// eventType reads the parameter type.
func (q *query) eventType() events.Type {
	if q.text("type") == "" {
		return ""
	}
	t, err := events.ParseType("type", q.text("type"))
	q.fail(err)
	return t
}

func getEvent(ctx context.Context, c *Call) (any, error) {
	e, err := events.Get(ctx, c.s.DB, c.Principal.Visibility(), c.id())
	if err != nil {
		return nil, err
	}
	return c.eventWithLinks(e)
}
