package dashboard

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/logsearch"
	"turnpike/internal/spend"
	"turnpike/internal/web"
)

type requestRow struct {
	*audit.Entry
	KeyName string
}

// Cost returns the charged credits, or the simulated ones.
func (r requestRow) Cost() credits.Micro { return r.Credits + r.SimulatedCredits }

func (req *request) requestRows(list []*audit.Entry) ([]requestRow, error) {
	names, err := req.keyNames(web.Map(list, func(e *audit.Entry) string { return e.KeyID }))
	return web.Map(list, func(e *audit.Entry) requestRow { return requestRow{e, names[e.KeyID]} }), err
}

// requestSearch is the search of the log.
type requestSearch struct {
	audit.Search
	key  string
	user string
	is   string
}

// charged is the value of is: for requests that cost credits.
const charged = "charged"

// language returns the fields of the log. known has their suggestions.
func (f *requestSearch) language(known requestChoices) searchable {
	l := searchable{Example: "model:gpt* status:4xx key:\"My key\" >2s", Old: map[string]string{"start": "from", "end": "until", "charged": "is", "user_id": "user"}}
	l.Fields = []logsearch.Field{
		{Name: "status", Label: "Status", Help: "4xx", Values: statuses, Only: true, Set: logsearch.Status((*logsearch.Range)(&f.Status))},
		{Name: "model", Label: "Model", Help: "gpt*", Values: known.models, Set: logsearch.Text(&f.Model)},
		{Name: "key", Label: "Key", Help: "the name or ID of a key", Values: known.keys, Set: logsearch.Text(&f.key)},
		{Name: "project", Label: "Project", Help: "the ID of a project", Values: known.projects, Set: logsearch.Text(&f.Project)},
		{Name: "error", Label: "Error", Help: "budget_exceeded", Values: errorCodes(), Set: logsearch.Text(&f.Error)},
		{Name: "latency", Label: "Latency", Help: ">2s", Values: []string{">500ms", ">1s", ">2s", ">5s", ">10s", ">30s"}, Only: true, Set: logsearch.Duration((*logsearch.Range)(&f.Latency))},
		{Name: "cost", Label: "Credits", Help: ">0.5", Values: []string{">0", ">0.1", ">1", ">10"}, Only: true, Set: logsearch.Credits((*logsearch.Range)(&f.Cost))},
		{Name: "provider", Label: "Provider", Help: "openai", Values: known.providers, Set: logsearch.Text(&f.Provider)},
		{Name: "user", Label: "User", Help: "your ID of a user, or its eu_…", Set: logsearch.Text(&f.user)},
		{Name: "path", Label: "Path", Help: "/v1/chat*", Set: logsearch.Text(&f.Path)},
		{Name: "ip", Label: "IP address", Help: "192.0.2.*", Set: logsearch.Text(&f.IP)},
		{Name: "method", Help: "POST", Values: []string{"GET", "POST", "PATCH", "PUT", "DELETE"}, Set: logsearch.Text(&f.Method)},
		{Name: "is", Help: charged, Values: []string{charged}, Set: logsearch.OneOf(&f.is, []string{charged})},
	}
	l.Compared = "latency"
	l.Word = func(word string) string {
		var r logsearch.Range
		_, notAddress := netip.ParseAddr(word)
		switch {
		case logsearch.Status(&r)(logsearch.Equal, word) == nil:
			return "status"
		case notAddress == nil:
			return "ip"
		case strings.HasPrefix(word, "/"):
			return "path"
		case slices.Contains(errorCodes(), word):
			return "error"
		case slices.ContainsFunc(known.models, func(m string) bool { return db.Match(word, m) }):
			return "model"
		case slices.ContainsFunc(known.keys, func(k string) bool { return db.Match(word, k) }):
			return "key"
		}
		return ""
	}
	return l
}

// statuses are the choices of the filter.
var statuses = []string{logsearch.Failed, "2xx", "4xx", "5xx", "200", "400", "401", "402", "403", "404", "409", "413", "429", "499", "500", "502", "503", "504"}

var errorCodes = sync.OnceValue(func() []string {
	var out []string
	for code := range fault.Codes() {
		out = append(out, string(code))
	}
	slices.Sort(out)
	return out
})

// requestChoices are the values that the log is known to have.
type requestChoices struct{ keys, models, providers, projects []string }

func (req *request) requestChoices() (c requestChoices, err error) {
	if c.keys, err = req.keyChoices(); err != nil {
		return c, err
	}
	if c.projects, err = req.projectChoices(); err != nil {
		return c, err
	}
	c.models, c.providers, err = modelsInUse(req.Context(), req.history(), req.workspace.In(req.env), req.now())
	return c, err
}

// requestFilter reads the search. box is nil if the browser was redirected.
func (req *request) requestFilter() (f audit.Filter, box *searchBox, err error) {
	known, err := req.requestChoices()
	if err != nil {
		return f, nil, err
	}
	var s requestSearch
	if box, err = req.search(s.language(known)); err != nil || box == nil {
		return f, nil, err
	}
	if s.KeyIDs, s.KeyHint, err = req.searchKey(box, s.key); err != nil {
		return f, nil, err
	}
	if f.EndUser, err = req.searchUser(box, s.user); err != nil {
		return f, nil, err
	}
	if s.is == charged {
		f.Charged = true
	}
	s.Method = strings.ToUpper(s.Method)
	f.Since, f.Until = box.Period.Bounds(req.now())
	f.Search = s.Search
	return f, box, nil
}

