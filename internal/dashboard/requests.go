package dashboard

import (
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
)

// requestRow is an entry of the log with its key's name.
type requestRow struct {
	*audit.Entry
	KeyName string
}

func (v *visit) requestRows(list []*audit.Entry) ([]requestRow, error) {
	wanted := make([]string, len(list))
	for i, e := range list {
		wanted[i] = e.KeyID
	}
	names, err := v.keyNames(wanted)
	rows := make([]requestRow, len(list))
	for i, e := range list {
		rows[i] = requestRow{e, names[e.KeyID]}
	}
	return rows, err
}

// requestParams are what the address of the log and of its export can say.
var requestParams = []string{"key", "model", "project", "ip", "status", "start", "end", "charged"}

// failed asks for every status from 400 on.
const failed = "failed"

// requestFilter reads the address.
func (v *visit) requestFilter() (f audit.Filter, err error) {
	f = audit.Filter{KeyID: v.query("key"), Model: v.query("model"), Project: v.query("project"), IP: v.query("ip"), Charged: v.query("charged") != ""}
	if f.KeyID != "" && !ids.Valid(ids.Key, f.KeyID) {
		return f, fault.Invalid("key", "a key is named by its id (key_…), not by its value")
	}
	if f.Since, err = parseMoment("start", v.query("start")); err != nil {
		return f, err
	}
	if f.Until, err = parseMoment("end", v.query("end")); err != nil {
		return f, err
	}
	switch status := v.query("status"); status {
	case "":
	case failed:
		f.Failed = true
	default:
		if f.Status, err = strconv.Atoi(status); err != nil || f.Status < 100 || f.Status > 599 {
			return f, fault.Invalid("status", "a status is a number from 100 to 599")
		}
	}
	return f, nil
}

type requestsData struct {
	Now      time.Time
	Rows     []requestRow
	Keys     []*access.Key // that the filter offers, the newest
	Statuses []int
	Filtered bool
	Looked   *looked // nil when the page is whole
	Next     pager
	Export   string
	Days     int // that the log is kept
}

// statuses are what the filter offers.
var statuses = []int{200, 400, 402, 403, 404, 409, 413, 429, 499, 500, 502, 503, 504}

func requestsPage(v *visit) (*view, error) {
	f, wrong := v.requestFilter()
	if id := v.query("id"); id != "" {
		if wrong = v.leadToRequest(id); wrong == nil {
			return nil, nil
		}
	}
	page, found := v.page(ids.Request), &db.Found[*audit.Entry]{}
	var err error
	if wrong == nil {
		if found, err = audit.List(v.ctx(), v.s.DB, v.principal.Visibility(), f, page); err != nil {
			return nil, err
		}
	}
	d := requestsData{Now: v.now(), Statuses: statuses, Filtered: wrong != nil || f != (audit.Filter{}), Export: v.to("requests/export.csv") + v.kept(requestParams),
		Next: v.pager(page, found.More, func() string { return found.Cursor }), Days: v.s.Facts.LogRetentionDays}
	d.Looked = lookedThrough(found, d.Next)
	if f.Status != 0 && !slices.Contains(statuses, f.Status) {
		d.Statuses = append([]int{f.Status}, statuses...)
	}
	if d.Rows, err = v.requestRows(found.Rows); err != nil {
		return nil, err
	}
	if d.Keys, _, err = v.s.Keys.List(v.ctx(), v.s.DB, v.principal.Visibility(), db.Page{Limit: rowsPerPage}); err != nil {
		return nil, err
	}
	// A search looks through much: it is not repeated every other second.
	shown := &view{template: "requests", title: "Requests", data: d, live: !d.Filtered && page.After == ""}
	if wrong != nil {
		return v.misread(shown, wrong)
	}
	return shown, nil
}

// misread is a page whose address asks for something that cannot be: it says so
// above its filters, where it can be mended, and has nothing below them.
func (v *visit) misread(shown *view, err error) (*view, error) {
	f := v.faultOf(err)
	status := fault.FamilyOf(f.Code).Status
	if status >= http.StatusInternalServerError {
		return nil, err
	}
	v.problem, shown.status, shown.live = f, status, false
	return shown, nil
}

