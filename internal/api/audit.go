package api

import (
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
)

type auditObject struct {
	ID               string          `json:"id"`
	Object           string          `json:"object"`
	RequestID        string          `json:"request_id"`
	KeyID            string          `json:"key_id"`
	KeyHint          string          `json:"key_hint"`
	ScopedTokenID    *string         `json:"scoped_token_id"`
	TokenMetadata    json.RawMessage `json:"token_metadata"`
	IP               string          `json:"ip"`
	Method           string          `json:"method"`
	Path             string          `json:"path"`
	Status           *int            `json:"status"`
	ErrorCode        *string         `json:"error_code"`
	Model            *string         `json:"model"`
	Provider         *string         `json:"provider"`
	Attempts         json.RawMessage `json:"attempts"`
	Project          *string         `json:"project"`
	Environment      string          `json:"environment"`
	InputTokens      *int64          `json:"input_tokens"`
	OutputTokens     *int64          `json:"output_tokens"`
	CachedTokens     *int64          `json:"cached_tokens"`
	Credits          credits.Micro   `json:"credits"`
	UnbilledCredits  credits.Micro   `json:"unbilled_credits"`
	SimulatedCredits credits.Micro   `json:"simulated_credits"`
	PriceVersion     *string         `json:"price_version"`
	UsageSource      *string         `json:"usage_source"`
	LatencyMS        *float64        `json:"latency_ms"`
	UpstreamMS       *float64        `json:"upstream_ms"`
	UserAgent        string          `json:"user_agent"`
	CreatedAt        int64           `json:"created_at"`
}

func newAuditObject(e *audit.Entry) *auditObject {
	o := &auditObject{ID: e.RequestID, Object: "audit.entry", RequestID: e.RequestID, KeyID: e.KeyID, KeyHint: e.KeyHint,
		ScopedTokenID: orNil(e.TokenID), TokenMetadata: orNull(e.TokenMetadata), IP: e.IP, Method: e.Method, Path: e.Path,
		ErrorCode: orNil(e.ErrorCode), Model: orNil(e.Model), Provider: orNil(e.Provider), Attempts: orNull(e.Attempts),
		Project: orNil(e.Project), Environment: e.Environment, InputTokens: e.InputTokens, OutputTokens: e.OutputTokens, CachedTokens: e.CachedTokens,
		Credits: e.Credits, UnbilledCredits: e.UnbilledCredits, SimulatedCredits: e.SimulatedCredits, PriceVersion: orNil(e.PriceVersion), UsageSource: orNil(e.UsageSource),
		LatencyMS: milliseconds(e.Latency), UpstreamMS: milliseconds(e.Upstream), UserAgent: e.UserAgent, CreatedAt: e.CreatedAt.Unix()}
	if e.Status != 0 {
		o.Status = &e.Status
	}
	return o
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

func milliseconds(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	ms := inMS(d)
	return &ms
}

var auditParams = []string{"start", "end", "key", "model", "project", "ip", "status", "format"}

// listAudit answers with a page as JSON, or with every entry that matches as CSV.
func listAudit(c *Call) error {
	q := c.query(append(slices.Clone(pageParams), auditParams...)...)
	page := q.page(ids.Request)
	f := audit.Filter{Since: q.time("start"), Until: q.time("end"), KeyID: q.text("key"), Model: q.text("model"),
		Project: q.text("project"), IP: q.text("ip"), Status: int(q.number("status", 100, 599, 0))}
	if f.KeyID != "" && !ids.Valid(ids.Key, f.KeyID) {
		q.fail(fault.Invalid("key", "key must be a key's id (key_…), not its value"))
	}
	asCSV, err := wantsCSV(q.text("format"), c.r.Header.Get("Accept"))
	if err != nil {
		q.fail(err)
	}
	if q.err != nil {
		return q.err
	}
	if asCSV {
		return c.exportAudit(f, page)
	}
	r, err := audit.List(c.Context(), c.s.DB, c.Principal.Visibility(), f, page)
	if err != nil {
		return err
	}
	data := make([]*auditObject, len(r.Rows))
	for i, e := range r.Rows {
		data[i] = newAuditObject(e)
	}
	l := newList(data, func(o *auditObject) string { return o.ID }, r.More)
	l.goOnFrom(r.Cursor)
	return c.sendJSON(l)
}

func wantsCSV(format, accept string) (bool, error) {
	switch format {
	case "csv":
		return true, nil
	case "json":
		return false, nil
	case "":
	default:
		return false, fault.Invalid("format", "format must be json or csv")
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
	return false, fault.Param(fault.NotAcceptable, "Accept", "the log can be had as application/json or text/csv")
}

// exportAudit streams every matching entry.
func (c *Call) exportAudit(f audit.Filter, page db.Page) error {
	if err := c.logged(); err != nil {
		return err
	}
	err := audit.Export(c.Context(), c.s.DB, c.Principal.Visibility(), f, page, func(part []byte) error {
		if !c.wrote {
			c.wrote = true
			c.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
			c.w.Header().Set("Content-Disposition", `attachment; filename="audit.csv"`)
			c.w.WriteHeader(http.StatusOK)
		}
		if err := c.writePieces(part); err != nil {
			return errLeft
		}
		c.expectNothing()
		return nil
	})
	c.expectPiece()
	switch {
	case err == nil || errors.Is(err, errLeft):
		c.settle(http.StatusOK, "")
		return nil
	case !c.wrote:
		return err
	}
	c.faultOf(err)
	c.settle(http.StatusOK, string(fault.Internal))
	panic(http.ErrAbortHandler) // a short file must not look whole
}

func getAudit(c *Call) (any, error) {
	id, err := c.pathID(ids.Request, "request")
	if err != nil {
		return nil, err
	}
	e, err := audit.Get(c.Context(), c.s.DB, c.Principal.Visibility(), id)
	if err != nil {
		return nil, err
	}
	return newAuditObject(e), nil
}

type actionObject struct {
	ID          string          `json:"id"`
	Object      string          `json:"object"`
	Actor       string          `json:"actor"`
	Action      string          `json:"action"`
	Target      string          `json:"target"`
	Detail      json.RawMessage `json:"detail"`
	Environment *string         `json:"environment"`
	Project     *string         `json:"project"`
	IP          *string         `json:"ip"`
	RequestID   *string         `json:"request_id"`
	CreatedAt   int64           `json:"created_at"`
}

func listActions(c *Call) (any, error) {
	q := c.query(pageParams...)
	page := q.page(ids.AdminAction)
	if q.err != nil {
		return nil, q.err
	}
	found, err := audit.FindActions(c.Context(), c.s.DB, c.Principal.Visibility(), audit.ActionFilter{}, page)
	if err != nil {
		return nil, err
	}
	data := make([]*actionObject, len(found.Rows))
	for i, a := range found.Rows {
		data[i] = &actionObject{ID: a.ID, Object: "audit.action", Actor: a.Actor, Action: a.Action, Target: a.Target, Detail: a.Detail,
			Environment: orNil(a.Environment), Project: orNil(a.Project), IP: orNil(a.IP), RequestID: orNil(a.RequestID), CreatedAt: a.CreatedAt.Unix()}
	}
	l := newList(data, func(a *actionObject) string { return a.ID }, found.More)
	l.goOnFrom(found.Cursor)
	return l, nil
}
