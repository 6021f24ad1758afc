package dashboard

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/accounts"
	"turnpike/internal/agents"
	"turnpike/internal/agents/tools"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/logsearch"
	"turnpike/internal/web"
)

// awaitingApproval returns the newest runs that need a decision.
func (req *request) awaitingApproval() (*db.Found[*agents.Run], error) {
	return req.runs.get(func() (*db.Found[*agents.Run], error) {
		return req.s.Agents.List(req.Context(), req.s.DB, req.principal, agents.Filter{Status: agents.AwaitingApproval}, db.Page{Limit: waitingShown})
	})
}

// waitingShown is how many waiting runs and tool calls pages count.
const waitingShown = 20

// runRow is a run in a list.
type runRow struct {
	*agents.Run
	KeyName string
}

// Took returns how long the run took, or 0 until it ends.
func (r runRow) Took() time.Duration { return between(&r.CreatedAt, r.CompletedAt) }

func (req *request) runRows(list []*agents.Run) ([]runRow, error) {
	names, err := req.keyNames(web.Map(list, func(r *agents.Run) string { return r.KeyID }))
	return web.Map(list, func(r *agents.Run) runRow { return runRow{r, cmp.Or(names[r.KeyID], r.KeyID)} }), err
}

type runsData struct {
	Search   *searchBox
	Runs     []runRow
	Looked   *scanned // nil if the search is complete
	Next     pager
	Waiting  int  // runs that need a decision
	WaitMore bool // there are more of them
	Approve  bool // the list is of runs that need a decision
}

func runsPage(req *request) (*view, error) {
	var f agents.Filter
	box, err := req.searchWork(workFields{example: "status:failed model:gpt* key:\"My key\"", models: func() ([]string, error) {
		return modelsOfRuns(req.Context(), req.history(), req.workspace.In(req.env))
	}, search: &f.WorkSearch}, logsearch.Field{Name: "status", Label: "Status",
		Help: string(agents.Failed), Values: logsearch.Strings(agents.Statuses), Only: true, Set: logsearch.OneOf(&f.Status, agents.Statuses)})
	if err != nil || box == nil {
		return nil, err
	}
	page, found := req.page(ids.Run), &db.Found[*agents.Run]{}
	if !box.Unmatched() {
		if found, err = req.s.Agents.List(req.Context(), req.history(), req.principal, f, page); err != nil {
			return nil, err
		}
		t := box.span(req.now())
		f.Since, f.Until = within(t, f.Until)
		counts, err := req.s.Agents.Count(req.Context(), req.history(), req.principal, f, t)
		if err != nil {
			return nil, err
		}
		box.draw(t, counts, "runs")
	}
	waiting, err := req.awaitingApproval()
	if err != nil {
		return nil, err
	}
	rows, err := req.runRows(found.Rows)
	if err != nil {
		return nil, err
	}
	d := runsData{Search: box, Runs: rows, Next: req.pager(page, found.More, func() string { return found.Cursor }),
		Waiting: len(waiting.Rows), WaitMore: waiting.More, Approve: f.Status == agents.AwaitingApproval}
	d.Looked = scanLimit(found, d.Next)
	return &view{template: "runs", title: "Agent runs", data: d, live: found.Looked == 0}, nil
}

const (
	// stepsPerPage, callsPerStep and the text limits keep the page of a run small.
	// The page of a single step is complete.
	stepsPerPage = 10
	callsPerStep = 16
	stepText     = 1000
	answerText   = 8000
	openingText  = 1500
	// maxStepsText is the limit for all steps of a page.
	maxStepsText = 40_000
	// openingMessages is how many input messages are shown.
	openingMessages = 5
)

// clipper truncates text, more so when the page's limit is nearly reached.
type clipper struct {
	complete bool // no limits
	left     int
}

func (c *clipper) clip(s string, most int) clipped {
	if c.complete {
		return clipped{Text: s}
	}
	out := clip(s, min(most, max(80, c.left)))
	c.left -= len(out.Text)
	return out
}

// segment is a part of a step's bar in the timeline, in percent of the shown steps.
type segment struct {
	Kind     segmentKind
	At, Wide string
}

type segmentKind string

const (
	modelSegment segmentKind = "model"
	toolSegment  segmentKind = "tool"
	waitSegment  segmentKind = "wait" // for a decision
)

