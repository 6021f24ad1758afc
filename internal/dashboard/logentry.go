package dashboard

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/docsite"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/providers"
)

type requestData struct {
	Row      requestRow
	Why      *explanation // nil for a request that succeeded
	Attempts []attemptRow
	Times    []span
	Source   string
	Metadata string
	Curl     string // empty if no client sent the request
	Sent     bool   // Curl has the body that the client sent
	Play     bool   // the playground can repeat it
	List     string // the list with the filters that led here
	Newer    string // its neighbors there
	Older    string
	Content  *contentSection // nil without access to content
}

func requestPage(req *request) (*view, error) {
	id := req.id()
	e, err := req.s.Archive.Get(req.Context(), req.s.DB, req.principal.Visibility(), id)
	if err != nil {
		return nil, err
	}
	rows, err := req.requestRows([]*audit.Entry{e})
	if err != nil {
		return nil, err
	}
	d := requestData{Row: rows[0], Why: req.explain(e), Attempts: attemptRows(e), Times: timeSpans(e), Source: sources[e.UsageSource], Curl: curlCommand(e, req.s.PublicURL, "")}
	_, d.Play = playgroundPaths[e.Path]
	var f audit.Filter
	if req.query("q") != "" { // the search that led here
		var box *searchBox
		if f, box, err = req.requestFilter(); err != nil || box == nil {
			return nil, err
		}
		d.List = box.Export()
	}
	if d.Newer, d.Older, err = req.neighbors(f, id, d.List); err != nil {
		return nil, err
	}
	if len(e.TokenMetadata) > 0 {
		d.Metadata = escapeInvisible(showJSON(e.TokenMetadata))
	}
	if req.principal.Grant.Allows(access.ContentRead) {
		d.Content = &contentSection{}
		if d.Content.Until, err = req.s.Contents.ExpiresAt(req.Context(), req.s.DB, e); err != nil {
			return nil, err
		}
	}
	return &view{template: "request", title: "Request " + e.RequestID, data: &d, live: !e.Settled}, nil
}

// neighbors returns the pages of the requests before and after one in a list. They are empty at the ends of the
// list, and where a filter finds none in the rows that a search scans.
func (req *request) neighbors(f audit.Filter, id, query string) (newer, older string, err error) {
	for _, to := range []struct {
		page *string
		asc  bool
	}{{&newer, true}, {&older, false}} {
		found, err := req.s.Archive.List(req.Context(), req.s.DB, req.principal.Visibility(), f, db.Page{After: id, Asc: to.asc, Limit: 1})
		if err != nil {
			return "", "", err
		}
		if len(found.Rows) > 0 {
			*to.page = req.to("requests/") + found.Rows[0].RequestID + query
		}
	}
	return newer, older, nil
}

// explanation says why a request failed and what to do about it.
type explanation struct {
	Title     string
	Advice    string
	Message   string
	Code      string
	Docs      string
	Param     string
	Requested string // if no model was called
	By        *audit.Refuser
	ByName    string
	ByLink    string
}

// reason is how the dashboard explains an error code.
type reason struct{ title, advice string }

var reasons = map[fault.Code]reason{
	fault.ModelNotFound:         {"This server has no such model", "Check the name, or choose one of the models that GET /v1/models lists."},
	fault.ModelNotPriced:        {"The model has no price", "An operator can set a price for it."},
	fault.ModelNotAllowed:       {"The key may not use this model", "Change the allowed models of the key or the project, or use another model."},
	fault.InvalidParameter:      {"A value in the request is invalid", "Correct the parameter and send the request again."},
	fault.UnknownParameter:      {"The request has an unknown parameter", "Remove it or correct its name."},
	fault.MissingParameter:      {"The request lacks a parameter", "Add it and send the request again."},
	fault.InvalidJSON:           {"The body isn't valid JSON", "Check how the client builds the body."},
	fault.ContextLengthExceeded: {"The request is too long for the model", "Shorten it, or use a model with a larger context window."},
	fault.InsufficientCredits:   {"The workspace has too few credits left", "Raise the monthly limit, or wait until the next month."},
	fault.BudgetExceeded:        {"A budget has too little left", "Raise the budget, request fewer tokens, or wait until it resets."},
	fault.RateLimitExceeded:     {"A rate limit was reached", "Send fewer requests, retry after the time in Retry-After, or raise the limit."},
	fault.InsufficientScope:     {"The key lacks a permission", "Add the scope to the key, or use another key."},
	fault.IPNotAllowed:          {"The key can't be used from this address", "Add the address to the allowed IPs of the key."},
	fault.NoProvider:            {"No provider is connected", "An operator can add a provider that offers this kind of model."},
	fault.Upstream:              {"The provider failed", "Retry, or add a fallback model."},
	fault.UpstreamTimeout:       {"The provider took too long", "Retry, or add a fallback model."},
	fault.Overloaded:            {"The provider is overloaded", "Retry shortly, or add a fallback model."},
	fault.StorageUnavailable:    {"Turnpike couldn't reach its database", "Retry. If it happens again, an operator can run turnpike doctor."},
	fault.RequestTimeout:        {"The client disconnected or was too slow", "Check the timeout of the client."},
	fault.Internal:              {"Something went wrong in Turnpike", "An operator finds the request ID in the server log."},
}

