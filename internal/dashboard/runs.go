package dashboard

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/agents"
	"turnpike/internal/agents/tools"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
)

// awaitingApproval are the newest runs that wait for a decision, and whether
// there are more. An index has them alone.
func (v *visit) awaitingApproval(limit int) ([]*agents.Run, bool, error) {
	found, err := v.s.Agents.List(v.ctx(), v.s.DB, v.principal, agents.AwaitingApproval, db.Page{Limit: limit})
	if err != nil {
		return nil, false, err
	}
	return found.Rows, found.More, nil
}

// waitingShown is how many runs that wait the list counts.
const waitingShown = 20

type runsData struct {
	Now      time.Time
	States   []agents.Status
	Runs     []*agents.Run
	Next     pager
	Waiting  int  // runs that need a decision
	WaitMore bool // and there are more
}

func runsPage(v *visit) (*view, error) {
	page := v.page(ids.Run)
	status := agents.Status(v.query("status"))
	if !slices.Contains(agents.Statuses, status) {
		status = ""
	}
	found, err := v.s.Agents.List(v.ctx(), v.s.DB, v.principal, status, page)
	if err != nil {
		return nil, err
	}
	waiting, more, err := v.awaitingApproval(waitingShown)
	if err != nil {
		return nil, err
	}
	d := runsData{Now: v.now(), States: agents.Statuses, Runs: found.Rows, Next: v.pager(page, found.More, func() string { return found.Cursor }),
		Waiting: len(waiting), WaitMore: more}
	return &view{template: "runs", title: "Agent runs", data: d, live: found.Looked == 0}, nil
}

const (
	// stepsPerPage, callsPerStep and the lengths of texts keep the page of a
	// run small; a step of its own is shown whole.
	stepsPerPage = 10
	callsPerStep = 16
	stepText     = 1000
	answerText   = 8000
	openingText  = 1500
	// textRoom is what all texts of the steps may have together.
	textRoom = 40_000
	// openingMessages is how many messages of the input are shown.
	openingMessages = 5
)

// clipper cuts texts off, sooner when there is not much room left. The one of a
// page that shows everything has no limits.
type clipper struct {
	whole bool
	room  int
}

func (c *clipper) clip(s string, most int) clipped {
	if c.whole {
		return clipped{Text: s}
	}
	out := clip(s, min(most, max(80, c.room)))
	c.room -= len(out.Text)
	return out
}

// callRow is a call of a tool, as the page shows it.
type callRow struct {
	*agents.Call
	Given   clipped // the arguments
	Got     clipped // the output
	Why     clipped // the reason of the decision
	Decider decider
}

// Took is how long it was under way.
func (c callRow) Took() time.Duration {
	if c.StartedAt == nil || c.FinishedAt == nil {
		return 0
	}
	return c.FinishedAt.Sub(*c.StartedAt)
}

// decider is who decided about a call: a person, or a key.
type decider struct {
	Name string // of a person
	ID   string
}

// stepRow is a call of the model with the tools that it wants.
type stepRow struct {
	*agents.Step
	Words clipped
	Calls []callRow
	More  int // calls that are not shown
}

// Took is how long the model took.
func (s stepRow) Took() time.Duration {
	if s.CompletedAt == nil {
		return 0
	}
	return s.CompletedAt.Sub(s.CreatedAt)
}

// ask is something that the run waits for.
type ask struct {
	events.RequiredAction
	Kind    tools.Kind
	Until   time.Time
	Refused bool // it is this form that is shown again
}

// Exactly are the arguments with every character in view.
func (a ask) Exactly() string { return exactly(a.Arguments) }

// Indented are the same with line breaks, or empty when that is no different.
func (a ask) Indented() string {
	if s := exactly(showJSON(a.Arguments)); s != a.Exactly() {
		return s
	}
	return ""
}

type runData struct {
	Now          time.Time
	Run          *agents.Run
	Approvals    []ask
	Outputs      []ask // of the customer's own tools
	Opening      []openingRow
	Instructions clipped
	Tools        []toolRow
	Answer       clipped
	Steps        []stepRow
	One          bool   // Steps is the one that the address asks for, whole
	Earlier      string // the address of the steps before these
	Later        string
}

// openingRow is a message of the input.
type openingRow struct {
	agents.InputMessage
	Words clipped
}

// toolRow is a tool that the run was given.
type toolRow struct {
	Name     string
	Kind     tools.Kind
	Approval string
}

// Cancels reports whether there is something to cancel.
func (d runData) Cancels() bool { return !d.Run.Status.Ended() && d.Run.Status != agents.Cancelling }

// Verification is what the checks came to, or nil.
func (d runData) Verification() *events.Verification {
	if d.Run.Result == nil {
		return nil
	}
	return d.Run.Result.Verification
}