type callRow struct {
	*agents.Call
	Given   clipped // the arguments
	Got     clipped // the output
	Why     clipped // the reason of the decision
	Decider string  // the name of a person or a key
}

// Waited returns how long the call waited for a decision.
func (c callRow) Waited(step stepRow) time.Duration { return between(step.CompletedAt, c.DecidedAt) }

// Pending reports whether the call waits for a person or for the client.
func (c callRow) Pending() bool {
	return c.ExpiresAt != nil && c.FinishedAt == nil && c.StartedAt == nil
}

// Took returns the duration of the call.
func (c callRow) Took() time.Duration {
	return between(c.StartedAt, c.FinishedAt)
}

// stepRow is a model call with its tool calls.
type stepRow struct {
	*agents.Step
	Words clipped
	Calls []callRow
	More  int // calls that aren't shown
	Open  bool
	Bar   []segment
}

// ModelTook returns how long the model took.
func (s stepRow) ModelTook() time.Duration { return between(&s.CreatedAt, s.CompletedAt) }

// Took returns the duration of the step with its calls, or 0 until it ends.
func (s stepRow) Took() time.Duration {
	end := s.CompletedAt
	for _, c := range s.Calls {
		if c.FinishedAt == nil {
			return 0
		}
		if end == nil || c.FinishedAt.After(*end) {
			end = c.FinishedAt
		}
	}
	return between(&s.CreatedAt, end)
}

// Head returns the tools that the step calls, or the beginning of the model's text.
func (s stepRow) Head() string {
	if len(s.Calls) == 0 {
		return accounts.Preview(s.Words.Text)
	}
	tools := web.Map(s.Calls, func(c callRow) string { return c.Tool })
	if s.More > 0 {
		tools = append(tools, "…")
	}
	return strings.Join(tools, ", ")
}

// isOpen reports whether the step is shown open at first: it is the last one, failed, or
// waits.
func (s stepRow) isOpen(last bool) bool {
	return last || s.Status != "completed" || slices.ContainsFunc(s.Calls, callRow.Pending)
}

type moment struct {
	kind     segmentKind
	from, to *time.Time
}

func (s stepRow) moments() []moment {
	list := []moment{{modelSegment, &s.CreatedAt, s.CompletedAt}}
	for _, c := range s.Calls {
		list = append(list, moment{waitSegment, s.CompletedAt, c.DecidedAt}, moment{toolSegment, c.StartedAt, c.FinishedAt})
	}
	return list
}

// drawSteps sets the bars of steps, on one time axis.
func drawSteps(steps []stepRow) {
	if len(steps) == 0 {
		return
	}
	start, end := steps[0].CreatedAt, steps[0].CreatedAt
	for _, s := range steps {
		for _, m := range s.moments() {
			if m.to != nil && m.to.After(end) {
				end = *m.to
			}
		}
	}
	whole := end.Sub(start)
	if whole <= 0 {
		return
	}
	for i, s := range steps {
		for _, m := range s.moments() {
			if between(m.from, m.to) <= 0 {
				continue
			}
			at, wide := float64(m.from.Sub(start))/float64(whole)*100, float64(m.to.Sub(*m.from))/float64(whole)*100
			wide = max(wide, minSegment)
			steps[i].Bar = append(steps[i].Bar, segment{m.kind, decimals(min(at, 100-wide)), decimals(wide)})
		}
	}
}

// minSegment keeps short parts of a bar visible, in percent.
const minSegment = 0.6

func decimals(n float64) string { return strconv.FormatFloat(n, 'f', 2, 64) }

// pendingAction is a decision or an output that the run waits for.
type pendingAction struct {
	events.RequiredAction
	Kind    tools.Kind
	Until   time.Time
	Refused bool // its form was rejected and is shown again

	ApprovedBy []string // if two must approve
}

// Exactly returns the arguments with every character visible.
func (a pendingAction) Exactly() string { return escapeInvisible(a.Arguments) }

// Indented returns them with line breaks, or an empty string if that is the same.
func (a pendingAction) Indented() string {
	if s := escapeInvisible(showJSON(a.Arguments)); s != a.Exactly() {
		return s
	}
	return ""
}

