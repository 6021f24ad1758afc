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
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/web"
)

type auditObject struct {
	ID               string               `json:"id"`
	Object           string               `json:"object"`
	RequestID        string               `json:"request_id"`
	KeyID            string               `json:"key_id"`
	KeyHint          string               `json:"key_hint"`
	ScopedTokenID    *string              `json:"scoped_token_id"`
	TokenMetadata    json.RawMessage      `json:"token_metadata"`
	IP               string               `json:"ip"`
	Method           string               `json:"method"`
	Path             string               `json:"path"`
	Status           *int                 `json:"status"`
	ErrorCode        *string              `json:"error_code"`
	ErrorMessage     *string              `json:"error_message"`
	ErrorParam       *string              `json:"error_param"`
	RefusedBy        *refuserObject       `json:"refused_by"`
	RequestedModel   *string              `json:"requested_model"`
	Model            *string              `json:"model"`
	Provider         *string              `json:"provider"`
	Attempts         json.RawMessage      `json:"attempts"`
	Project          *string              `json:"project"`
	Environment      accounts.Environment `json:"environment"`
	InputTokens      *int64               `json:"input_tokens"`
	OutputTokens     *int64               `json:"output_tokens"`
	CachedTokens     *int64               `json:"cached_tokens"`
	Credits          credits.Micro        `json:"credits"`
	UnbilledCredits  credits.Micro        `json:"unbilled_credits"`
	SimulatedCredits credits.Micro        `json:"simulated_credits"`
	PriceVersion     *string              `json:"price_version"`
	UsageSource      *string              `json:"usage_source"`
	LatencyMS        *float64             `json:"latency_ms"`
	QueueMS          *float64             `json:"queue_ms"`
	UpstreamMS       *float64             `json:"upstream_ms"`
	FirstTokenMS     *float64             `json:"first_token_ms"`
	UserAgent        string               `json:"user_agent"`
	UserID           *string              `json:"user_id"`
	CreatedAt        int64                `json:"created_at"`
}

// refuserObject is the budget or the rate limit that refused a request.
type refuserObject struct {
	Kind    string  `json:"kind"`
	Level   string  `json:"level"`
	ID      *string `json:"id"`
	LimitID *string `json:"limit_id"`
}

func newAuditObject(e *audit.Entry) *auditObject {
	failure := e.ReadFailure()
	o := &auditObject{ID: e.RequestID, Object: "audit.entry", RequestID: e.RequestID, KeyID: e.KeyID, KeyHint: e.KeyHint,
		ScopedTokenID: orNil(e.TokenID), TokenMetadata: orNull(e.TokenMetadata), IP: e.IP, Method: e.Method, Path: e.Path,
		ErrorCode: orNil(e.ErrorCode), ErrorMessage: orNil(failure.Message), ErrorParam: orNil(failure.Param), RequestedModel: orNil(e.AskedFor()), Model: orNil(e.Model), Provider: orNil(e.Provider), Attempts: orNull(e.Attempts),
		Project: orNil(e.Project), Environment: e.Environment, InputTokens: e.InputTokens, OutputTokens: e.OutputTokens, CachedTokens: e.CachedTokens,
		Credits: e.Credits, UnbilledCredits: e.UnbilledCredits, SimulatedCredits: e.SimulatedCredits, PriceVersion: orNil(e.PriceVersion), UsageSource: orNil(e.UsageSource),
		Status: orNil(e.Status), LatencyMS: orNil(inMS(e.Latency)), QueueMS: orNil(inMS(e.Queue)), UpstreamMS: orNil(inMS(e.Upstream)), FirstTokenMS: orNil(inMS(e.FirstToken)),
		UserAgent: e.UserAgent, UserID: orNil(e.EndUser), CreatedAt: e.CreatedAt.Unix()}
	if by := failure.RefusedBy; by != nil {
		o.RefusedBy = &refuserObject{by.Kind, by.Level, orNil(by.ID), orNil(by.LimitID)}
	}
	return o
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

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
	return c.sendJSON(foundList(r, web.Map(r.Rows, newAuditObject), func(e *audit.Entry) string { return e.RequestID }))
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
	return show(e, err, newAuditObject)
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