// searchUser finds an end user by Turnpike's ID or the workspace's.
func (req *request) searchUser(box *searchBox, value string) (id string, err error) {
	if value == "" || ids.Valid(ids.EndUser, value) {
		return value, nil
	}
	id, err = db.Value[string](req.s.DB.QueryRow(req.Context(), "SELECT id FROM end_users WHERE workspace_id = $1 AND environment = $2 AND name = $3", req.workspace.ID, req.env, value))
	if errors.Is(err, db.ErrNotFound) {
		box.Hints = append(box.Hints, "No "+string(req.env)+" user has the ID "+value+".")
		return "", nil
	}
	return id, err
}

type requestsData struct {
	Search *searchBox
	Rows   []requestRow
	Looked *scanned // nil if the search is complete
	Next   pager
	Export string
	Days   int // of log retention
}

func requestsPage(req *request) (*view, error) {
	f, box, err := req.requestFilter()
	if err != nil || box == nil {
		return nil, err
	}
	page, found := req.page(ids.Request), &db.Found[*audit.Entry]{}
	if !box.Unmatched() {
		if found, err = req.s.Archive.List(req.Context(), req.usage(), req.principal.Visibility(), f, page); err != nil {
			return nil, err
		}
		if err := req.drawRequests(box, f); err != nil {
			return nil, err
		}
	}
	d := requestsData{Search: box, Export: req.to("requests/export.csv") + box.Export(),
		Next: req.pager(page, found.More, func() string { return found.Cursor }), Days: req.s.Facts().LogRetentionDays}
	d.Looked = scanLimit(found, d.Next)
	if d.Rows, err = req.requestRows(found.Rows); err != nil {
		return nil, err
	}
	// A search scans many rows, so it isn't repeated every two seconds.
	return &view{template: "requests", title: "Requests", data: d, live: !box.Filtered() && page.After == ""}, nil
}

// drawRequests counts the entries of the log. If there are too many to scan, it reads the
// usage of model requests instead, where that has what the search is about.
func (req *request) drawRequests(box *searchBox, f audit.Filter) error {
	t := box.span(req.now())
	f.Since, f.Until = within(t, f.Until)
	noun := "requests"
	counted := t
	counted.Rollup = func() (*db.TimelineCounts, error) {
		rolled, err := req.rolledUp(f, t)
		if rolled != nil {
			noun = "model requests"
		}
		return rolled, err
	}
	counts, err := audit.Count(req.Context(), req.history(), req.principal.Visibility(), f, counted)
	if err != nil {
		return err
	}
	box.draw(t, counts, noun)
	return nil
}

// maxTimelineUsage is how many rows of usage a histogram reads, which takes 10 ms.
const maxTimelineUsage = 10_000

// rolledUp counts model requests by the rollups of usage. It returns nil if the search
// needs more than those have.
func (req *request) rolledUp(f audit.Filter, t db.Timeline) (*db.TimelineCounts, error) {
	s := f.Search
	onlyFailed := s.Status.Max == nil && s.Status.Min != nil && *s.Status.Min == 400
	switch {
	case len(s.KeyIDs) > 1, s.KeyHint != "", s.IP != "", f.EndUser != "", s.Method != "", s.Path != "", s.Error != "", f.Charged, !onlyFailed && s.Status != (db.Range{}),
		s.Latency != (db.Range{}), s.Cost != (db.Range{}), t.Step < time.Minute:
		return nil, nil
	}
	u := spend.UsageQuery{Tenant: req.workspace.In(req.env), Start: t.Start, End: f.Until, Bucket: spend.ByDay}
	if t.Step < time.Hour {
		u.Bucket = spend.ByMinute
	} else if t.Step < 24*time.Hour {
		u.Bucket = spend.ByHour
	}
	if len(s.KeyIDs) == 1 {
		u.KeyID = s.KeyIDs[0]
	}
	for _, by := range []struct{ name, pattern string }{{"model", s.Model}, {"provider", s.Provider}, {"project", s.Project}} {
		if by.pattern != "" {
			u.GroupBy = append(u.GroupBy, by.name)
		}
	}
	list, since, err := spend.RecentUsage(req.Context(), req.usage(), u, maxTimelineUsage)
	if err != nil {
		return nil, err
	}
	out := &db.TimelineCounts{Steps: make([]db.StepCount, t.Steps), Since: since}
	for _, x := range list {
		i := int(x.Start.Sub(t.Start) / t.Step)
		if i < 0 || i >= t.Steps || s.Model != "" && !db.Match(s.Model, x.Model) || s.Provider != "" && !db.Match(s.Provider, x.Provider) || s.Project != "" && !db.Match(s.Project, x.Project) {
			continue
		}
		if onlyFailed {
			x.Requests = x.Errors
		}
		out.Steps[i].Rows += x.Requests
		out.Steps[i].Failed += x.Errors
	}
	return out, nil
}

// exportRequests sends all entries that match the search. A mistake in it sends nothing.
func exportRequests(req *request) (*view, error) {
	f, box, err := req.requestFilter()
	if err != nil || box == nil {
		return nil, err
	}
	if box.Wrong() > 0 {
		return nil, fault.Invalid("q", "%s: %s", box.Mistakes[0].Term, box.Mistakes[0].Message)
	}
	if box.Unmatched() {
		return nil, fault.Invalid("q", "%s", box.Hints[0])
	}
	for part, err := range req.s.Archive.Export(req.Context(), req.history(), req.principal.Visibility(), f, db.Page{}) {
		if err != nil {
			return nil, req.failDownload(err)
		}
		req.sendCSV("requests.csv", part)
	}
	return nil, nil
}