type runData struct {
	Run          *agents.Run
	KeyName      string
	Approvals    []pendingAction
	Outputs      []pendingAction // of function tools
	Opening      []openingRow
	Instructions clipped
	Tools        []toolRow
	Answer       clipped
	Steps        []stepRow
	One          bool   // Steps has a single step, shown completely
	Earlier      string // URL of the previous steps
	Later        string
}

type openingRow struct {
	agents.InputMessage
	Words clipped
}

type toolRow struct {
	Name     string
	Kind     tools.Kind
	Approval string
}

// Cancels reports whether the run can be canceled.
func (d runData) Cancels() bool { return !d.Run.Status.Ended() && d.Run.Status != agents.Cancelling }

// Took returns how long the run took, or 0 until it ends.
func (d runData) Took() time.Duration { return between(&d.Run.CreatedAt, d.Run.CompletedAt) }

// Verification returns the result of the checks, or nil.
func (d runData) Verification() *events.Verification {
	if d.Run.Result == nil {
		return nil
	}
	return d.Run.Result.Verification
}

func showRun(req *request, r *agents.Run) (*view, error) {
	d := runData{Run: r, Instructions: req.clip(r.Config.Instructions, openingText), Tools: toolRows(r.Specs), Answer: req.clip(answerOf(r), answerText)}
	var err error
	if d.KeyName, err = req.keyName(r.KeyID); err != nil {
		return nil, err
	}
	opening, err := req.s.Agents.Input(req.Context(), req.s.DB, r.ID, openingMessages)
	if err != nil {
		return nil, err
	}
	for _, said := range opening {
		d.Opening = append(d.Opening, openingRow{said, req.clip(said.Text, openingText)})
	}
	if err := req.runPending(&d); err != nil {
		return nil, err
	}
	err = req.runSteps(&d)
	return &view{template: "run", title: "Agent run", data: d, live: !r.Status.Ended()}, err
}

func (req *request) run() (*agents.Run, error) {
	return req.s.Agents.Get(req.Context(), req.s.DB, req.principal, req.id())
}

func toolRows(list []tools.Spec) []toolRow {
	var out []toolRow
	for _, s := range list {
		row := toolRow{Name: s.Name, Kind: s.Type, Approval: "some of its tools need approval"}
		if s.Type == tools.MCP {
			row.Name = s.ServerLabel
		}
		switch rule, _ := s.Approval.MarshalJSON(); string(rule) { // strings: cannot fail
		case `"always"`:
			row.Approval = "needs approval"
		case `"never"`:
			row.Approval = "no approval"
		}
		out = append(out, row)
	}
	return out
}

// answerOf returns the model's last output, indented if it is JSON.
func answerOf(r *agents.Run) string {
	switch {
	case r.Result == nil:
		return r.Answer
	case r.Result.Output != nil:
		return showJSON(strings.TrimSpace(r.Result.OutputText))
	}
	return r.Result.OutputText
}

func (req *request) runPending(d *runData) error {
	if !d.Run.NeedsAction() {
		return nil
	}
	calls, err := req.s.Agents.Calls(req.Context(), req.s.DB, d.Run.ID, d.Run.StepsUsed, d.Run.StepsUsed)
	if err != nil {
		return err
	}
	for _, a := range agents.Object(d.Run, calls).RequiredActions {
		row := pendingAction{RequiredAction: a, Until: time.Unix(a.ExpiresAt, 0), Refused: req.problem != nil && req.R.PathValue("approval") == a.ID}
		for _, c := range calls {
			if c.ID == a.CallID {
				row.ApprovedBy = c.ApprovedBy
				row.Kind = c.Kind
			}
		}
		if a.Type == "approval" {
			d.Approvals = append(d.Approvals, row)
		} else {
			d.Outputs = append(d.Outputs, row)
		}
	}
	return nil
}