// leadToRequest finds a request by its id, in the other environment, too: an id
// in somebody's log does not say where it is of.
func (v *visit) leadToRequest(id string) error {
	if !ids.Valid(ids.Request, id) {
		return fault.Invalid("id", "a request's id begins with req_; it is in the X-Request-Id header of every answer")
	}
	envs := []accounts.Environment{v.env, accounts.Live, accounts.Test}
	for _, env := range envs {
		vis := v.principal.Visibility()
		vis.Environment = string(env)
		_, err := audit.Get(v.ctx(), v.s.DB, vis, id)
		if err == nil {
			v.redirect("/dashboard/w/"+v.workspace.ID+"/"+string(env)+"/requests/"+id, flash{})
			return nil
		}
		if !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	return fault.New(fault.NotFound, "there is no request %s in the log. Entries are kept for %d days", id, v.s.Facts.LogRetentionDays)
}

// exportRequests sends every entry that the filter selects, however many.
func exportRequests(v *visit) (*view, error) {
	f, err := v.requestFilter()
	if err != nil {
		return nil, err
	}
	err = audit.Export(v.ctx(), v.s.DB, v.principal.Visibility(), f, db.Page{}, func(part []byte) error { return v.sendCSV("requests.csv", part) })
	return nil, v.sent(err)
}

type requestData struct {
	Now      time.Time
	Row      requestRow
	Attempts []attemptRow
	Source   string
	Overhead time.Duration // what the provider has no part in
	Metadata string
}

func requestPage(v *visit) (*view, error) {
	id, err := v.pathID(ids.Request, "request")
	if err != nil {
		return nil, err
	}
	e, err := audit.Get(v.ctx(), v.s.DB, v.principal.Visibility(), id)
	if err != nil {
		return nil, err
	}
	rows, err := v.requestRows([]*audit.Entry{e})
	if err != nil {
		return nil, err
	}
	d := requestData{Now: v.now(), Row: rows[0], Attempts: attemptRows(e.Attempts), Source: sources[e.UsageSource]}
	if e.Upstream > 0 && e.Latency > e.Upstream {
		d.Overhead = e.Latency - e.Upstream
	}
	if len(e.TokenMetadata) > 0 {
		d.Metadata = exactly(showJSON(e.TokenMetadata))
	}
	return &view{template: "request", title: "Request " + e.RequestID, data: d, live: !e.Settled}, nil
}

var sources = map[string]string{
	audit.UsageProvider:  "the provider said so",
	audit.UsageEstimated: "counted here, as the provider did not say",
	audit.UsagePartial:   "the client left before the end; what was made until then is counted",
	audit.UsageRecovered: "the server stopped before the end; charged as it was reserved",
}

// attemptRow is one try of the router, with what came of it.
type attemptRow struct {
	gateway.Attempt
	Number int
	Why    string
	Then   string
}

// outcomes say why a try did not help.
var outcomes = map[string]string{
	gateway.AttemptOK:                   "answered",
	string(providers.KindConnect):       "nobody was reached there",
	string(providers.KindTimeout):       "no answer in time",
	string(providers.KindRateLimited):   "the provider takes no more calls for now",
	string(providers.KindOverloaded):    "the provider is overloaded",
	string(providers.KindServer):        "the provider failed",
	string(providers.KindAuth):          "the provider does not accept the server's key",
	string(providers.KindNoModel):       "the provider does not know the model",
	string(providers.KindInvalid):       "the provider does not accept the request",
	string(providers.KindTooLong):       "the request is longer than the model takes",
	gateway.AttemptUnsupported:          "the provider has no words for the request",
	string(providers.KindProtocol):      "the answer could not be understood",
	string(providers.KindCut):           "the answer ended before its end",
	string(providers.KindLocal):         "this server was out of file descriptors",
	string(providers.KindBlockedInput):  "a filter refused what was asked for",
	string(providers.KindBlockedOutput): "a filter refused what the model made",
}

// attemptRows reads what the router has noted. It notes nothing when the first
// try was answered.
func attemptRows(raw json.RawMessage) []attemptRow {
	var tried []gateway.Attempt
	if len(raw) == 0 || json.Unmarshal(raw, &tried) != nil {
		return nil
	}
	rows := make([]attemptRow, len(tried))
	for i, a := range tried {
		rows[i] = attemptRow{Attempt: a, Number: i + 1, Why: outcomes[a.Outcome]}
		if rows[i].Why == "" {
			rows[i].Why = a.Outcome
		}
		switch {
		case a.Outcome == gateway.AttemptOK:
			rows[i].Then = "used"
		case i+1 == len(tried):
			rows[i].Then = "given up"
		case tried[i+1].Provider == a.Provider && tried[i+1].Model == a.Model:
			rows[i].Then = "asked again"
		default:
			rows[i].Then = "went on to the next"
		}
	}
	return rows
}

// Took is how long the try was.
func (a attemptRow) Took() time.Duration { return time.Duration(a.MS) * time.Millisecond }
