package dashboard

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/ids"
	"turnpike/internal/providers"
	"turnpike/internal/web"
)

type requestRow struct {
	*audit.Entry
	KeyName string
}

func (req *request) requestRows(list []*audit.Entry) ([]requestRow, error) {
	names, err := req.keyNames(web.Map(list, func(e *audit.Entry) string { return e.KeyID }))
	return web.Map(list, func(e *audit.Entry) requestRow { return requestRow{e, names[e.KeyID]} }), err
}

// requestParams are the query parameters of the log and its export.
var requestParams = []string{"key", "model", "project", "ip", "user_id", "status", "start", "end", "charged"}

// failed selects every status from 400.
const failed = "failed"

func (req *request) requestFilter() (f audit.Filter, err error) {
	f = audit.Filter{KeyID: req.query("key"), Model: req.query("model"), Project: req.query("project"), IP: req.query("ip"), EndUser: req.query("user_id"), Charged: req.query("charged") != ""}
	if f.KeyID != "" && !ids.Valid(ids.Key, f.KeyID) {
		return f, fault.Invalid("key", "Enter a key's ID (key_…), not its value.")
	}
	if f.EndUser != "" && !ids.Valid(ids.EndUser, f.EndUser) {
		return f, fault.Invalid("user_id", "Enter Turnpike's ID of the user (eu_…). The page of the user shows it.")
	}
	if f.Since, err = parseTime("start", req.query("start")); err != nil {
		return f, err
	}
	if f.Until, err = parseTime("end", req.query("end")); err != nil {
		return f, err
	}
	switch status := req.query("status"); status {
	case "":
	case failed:
		f.Failed = true
	default:
		if f.Status, err = strconv.Atoi(status); err != nil || f.Status < 100 || f.Status > 599 {
			return f, fault.Invalid("status", "Enter a status from 100 to 599.")
		}
	}
	return f, nil
}

type requestsData struct {
	Rows     []requestRow
	Keys     []*access.Key // choices of the filter, newest first
	Statuses []int
	Filtered bool
	Looked   *scanned // nil if the search is complete
	Next     pager
	Export   string
	Days     int // of log retention
}

var statuses = []int{200, 400, 402, 403, 404, 409, 413, 429, 499, 500, 502, 503, 504}

func requestsPage(req *request) (*view, error) {
	f, wrong := req.requestFilter()
	if id := req.query("id"); id != "" {
		if wrong = req.redirectToRequest(id); wrong == nil {
			return nil, nil
		}
	}
	page, found := req.page(ids.Request), &db.Found[*audit.Entry]{}
	var err error
	if wrong == nil {
		if found, err = audit.List(req.Context(), req.s.DB, req.principal.Visibility(), f, page); err != nil {
			return nil, err
		}
	}
	d := requestsData{Statuses: statuses, Filtered: wrong != nil || f != (audit.Filter{}), Export: req.to("requests/export.csv") + req.queryString(requestParams),
		Next: req.pager(page, found.More, func() string { return found.Cursor }), Days: req.s.Facts().LogRetentionDays}
	d.Looked = scanLimit(found, d.Next)
	if f.Status != 0 && !slices.Contains(statuses, f.Status) {
		d.Statuses = append([]int{f.Status}, statuses...)
	}
	if d.Rows, err = req.requestRows(found.Rows); err != nil {
		return nil, err
	}
	if d.Keys, _, err = req.s.Keys.List(req.Context(), req.s.DB, req.principal.Visibility(), db.Page{Limit: rowsPerPage}); err != nil {
		return nil, err
	}
	// A search scans many rows, so it isn't repeated every two seconds.
	return req.withFilterError(&view{template: "requests", title: "Requests", data: d, live: !d.Filtered && page.After == ""}, wrong)
}

// withFilterError shows an error above the filters of a list. There may be none.
func (req *request) withFilterError(shown *view, err error) (*view, error) {
	if err == nil {
		return shown, nil
	}
	f := req.Fault(err)
	status := fault.FamilyOf(f.Code).Status
	if status >= http.StatusInternalServerError {
		return nil, err
	}
	req.problem, shown.status, shown.live = f, status, false
	return shown, nil
}

