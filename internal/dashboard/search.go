package dashboard

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/agents"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/logsearch"
	"turnpike/internal/visibility"
	"turnpike/internal/web"
)

// searchable is what a list can be searched by.
type searchable struct {
	logsearch.Language
	Example string            // shown in the empty box
	Old     map[string]string // fields by the names that links used before
}

// searchBox is the search of a list, for the template part "search".
type searchBox struct {
	*logsearch.Query
	Text    string
	Example string
	Hints   []string // why a value matches nothing
	Pickers []picker
	Period  *logsearch.Period
	Ranges  []searchRange
	Path    string // of the list
	Chart   *timeline

	Fields []logsearch.Field
	Lasts  []struct{ Value, Label string }
	id     string
	old    map[string]string
}

// picker offers the known values of a field.
type picker struct {
	logsearch.Field
	Value   string
	Options []pickerOption
}

type pickerOption struct{ Value, Label string }

type searchRange struct {
	Label, Title, URL string
	Current           bool
}

// shortRanges are the labels of logsearch.Lasts.
var shortRanges = map[string]string{"15m": "15 min", "1h": "1 h", "24h": "24 h", "7d": "7 d", "30d": "30 d"}

// search reads the search of a list from the query. It returns nil if it has redirected:
// to a record whose ID is in the search, or to the search that other parameters describe.
// Those come from the pickers and from older links.
func (req *request) search(l searchable) (*searchBox, error) {
	box := &searchBox{Example: l.Example, Period: &logsearch.Period{}, Path: req.R.URL.Path, Lasts: logsearch.Lasts, old: l.Old}
	word := l.Word
	l.Word = func(text string) string {
		if pageOf(text) != nil {
			return "id"
		}
		if word == nil {
			return ""
		}
		return word(text)
	}
	l.Fields = slices.Concat(l.Fields, box.Period.Fields(req.now()), []logsearch.Field{{Name: "id", Help: "req_…", Set: logsearch.Text(&box.id)}})
	box.Fields = l.Fields
	// Parsing sets the filters, so the search with the other parameters is built from a
	// language that sets nothing.
	text := req.query("q")
	if terms := req.searchParams(box, text); len(terms) > 0 {
		text = inert(l.Language).Parse(text).With(terms...)
		if req.R.Method == http.MethodGet {
			_, err := req.redirect(box.url(text), flash{})
			return nil, err
		}
	}
	box.Query = l.Parse(text)
	box.Text = box.Query.String()
	if box.id != "" {
		to, err := req.locate(box.id)
		if err != nil {
			return nil, err
		}
		if to != "" {
			_, err := req.redirect(to, flash{})
			return nil, err
		}
		box.Hints = append(box.Hints, "This workspace has no record with the ID "+box.id+". It may have been deleted.")
	}
	box.setPickers()
	return box, nil
}

// inert returns the language without its effects.
func inert(l logsearch.Language) *logsearch.Language {
	out := &logsearch.Language{Compared: l.Compared, Word: l.Word}
	for _, f := range l.Fields {
		out.Fields = append(out.Fields, logsearch.Field{Name: f.Name, Set: func(logsearch.Op, string) error { return nil }})
	}
	return out
}

// searchParams returns the terms of other parameters than q. A picker without a value
// removes its field.
func (req *request) searchParams(box *searchBox, text string) []logsearch.Term {
	given := req.R.URL.Query()
	var terms []logsearch.Term
	add := func(param, field string) {
		if !given.Has(param) {
			return
		}
		value := req.query(param)
		switch {
		case param == "charged" && value != "":
			value = charged
		case param == "end" && len(value) == len(time.DateOnly):
			value += "T00:00" // that day wasn't included
		}
		terms = append(terms, logsearch.Of(field, value))
	}
	for _, f := range box.Fields {
		add(f.Name, f.Name)
	}
	for _, param := range slices.Sorted(maps.Keys(box.old)) {
		add(param, box.old[param])
	}
	// The time that was changed replaces the other one.
	last := slices.IndexFunc(terms, func(t logsearch.Term) bool { return t.Field == "last" && t.Value != "" })
	if last >= 0 {
		changed := !strings.Contains(" "+text+" ", " "+terms[last].String()+" ")
		for i, t := range terms {
			if isTime := t.Field == "from" || t.Field == "until"; isTime && changed {
				terms[i].Value = ""
			} else if isTime && t.Value != "" {
				terms[last].Value = ""
			}
		}
	}
	return terms
}

// url returns the list with another search.
func (box *searchBox) url(text string) string {
	if text == "" {
		return box.Path
	}
	return box.Path + "?" + url.Values{"q": {text}}.Encode()
}