func runPage(v *visit) (*view, error) {
	r, err := v.run()
	if err != nil {
		return nil, err
	}
	d := runData{Now: v.now(), Run: r, Instructions: clip(r.Config.Instructions, openingText), Tools: toolRows(r.Specs)}
	whole := v.query("all") != ""
	if whole {
		d.Instructions = clipped{Text: r.Config.Instructions}
	}
	d.Answer = answerOf(r, whole)
	if err := v.runOpening(&d, whole); err != nil {
		return nil, err
	}
	if err := v.runAsks(&d); err != nil {
		return nil, err
	}
	if err := v.runSteps(&d); err != nil {
		return nil, err
	}
	return &view{template: "run", title: "Agent run", data: d, live: !r.Status.Ended()}, nil
}

func (v *visit) run() (*agents.Run, error) {
	id, err := v.pathID(ids.Run, "agent run")
	if err != nil {
		return nil, err
	}
	return v.s.Agents.Get(v.ctx(), v.s.DB, v.principal, id)
}

func toolRows(list []tools.Spec) []toolRow {
	var out []toolRow
	for _, s := range list {
		row := toolRow{Name: s.Name, Kind: s.Type, Approval: "some of its tools need approval"}
		if s.Type == tools.MCP {
			row.Name = s.ServerLabel
		}
		switch rule, _ := s.Approval.MarshalJSON(); string(rule) { // words and names: cannot fail
		case `"always"`:
			row.Approval = "needs approval"
		case `"never"`:
			row.Approval = "no approval"
		}
		out = append(out, row)
	}
	return out
}

// answerOf is what the model said last, indented if it is JSON.
func answerOf(r *agents.Run, whole bool) clipped {
	text := r.Answer
	if r.Result != nil {
		text = r.Result.OutputText
	}
	if r.Result != nil && r.Result.Output != nil {
		text = showJSON(strings.TrimSpace(text))
	}
	if whole {
		return clipped{Text: text}
	}
	return clip(text, answerText)
}

// runOpening reads what the run was asked.
func (v *visit) runOpening(d *runData, whole bool) error {
	list, err := v.s.Agents.Input(v.ctx(), v.s.DB, d.Run.ID, openingMessages)
	for _, said := range list {
		row := openingRow{said, clip(said.Text, openingText)}
		if whole {
			row.Words = clipped{Text: said.Text}
		}
		d.Opening = append(d.Opening, row)
	}
	return err
}