// explain returns nil for a request that succeeded or is still running.
func (req *request) explain(e *audit.Entry) *explanation {
	if e.ErrorCode == "" && e.Status < http.StatusBadRequest {
		return nil
	}
	f, known := e.ReadFailure(), reasons[fault.Code(e.ErrorCode)]
	w := &explanation{Title: cmp.Or(known.title, "The request failed"), Advice: known.advice, Message: f.Message, Code: e.ErrorCode, Param: f.Param, By: f.RefusedBy}
	if e.ErrorCode != "" {
		w.Docs = docsite.ErrorsPage + "#" + e.ErrorCode
	}
	if e.Model == "" {
		w.Requested = e.AskedFor()
	}
	if by := f.RefusedBy; by != nil {
		w.ByName = strings.ReplaceAll(by.Kind, "_", " ")
		if page, scope := ownerPage(by, e); page != "" && req.principal.Grant.Allows(scope) {
			w.ByLink = req.to(page)
		}
	}
	return w
}

// ownerPage returns the page where a limit can be changed, and the scope that it needs.
func ownerPage(by *audit.Refuser, e *audit.Entry) (string, access.Scope) {
	switch by.Level {
	case "workspace":
		return "billing", access.BillingRead
	case "project":
		return "projects/" + by.ID, access.ProjectsRead
	case "key":
		return "keys/" + by.ID, access.KeysRead
	case "user":
		return "users/" + by.ID, access.UsersRead
	case "run":
		return "runs/" + strings.TrimPrefix(e.Path, runPath), access.AgentRunsRead
	}
	return "", ""
}

const runPath = "/v1/agents/runs/"

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