// runSteps reads the last steps, those before a number, or a single one.
func (req *request) runSteps(d *runData) error {
	first, last := max(1, d.Run.StepsUsed-stepsPerPage+1), d.Run.StepsUsed
	clips := &clipper{left: maxStepsText}
	if n, ok := req.stepNumber("before"); ok {
		last = min(n-1, d.Run.StepsUsed)
		first = max(1, last-stepsPerPage+1)
	}
	if n, ok := req.stepNumber("step"); ok {
		first, last, clips.complete, d.One = n, n, true, true
	}
	steps, _, err := req.s.Agents.Steps(req.Context(), req.s.DB, d.Run.ID, first-1, int(max(0, last-first+1)))
	if err != nil {
		return err
	}
	if d.One && (len(steps) == 0 || steps[0].Number != first) {
		return fault.New(fault.NotFound, "The run has no such step.")
	}
	calls, err := req.s.Agents.Calls(req.Context(), req.s.DB, d.Run.ID, first, last)
	if err != nil {
		return err
	}
	names, err := req.peopleNames(web.Map(calls, func(c *agents.Call) string { return c.DecidedBy })...)
	if err != nil {
		return err
	}
	keys, err := req.keyNames(web.Map(calls, func(c *agents.Call) string { return c.DecidedBy }))
	if err != nil {
		return err
	}
	for i, p := range steps {
		row := stepRow{Step: p, Words: clips.clip(p.Text, stepText)}
		for _, c := range calls {
			if c.Step != p.Number {
				continue
			}
			if len(row.Calls) == callsPerStep && !clips.complete {
				row.More++
				continue
			}
			row.Calls = append(row.Calls, callRow{Call: c, Given: clips.clip(escapeInvisible(showJSON(c.Arguments)), stepText), Got: clips.clip(showJSON(c.Output), stepText),
				Why: clips.clip(c.Reason, stepText), Decider: actorName(c.DecidedBy, names, keys)})
		}
		row.Open = row.isOpen(i == len(steps)-1)
		d.Steps = append(d.Steps, row)
	}
	drawSteps(d.Steps)
	if d.One {
		return nil
	}
	here := req.to("runs/" + d.Run.ID)
	if first > 1 {
		d.Earlier = here + "?before=" + strconv.FormatInt(first, 10) + "#steps"
	}
	if last < d.Run.StepsUsed {
		d.Later = here + "?before=" + strconv.FormatInt(last+stepsPerPage+1, 10) + "#steps"
	}
	return nil
}

func (req *request) stepNumber(name string) (int64, bool) {
	n, err := strconv.ParseInt(req.query(name), 10, 32)
	return n, err == nil && n > 0
}

// decisionVerbs are the past participles of decisions.
var decisionVerbs = map[agents.Verdict]string{agents.Approve: "approved", agents.Deny: "denied", agents.Edit: "approved with other arguments", agents.Respond: "answered"}

// decideRun approves or denies a call with the arguments that the person saw.
func decideRun(req *request) (*view, error) {
	approval := req.R.PathValue("approval")
	if !ids.Valid(ids.Approval, approval) {
		return nil, fault.NoSuch("approval", web.Sanitize(approval, 64))
	}
	d := agents.Decision{Decision: agents.Verdict(req.form("decision")), Reason: req.form("reason"), Hash: req.form("arguments_hash")}
	switch d.Decision {
	case agents.Edit:
		d.Arguments = jsontext.Value(req.form("arguments"))
	case agents.Respond:
		d.Response = req.form("response")
	}
	if d.Hash == "" {
		return nil, fault.Missing("arguments_hash", "The form has no arguments hash. Reload the page.")
	}
	return req.save(req.to("runs/"+req.id()), "The call is "+decisionVerbs[d.Decision]+".", func(tx *db.Tx) error {
		_, _, err := req.s.Agents.Decide(req.Context(), tx, agents.DecideParams{Decider: req.decider(), RunID: req.id(), ApprovalID: approval, Decision: d})
		return err
	})
}

func cancelRun(req *request) (*view, error) {
	notice := "Run canceled."
	err := req.write(func(tx *db.Tx) error {
		r, _, err := req.s.Agents.Cancel(req.Context(), tx, req.principal, req.id())
		if err != nil {
			return err
		}
		if r.Status == agents.Cancelling {
			notice = "Canceling the run. The current step still finishes."
		}
		return req.actor().Log(req.Context(), tx, audit.Action{Tenant: r.Tenant, Project: r.Project, Action: "agent.run.cancelled", Target: r.ID}, nil, req.now())
	})
	if err != nil {
		return nil, err
	}
	return req.redirect(req.to("runs/"+req.id()), flash{Notice: notice})
}
