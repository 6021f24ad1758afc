package api

import (
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strings"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/web"
)

var auditParams = []string{"start", "end", "key", "model", "project", "ip", "user_id", "status", "format"}

// listAudit responds with a page as JSON, or with all matching entries as CSV.
func listAudit(c *Call) error {
	q := c.query(append(slices.Clone(pageParams), auditParams...)...)
	page := q.page(ids.Request)
	f := audit.Filter{Since: q.time("start"), Until: q.time("end"), KeyID: q.text("key"), Model: q.text("model"),
		Project: q.text("project"), IP: q.text("ip"), EndUser: q.text("user_id"), Status: int(q.number("status", 100, 599, 0))}
	if f.KeyID != "" && !ids.Valid(ids.Key, f.KeyID) {
		q.fail(fault.Invalid("key", "key must be a key's ID (key_…), not its value."))
	}
	if f.EndUser != "" && !ids.Valid(ids.EndUser, f.EndUser) {
		q.fail(fault.Invalid("user_id", "user_id must be Turnpike's ID of the user (eu_…). Find it with GET /v1/users?user=YOUR_ID."))
	}
	asCSV, err := wantsCSV(q.text("format"), c.R.Header.Get("Accept"))
	if err != nil {
		q.fail(err)
	}
	if q.err != nil {
		return q.err
	}
	if asCSV {
		return c.exportAudit(f, page)
	}
	r, err := c.s.Archive.List(c.Context(), c.s.DB.Replica(), c.Principal.Visibility(), f, page)
	if err != nil {
		return err
	}
	return c.sendJSON(foundList(r, web.Map(r.Rows, audit.NewObject), func(e *audit.Entry) string { return e.RequestID }))
}

func wantsCSV(format, accept string) (bool, error) {
	switch format {
	case "csv":
		return true, nil
	case "json":
		return false, nil
	case "":
	default:
		return false, fault.Invalid("format", "format must be json or csv.")
	}
	if accept == "" {
		return false, nil
	}
	for part := range strings.SplitSeq(accept, ",") {
		switch typ, _, _ := mime.ParseMediaType(part); typ {
		case "text/csv":
			return true, nil
		case jsonType, "application/*", "*/*":
			return false, nil
		}
	}
	return false, fault.Param(fault.NotAcceptable, "Accept", "The log is available as application/json or text/csv.")
}

func (c *Call) exportAudit(f audit.Filter, page db.Page) error {
	parts := c.s.Archive.Export(c.Context(), c.s.DB.Replica(), c.Principal.Visibility(), f, page)
	return c.streamFile(parts, streamedFile{
		setHeaders: func(h http.Header) {
			h.Set("Content-Type", "text/csv; charset=utf-8")
			h.Set("Content-Disposition", `attachment; filename="audit.csv"`)
		},
		beforeLog: func() {},
	})
}

func getAudit(ctx context.Context, c *Call) (any, error) {
	e, err := c.s.Archive.Get(ctx, c.s.DB, c.Principal.Visibility(), c.id())
	return show(e, err, audit.NewObject)
}

type actionObject struct {
	ID          string                `json:"id"`
	Object      string                `json:"object"`
	Actor       string                `json:"actor"`
	Action      string                `json:"action"`
	Target      string                `json:"target"`
	Detail      json.RawMessage       `json:"detail"`
	Environment *accounts.Environment `json:"environment"`
	Project     *string               `json:"project"`
	IP          *string               `json:"ip"`
	RequestID   *string               `json:"request_id"`
	CreatedAt   int64                 `json:"created_at"`
}

func newActionObject(a *audit.Action) *actionObject {
	return &actionObject{ID: a.ID, Object: "audit.action", Actor: a.Actor, Action: a.Action, Target: a.Target, Detail: a.Detail,
		Environment: orNil(a.Environment), Project: orNil(a.Project), IP: orNil(a.IP), RequestID: orNil(a.RequestID), CreatedAt: a.CreatedAt.Unix()}
}

func listActions(ctx context.Context, c *Call) (any, error) {
	q := c.query(pageParams...)
	page := q.page(ids.AdminAction)
	if q.err != nil {
		return nil, q.err
	}
	found, err := audit.FindActions(ctx, c.s.DB, c.Principal.Visibility(), audit.ActionFilter{}, page)
	if err != nil {
		return nil, err
	}
	return foundList(found, web.Map(found.Rows, newActionObject), func(a *audit.Action) string { return a.ID }), nil
}