// With returns the URL of the list with a field of the search replaced.
func (box *searchBox) With(field, value string) string {
	return box.url(box.Query.With(logsearch.Of(field, value)))
}

// Filtered reports whether the list is searched at all.
func (box *searchBox) Filtered() bool { return box.Text != "" }

// Unmatched reports whether a value is known to match nothing.
func (box *searchBox) Unmatched() bool { return len(box.Hints) > 0 }

// Export returns the search as the query of a link.
func (box *searchBox) Export() string {
	if box.Text == "" {
		return ""
	}
	return "?" + url.Values{"q": {box.Text}}.Encode()
}

// Wrong returns how many terms are left out of the search.
func (box *searchBox) Wrong() int { return len(box.Mistakes) }

// FromInput and UntilInput are the values of the fields for a custom range.
func (box *searchBox) FromInput() string  { return inputTime(box.Period.From) }
func (box *searchBox) UntilInput() string { return inputTime(box.Period.Until) }

func inputTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(timeLayout)
}

func (box *searchBox) setPickers() {
	for _, f := range box.Fields {
		if f.Label == "" {
			continue
		}
		p := picker{Field: f, Value: box.Value(f.Name)}
		for _, v := range f.Values {
			p.Options = append(p.Options, pickerOption{Value: v, Label: strings.ReplaceAll(v, "_", " ")})
		}
		if f.Only && p.Value != "" && !slices.Contains(f.Values, p.Value) {
			p.Options = append(p.Options, pickerOption{p.Value, p.Value})
		}
		box.Pickers = append(box.Pickers, p)
	}
	noTimes := []logsearch.Term{{Field: "from"}, {Field: "until"}}
	for _, l := range logsearch.Lasts {
		r := searchRange{Label: shortRanges[l.Value], Title: l.Label, URL: box.url(box.Query.With(append(noTimes, logsearch.Of("last", l.Value))...)), Current: box.Value("last") == l.Value}
		if r.Current {
			r.URL = box.url(box.Query.With(logsearch.Term{Field: "last"}))
		}
		box.Ranges = append(box.Ranges, r)
	}
}

// searchKey finds the keys that a search names by ID, name or hint. It notes a value that
// names none.
func (req *request) searchKey(box *searchBox, value string) (keyIDs []string, hint string, err error) {
	switch {
	case value == "":
		return nil, "", nil
	case ids.Valid(ids.Key, value):
		return []string{value}, "", nil
	case strings.Contains(value, "…"):
		return nil, value, nil
	case keyring.Mask(value) != value:
		box.Hints = append(box.Hints, "This is the secret of a key. Search by the key's name or ID instead.")
		return nil, "", nil
	}
	keyIDs, err = keysNamed(req.Context(), req.s.DB, req.workspace.In(req.env), value)
	if err == nil && len(keyIDs) == 0 {
		box.Hints = append(box.Hints, "No "+string(req.env)+" key is named "+value+".")
	}
	return keyIDs, "", err
}

// keyChoices returns the names of the newest keys. A name that several have is one choice.
func (req *request) keyChoices() ([]string, error) {
	list, err := newestKeyNames(req.Context(), req.s.DB, req.workspace.In(req.env))
	var names []string
	for _, name := range list {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, err
}

func (req *request) projectChoices() ([]string, error) {
	list, _, err := accounts.ListProjects(req.Context(), req.s.DB, req.workspace.In(req.env), db.Page{Limit: maxChoices})
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = p.ID
	}
	return out, err
}

// workFields says how a list of jobs or runs is searched.
type workFields struct {
	example string
	models  func() ([]string, error) // that its records have; nil if they have none
	search  *visibility.WorkSearch
}

// searchWork reads the search of a list of jobs or runs. The box is nil if the browser was
// redirected.
func (req *request) searchWork(w workFields, status logsearch.Field) (*searchBox, error) {
	keys, err := req.keyChoices()
	if err != nil {
		return nil, err
	}
	projects, err := req.projectChoices()
	if err != nil {
		return nil, err
	}
	var key string
	l := searchable{Example: w.example}
	l.Fields = []logsearch.Field{status}
	if w.models != nil {
		models, err := w.models()
		if err != nil {
			return nil, err
		}
		l.Fields = append(l.Fields, logsearch.Field{Name: "model", Label: "Model", Help: "gpt*", Values: models, Set: logsearch.Text(&w.search.Model)})
	}
	l.Fields = append(l.Fields,
		logsearch.Field{Name: "key", Label: "Key", Help: "the name or ID of a key", Values: keys, Set: logsearch.Text(&key)},
		logsearch.Field{Name: "project", Label: "Project", Help: "the ID of a project", Values: projects, Set: logsearch.Text(&w.search.Project)})
	l.Word = func(word string) string {
		if slices.Contains(status.Values, word) {
			return status.Name
		}
		return ""
	}
	box, err := req.search(l)
	if err != nil || box == nil {
		return nil, err
	}
	var hint string
	if w.search.KeyIDs, hint, err = req.searchKey(box, key); err != nil {
		return nil, err
	}
	if hint != "" {
		box.Hints = append(box.Hints, "Search by the key's name or ID instead of "+hint+".")
	}
	w.search.Since, w.search.Until = box.Period.Bounds(req.now())
	return box, nil
}