// runAsks reads what the run waits for.
func (v *visit) runAsks(d *runData) error {
	if !d.Run.NeedsAction() {
		return nil
	}
	calls, err := v.s.Agents.Calls(v.ctx(), v.s.DB, d.Run.ID, d.Run.StepsUsed, d.Run.StepsUsed)
	if err != nil {
		return err
	}
	for _, a := range agents.Object(d.Run, calls).RequiredActions {
		row := ask{RequiredAction: a, Until: time.Unix(a.ExpiresAt, 0), Refused: v.problem != nil && v.r.PathValue("approval") == a.ID}
		for _, c := range calls {
			if c.ID == a.CallID {
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

// runSteps reads the steps that the address asks for: the last ones, those
// before a number, or one of them whole.
func (v *visit) runSteps(d *runData) error {
	first, last := max(1, d.Run.StepsUsed-stepsPerPage+1), d.Run.StepsUsed
	clips := &clipper{room: textRoom}
	if n, ok := v.stepNumber("before"); ok {
		last = min(n-1, d.Run.StepsUsed)
		first = max(1, last-stepsPerPage+1)
	}
	if n, ok := v.stepNumber("step"); ok {
		first, last, clips.whole, d.One = n, n, true, true
	}
	steps, _, err := v.s.Agents.Steps(v.ctx(), v.s.DB, d.Run.ID, first-1, int(max(0, last-first+1)))
	if err != nil {
		return err
	}
	if d.One && (len(steps) == 0 || steps[0].Number != first) {
		return fault.New(fault.NotFound, "the run has no such step")
	}
	calls, err := v.s.Agents.Calls(v.ctx(), v.s.DB, d.Run.ID, first, last)
	if err != nil {
		return err
	}
	names, err := v.deciders(calls...)
	if err != nil {
		return err
	}
	for _, p := range steps {
		row := stepRow{Step: p, Words: clips.clip(p.Text, stepText)}
		for _, c := range calls {
			if c.Step != p.Number {
				continue
			}
			if len(row.Calls) == callsPerStep && !clips.whole {
				row.More++
				continue
			}
			row.Calls = append(row.Calls, callRow{Call: c, Given: clips.clip(exactly(showJSON(c.Arguments)), stepText), Got: clips.clip(c.Output, stepText),
				Why: clips.clip(c.Reason, stepText), Decider: decider{names[c.DecidedBy], c.DecidedBy}})
		}
		d.Steps = append(d.Steps, row)
	}
	if d.One {
		return nil
	}
	here := v.to("runs/" + d.Run.ID)
	if first > 1 {
		d.Earlier = here + "?before=" + strconv.FormatInt(first, 10) + "#steps"
	}
	if last < d.Run.StepsUsed {
		d.Later = here + "?before=" + strconv.FormatInt(last+stepsPerPage+1, 10) + "#steps"
	}
	return nil
}

// stepNumber is one that the address names.
func (v *visit) stepNumber(name string) (int64, bool) {
	n, err := strconv.ParseInt(v.query(name), 10, 32)
	return n, err == nil && n > 0
}

// deciders are the names of the people who decided about calls.
func (v *visit) deciders(calls ...*agents.Call) (map[string]string, error) {
	actors := make([]string, len(calls))
	for i, c := range calls {
		actors[i] = c.DecidedBy
	}
	return v.peopleNames(actors...)
}

// decided says in the past what a decision was.
var decided = map[string]string{agents.Approve: "approved", agents.Deny: "denied"}

// decideRun approves or denies a call. The decision is about the arguments that
// the person saw, and about no others.
func decideRun(v *visit) (*view, error) {
	id, err := v.pathID(ids.Run, "agent run")
	if err != nil {
		return nil, err
	}
	approval := v.r.PathValue("approval")
	if !ids.Valid(ids.Approval, approval) {
		return nil, fault.NoSuch("approval", keyring.Mask(approval[:min(len(approval), 64)]))
	}
	d := agents.Decision{Decision: v.form("decision"), Reason: v.form("reason"), Hash: v.form("arguments_hash")}
	if d.Hash == "" {
		return nil, fault.Missing("arguments_hash", "the form does not say which arguments you saw; load the page again")
	}
	var calls []*agents.Call
	err = v.write(func(tx *db.Tx) (err error) {
		_, calls, err = v.s.Agents.Decide(v.ctx(), tx, agents.DecideParams{Principal: v.principal, Actor: v.actor(), RunID: id, ApprovalID: approval, Decision: d})
		return err
	})
	if fault.Is(err, fault.InvalidState) {
		return nil, v.tooLate(id, approval, err)
	}
	if err != nil {
		return nil, err
	}
	notice := "You " + decided[d.Decision] + " the call."
	switch c := approvalIn(calls, approval); {
	case c == nil:
	case c.DecidedBy != v.session.UserID: // somebody else said the same first
		notice = "It was " + decided[d.Decision] + " already; your decision changed nothing."
	default:
		notice = "You " + decided[d.Decision] + " the call of " + c.Tool + "."
	}
	v.redirect(v.to("runs/"+id), flash{Notice: notice})
	return nil, nil
}

// tooLate says who was faster, if somebody was.
func (v *visit) tooLate(runID, approval string, err error) error {
	r, readErr := v.s.Agents.Get(v.ctx(), v.s.DB, v.principal, runID)
	if readErr != nil {
		return readErr
	}
	calls, readErr := v.s.Agents.Calls(v.ctx(), v.s.DB, runID, 1, r.StepsUsed)
	if readErr != nil {
		return readErr
	}
	c := approvalIn(calls, approval)
	if c == nil || c.Decision == "" {
		return err
	}
	if c.DecidedBy == v.session.UserID {
		return fault.New(fault.InvalidState, "your decision was not taken: you had %s this call already", decided[c.Decision])
	}
	names, readErr := v.deciders(c)
	if readErr != nil {
		return readErr
	}
	by := names[c.DecidedBy]
	if by == "" {
		by = c.DecidedBy
	}
	return fault.New(fault.InvalidState, "your decision was not taken: %s had %s this call before you", by, decided[c.Decision])
}

func approvalIn(calls []*agents.Call, approval string) *agents.Call {
	i := slices.IndexFunc(calls, func(c *agents.Call) bool { return c.ApprovalID == approval })
	if i < 0 {
		return nil
	}
	return calls[i]
}

// cancelRun stops a run.
func cancelRun(v *visit) (*view, error) {
	id, err := v.pathID(ids.Run, "agent run")
	if err != nil {
		return nil, err
	}
	notice := "The run is cancelled."
	err = v.write(func(tx *db.Tx) error {
		r, _, err := v.s.Agents.Cancel(v.ctx(), tx, v.principal, id)
		if err != nil {
			return err
		}
		if r.Status == agents.Cancelling {
			notice = "The run is being cancelled: what is under way comes to its end."
		}
		return audit.LogAction(v.ctx(), tx, v.actor(), audit.Action{WorkspaceID: v.workspace.ID, Environment: string(v.env), Project: r.Project,
			Action: "agent.run.cancelled", Target: id}, nil, v.now())
	})
	if err != nil {
		return nil, err
	}
	v.redirect(v.to("runs/"+id), flash{Notice: notice})
	return nil, nil
}