// redirectToRequest finds a request by its ID in either environment, because an ID in a
// log doesn't tell which one it belongs to.
func (req *request) redirectToRequest(id string) error {
	if !ids.Valid(ids.Request, id) {
		return fault.Invalid("id", "A request ID starts with req_. It is in the X-Request-Id header of every response.")
	}
	envs := []accounts.Environment{req.env, accounts.Live, accounts.Test}
	for _, env := range envs {
		vis := req.principal.Visibility()
		vis.Environment = env
		_, err := audit.Get(req.Context(), req.s.DB, vis, id)
		if err == nil {
			req.redirect("/dashboard/w/"+req.workspace.In(env).Path()+"/requests/"+id, flash{})
			return nil
		}
		if !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	return fault.New(fault.NotFound, "The log has no request %s. Entries are kept for %d days.", id, req.s.Facts().LogRetentionDays)
}

// exportRequests sends all entries that match the filter.
func exportRequests(req *request) (*view, error) {
	f, err := req.requestFilter()
	if err != nil {
		return nil, err
	}
	for part, err := range audit.Export(req.Context(), req.s.DB, req.principal.Visibility(), f, db.Page{}) {
		if err != nil {
			return nil, req.failDownload(err)
		}
		req.sendCSV("requests.csv", part)
	}
	return nil, nil
}

type requestData struct {
	Row      requestRow
	Attempts []attemptRow
	Source   string
	Overhead time.Duration // time not spent at the provider
	Metadata string
}

func requestPage(req *request) (*view, error) {
	id := req.id()
	e, err := audit.Get(req.Context(), req.s.DB, req.principal.Visibility(), id)
	if err != nil {
		return nil, err
	}
	rows, err := req.requestRows([]*audit.Entry{e})
	if err != nil {
		return nil, err
	}
	d := requestData{Row: rows[0], Attempts: attemptRows(e.Attempts), Source: sources[e.UsageSource]}
	if e.Upstream > 0 && e.Latency > e.Upstream {
		d.Overhead = e.Latency - e.Upstream
	}
	if len(e.TokenMetadata) > 0 {
		d.Metadata = escapeInvisible(showJSON(e.TokenMetadata))
	}
	return &view{template: "request", title: "Request " + e.RequestID, data: d, live: !e.Settled}, nil
}

var sources = map[string]string{
	audit.UsageProvider:  "reported by the provider",
	audit.UsageEstimated: "estimated by the server; the provider reported none",
	audit.UsagePartial:   "partial; the client disconnected before the end",
	audit.UsageRecovered: "the server stopped before the end; charged the reserved amount",
}

type attemptRow struct {
	gateway.Attempt
	Number int
	Why    string
	Then   string
}

var outcomes = map[string]string{
	gateway.AttemptOK:                   "succeeded",
	string(providers.KindConnect):       "could not connect",
	string(providers.KindTimeout):       "timed out",
	string(providers.KindRateLimited):   "rate limited by the provider",
	string(providers.KindOverloaded):    "the provider is overloaded",
	string(providers.KindServer):        "the provider failed",
	string(providers.KindAuth):          "the provider rejected the server's key",
	string(providers.KindNoModel):       "the provider does not know the model",
	string(providers.KindInvalid):       "the provider rejected the request",
	string(providers.KindTooLong):       "the request exceeds the model's context",
	gateway.AttemptUnsupported:          "not supported by the provider",
	string(providers.KindProtocol):      "invalid response",
	string(providers.KindCut):           "the response was cut off",
	string(providers.KindLocal):         "this server was out of file descriptors",
	string(providers.KindBlockedInput):  "the input was blocked by a filter",
	string(providers.KindBlockedOutput): "the output was blocked by a filter",
}

// attemptRows reads the router's attempts. There are none if the first one succeeded.
func attemptRows(raw json.RawMessage) []attemptRow {
	var tried []gateway.Attempt
	if len(raw) == 0 || json.Unmarshal(raw, &tried) != nil {
		return nil
	}
	rows := make([]attemptRow, len(tried))
	for i, a := range tried {
		rows[i] = attemptRow{Attempt: a, Number: i + 1, Why: cmp.Or(outcomes[a.Outcome], a.Outcome)}
		switch {
		case a.Outcome == gateway.AttemptOK:
			rows[i].Then = "used"
		case i+1 == len(tried):
			rows[i].Then = "gave up"
		case tried[i+1].Provider == a.Provider && tried[i+1].Model == a.Model:
			rows[i].Then = "retried"
		default:
			rows[i].Then = "tried the next model"
		}
	}
	return rows
}

// Took returns the duration of the attempt.
func (a attemptRow) Took() time.Duration { return time.Duration(a.MS) * time.Millisecond }