// recordPage is where a record is shown. {id} stands for its ID and {of} for that of its parent.
type recordPage struct{ prefix, table, path, parent string }

var recordPages = []recordPage{
	{ids.Request, "requests", "requests/{id}", ""}, {ids.Delivery, "deliveries", "deliveries/{id}", ""}, {ids.Event, "events", "events/{id}", ""}, {ids.Run, "agent_runs", "runs/{id}", ""},
	{ids.ImageBatch, "media_jobs", "jobs/images/{id}", ""}, {ids.Video, "media_jobs", "jobs/videos/{id}", ""}, {ids.Voice, "media_jobs", "jobs/voice/{id}", ""},
	{ids.Transcript, "media_jobs", "jobs/transcriptions/{id}", ""}, {ids.Batch, "batches", "jobs/batches/{id}", ""}, {ids.MessageBatch, "batches", "jobs/message-batches/{id}", ""},
	{ids.Key, "keys", "keys/{id}", ""}, {ids.ScopedToken, "scoped_tokens", "keys/{of}/tokens", "key_id"}, {ids.FederationRule, "federation_rules", "federation/{id}", ""},
	{ids.EndUser, "end_users", "users/{id}", ""}, {ids.Endpoint, "endpoints", "webhooks/{id}", ""}, {ids.Replay, "replays", "webhooks/{of}/replays/{id}", "endpoint_id"},
	{ids.Route, "workspace_routes", "routes/{id}", ""}, {ids.ToolServer, "tool_servers", "tools/{id}", ""}, {ids.Approval, "tool_approvals", "approvals", ""},
}

// pageOf returns how a record with an ID is shown, or nil for other text.
func pageOf(text string) *recordPage {
	for i, p := range recordPages {
		if ids.Valid(p.prefix, text) {
			return &recordPages[i]
		}
	}
	return nil
}

// locate returns the page of a record of the workspace in either environment, because an
// ID in a log doesn't tell which one it belongs to. It returns an empty string if there is
// none.
func (req *request) locate(id string) (string, error) {
	p := pageOf(id)
	if p == nil {
		return "", nil
	}
	env, parent, err := req.findRecord(*p, id)
	if !errors.Is(err, db.ErrNotFound) {
		return req.recordPath(env, p.path, id, parent), err
	}
	switch p.prefix {
	case ids.Request:
		for _, env := range []accounts.Environment{req.env, otherThan(req.env)} {
			_, err := req.s.Archive.Get(req.Context(), req.s.DB, visibility.Filter{Tenant: req.workspace.In(env)}, id)
			if !fault.Is(err, fault.NotFound) {
				return req.recordPath(env, p.path, id, ""), err
			}
		}
	case ids.Approval:
		run, err := req.runAwaiting(id)
		if run != "" {
			return req.recordPath(req.env, "runs/{id}", run, ""), nil
		}
		return "", err
	}
	return "", nil
}

func otherThan(env accounts.Environment) accounts.Environment {
	if env == accounts.Test {
		return accounts.Live
	}
	return accounts.Test
}

func (req *request) recordPath(env accounts.Environment, path, id, parent string) string {
	return "/dashboard/w/" + req.workspace.In(env).Path() + "/" + strings.NewReplacer("{id}", id, "{of}", parent).Replace(path)
}

func (req *request) findRecord(p recordPage, id string) (env accounts.Environment, parent string, err error) {
	err = req.s.DB.QueryRow(req.Context(), "SELECT environment, "+cmp.Or(p.parent, "''")+" FROM "+p.table+" WHERE id = $1 AND workspace_id = $2", id, req.workspace.ID).Scan(&env, &parent)
	return env, parent, err
}

// runAwaiting returns the run of this environment whose call awaits an approval, or an empty string.
func (req *request) runAwaiting(approval string) (run string, err error) {
	runs, err := req.awaitingApproval()
	if err != nil {
		return "", err
	}
	in := db.InQuery{SQL: "SELECT run_id FROM agent_calls WHERE approval_id = $1 AND run_id IN", Args: []any{approval}}
	err = db.ByIDs(req.Context(), req.s.DB, in, web.Map(runs.Rows, func(r *agents.Run) string { return r.ID }), func(r db.Row) error { return r.Scan(&run) })
	return run, err
}