// attemptRows returns the router's attempts. The log has none if the first one succeeded, so that one is derived.
func attemptRows(e *audit.Entry) []attemptRow {
	var tried []gateway.Attempt
	if len(e.Attempts) > 0 && json.Unmarshal(e.Attempts, &tried) != nil {
		return nil
	}
	if len(tried) == 0 && e.Provider != "" && e.Upstream > 0 && e.ErrorCode == "" && e.Status != 0 && e.Status < http.StatusBadRequest {
		tried = []gateway.Attempt{{Provider: e.Provider, Model: e.Model, Outcome: gateway.AttemptOK, Status: http.StatusOK, MS: e.Upstream.Milliseconds()}}
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

// Waited returns how long Turnpike waited before the attempt.
func (a attemptRow) Waited() time.Duration { return time.Duration(a.WaitMS) * time.Millisecond }

// Took returns the duration of the attempt.
func (a attemptRow) Took() time.Duration { return time.Duration(a.MS) * time.Millisecond }

// span is a part of a request's time. At and Wide are in percent of all.
type span struct {
	Kind     string // own, good or bad: the class of its bar
	Name     string
	Took     time.Duration
	At, Wide float64
	Token    float64       // where the first token arrived, or 0
	TokenAt  time.Duration // when it did
}

// timeSpans divides the latency of a request: Turnpike's own work and waits, and each attempt at a provider.
func timeSpans(e *audit.Entry) []span {
	rows := attemptRows(e)
	if len(rows) == 0 || e.Latency <= 0 {
		return nil
	}
	var list []span
	var at time.Duration
	starts := []time.Duration{}
	add := func(kind, name string, took time.Duration) {
		if took > 0 {
			list, starts = append(list, span{Kind: kind, Name: name, Took: took}), append(starts, at)
			at += took
		}
	}
	add("own", "Turnpike, before the first attempt", e.Queue)
	rest := e.Upstream
	for i, a := range rows {
		add("own", waitName(rows, i), a.Waited())
		kind, took := "bad", a.Took()
		if a.Outcome == gateway.AttemptOK {
			kind = "good"
		}
		if i+1 == len(rows) { // of a stream, the attempt has only the time to the first chunk
			took = max(took, rest)
		}
		rest -= took
		add(kind, a.Provider+", "+a.Model, max(took, time.Microsecond))
	}
	add("own", "Turnpike, after the response", e.Latency-at)
	for i := range list {
		s := &list[i]
		s.At, s.Wide = percentOf(starts[i], at), max(percentOf(s.Took, at), 0.4)
		s.At = min(s.At, 100-s.Wide)
		if t := e.FirstToken; t > starts[i] && t <= starts[i]+s.Took && s.Kind != "own" {
			s.Token, s.TokenAt = min(percentOf(t, at), 99.5), t
		}
	}
	return list
}

// waitName says why Turnpike waited before an attempt.
func waitName(rows []attemptRow, i int) string {
	if i > 0 && rows[i-1].Outcome == string(providers.KindRateLimited) {
		return "Wait for the provider's rate limit"
	}
	return "Wait before the retry"
}

// percentOf returns a part in percent, with two decimals.
func percentOf(part, of time.Duration) float64 {
	return float64(int64(float64(part)/float64(of)*10_000)) / 100
}

// examples are bodies for requests whose own isn't stored. M is the model.
var examples = map[string]string{
	"/v1/chat/completions":   `{"model":M,"messages":[{"role":"user","content":"Hello"}]}`,
	"/v1/completions":        `{"model":M,"prompt":"Hello"}`,
	"/v1/responses":          `{"model":M,"input":"Hello"}`,
	"/v1/messages":           `{"model":M,"max_tokens":256,"messages":[{"role":"user","content":"Hello"}]}`,
	"/v1/embeddings":         `{"model":M,"input":"Hello"}`,
	"/v1/moderations":        `{"model":M,"input":"Hello"}`,
	"/v1/images/generations": `{"model":M,"prompt":"A lighthouse"}`,
	"/v1/audio/speech":       `{"model":M,"input":"Hello","voice":"alloy"}`,
	"/v1/rerank":             `{"model":M,"query":"Hello","documents":["Hello","Bye"]}`,
}

// playgroundPaths are the paths of requests that the playground can repeat.
var playgroundPaths = map[string]struct{}{"/v1/chat/completions": {}, "/v1/responses": {}, "/v1/messages": {}, "/v1/images/generations": {}, "/v1/audio/speech": {}}

// curlCommand returns a command that repeats a request, without its secrets. It returns an empty string for steps of
// runs and lines of batches, which no client sent. Without the stored body, it has an example.
func curlCommand(e *audit.Entry, publicURL, stored string) string {
	if e.Method == http.MethodPost && (isChild(e.Path, runPath) || isChild(e.Path, "/v1/batches/") || isChild(e.Path, "/v1/messages/batches/")) {
		return ""
	}
	lines := []string{"curl " + shellQuote(publicURL+e.Path)}
	body := stored
	if e.Method == http.MethodPost && body == "" {
		model, _ := json.Marshal(cmp.Or(e.AskedFor(), "auto")) // it is a string
		body = strings.Replace(examples[e.Path], "M", string(model), 1)
	}
	if e.Method != http.MethodGet && (e.Method != http.MethodPost || body == "") {
		lines[0] += " -X " + shellQuote(e.Method)
	}
	lines = append(lines, `-H "Authorization: Bearer $TURNPIKE_API_KEY"`)
	if e.Project != "" {
		lines = append(lines, "-H "+shellQuote("Service-Project: "+e.Project))
	}
	if body != "" {
		lines = append(lines, `-H "Content-Type: application/json"`, "-d "+shellQuote(body))
	}
	return strings.Join(lines, " \\\n  ")
}

// isChild reports whether a path is directly below another one.
func isChild(path, parent string) bool {
	rest, below := strings.CutPrefix(path, parent)
	return below && rest != "" && !strings.Contains(rest, "/")
}

// shellQuote quotes a text for a POSIX shell, unless it needs no quotes.
func shellQuote(s string) string {
	if strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("/:._-", r)
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