// timeline is a histogram over the range of a search.
type timeline struct {
	Title  string // the range
	Noun   string // what is counted
	Rows   int64
	Failed int64
	Start  time.Time
	End    time.Time
	Chart  *chart
}

// timelineSteps are the widths of bars. Those from a minute up can be read from rollups.
var timelineSteps = []time.Duration{10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour,
	7 * 24 * time.Hour, 30 * 24 * time.Hour}

const (
	maxTimelineBars = 64
	defaultTimeline = 24 * time.Hour
)

// span returns the range of the histogram: that of the search, or the last day.
func (box *searchBox) span(now time.Time) db.Timeline {
	from, until := box.Period.Bounds(now)
	if until.IsZero() || until.After(now) {
		until = now
	}
	if from.IsZero() {
		from = until.Add(-defaultTimeline)
	}
	if !from.Before(until) {
		from = until.Add(-time.Minute)
	}
	for _, step := range timelineSteps {
		t := db.Timeline{Start: from.UTC().Truncate(step), Step: step}
		t.Steps = int((until.Sub(t.Start) + step - 1) / step)
		if t.Steps <= maxTimelineBars {
			return t
		}
	}
	longest := timelineSteps[len(timelineSteps)-1]
	return db.Timeline{Start: until.Add(-maxTimelineBars * longest).UTC().Truncate(longest), Step: longest, Steps: maxTimelineBars + 1}
}

// rangeTitle names the range of the histogram.
func (box *searchBox) rangeTitle() string {
	p := box.Period
	i := slices.IndexFunc(logsearch.Lasts, func(l struct{ Value, Label string }) bool { return l.Value == box.Value("last") })
	switch {
	case i >= 0:
		return strings.ToLower(logsearch.Lasts[i].Label)
	case p.Last > 0:
		return "last " + countdown(p.Last)
	case p.From.IsZero() && p.Until.IsZero():
		return "last 24 hours"
	}
	return ""
}

// oneOf are the singulars of what the histograms count.
var oneOf = map[string]string{"requests": "request", "deliveries": "delivery", "events": "event", "runs": "run", "jobs": "job", "batches": "batch"}

// draw draws the histogram. A list without rows has none.
func (box *searchBox) draw(t db.Timeline, counts *db.TimelineCounts, noun string) {
	c := &timeline{Title: box.rangeTitle(), Noun: noun, Start: t.Start, End: t.End()}
	failed, others := chartSeries{Name: "failed"}, chartSeries{}
	spec := chartSpec{Title: strings.ToUpper(noun[:1]) + noun[1:] + " over time", Unit: " " + noun, Small: true, Show: func(v float64) string { return showCount(int64(v)) }}
	for i, s := range counts.Steps {
		c.Rows, c.Failed = c.Rows+s.Rows, c.Failed+s.Failed
		from := t.Start.Add(time.Duration(i) * t.Step)
		spec.Slots = append(spec.Slots, barTime(from, t.Step))
		if t.Step < 24*time.Hour {
			spec.Times = append(spec.Times, from)
		}
		spec.Links = append(spec.Links, box.url(box.Query.With(logsearch.Term{Field: "last"}, logsearch.Of("from", stepTime(from)), logsearch.Of("until", stepTime(from.Add(t.Step))))))
		failed.Values, others.Values = append(failed.Values, float64(s.Failed)), append(others.Values, float64(s.Rows-s.Failed))
	}
	if c.Rows == 0 {
		return
	}
	spec.Series = []chartSeries{failed, others}
	c.Chart = newChart(spec)
	if c.Rows == 1 {
		c.Noun = oneOf[noun]
	}
	if counts.Since.After(t.Start) {
		c.Chart.Gap = round(100 * float64(counts.Since.Sub(t.Start)) / float64(t.End().Sub(t.Start)))
	}
	box.Chart = c
}

// barTime shows the time of a bar.
func barTime(from time.Time, step time.Duration) string {
	if step >= 24*time.Hour {
		return from.Format("2 Jan 2006")
	}
	return from.Format("2 Jan 15:04") + " UTC"
}

// stepTime writes the start or end of a bar for the search.
func stepTime(t time.Time) string {
	if t.Second() != 0 {
		return t.Format("2006-01-02T15:04:05")
	}
	return t.Format(timeLayout)
}

// within limits a filter's times to those of the histogram.
func within(t db.Timeline, until time.Time) (from, to time.Time) {
	to = t.End()
	if !until.IsZero() && until.Before(to) {
		to = until
	}
	return t.Start, to
}
