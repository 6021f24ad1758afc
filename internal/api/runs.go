package api

import (
	"context"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/agents"
	"turnpike/internal/agents/tools"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/web"
)

func createRun(c *Call) error {
	var in agents.Request
	body, err := c.readModelRequest(&in)
	if err != nil {
		return err
	}
	if err := c.s.Gateway.CheckRateLimit(c.Context(), c.modelCall(nil)); err != nil {
		return err
	}
	order, err := c.s.Agents.Draft(c.Context(), agents.Caller{Principal: c.Principal, Project: c.Project, RequestID: c.ID, IP: c.IP.String(), Record: c.record}, in)
	if err != nil {
		return err
	}
	create := func(ctx context.Context, tx *db.Tx) (any, error) {
		if err := c.createProjectIn(ctx, tx); err != nil {
			return nil, err
		}
		if err := c.s.Agents.Create(ctx, tx, order); err != nil {
			return nil, err
		}
		return agents.Object(order.Run, nil), nil
	}
	if !in.Stream {
		return c.perform(body, action{do: create})
	}
	if c.R.Header.Get("Idempotency-Key") != "" {
		return fault.Param(fault.InvalidParameter, "Idempotency-Key", "Streamed runs do not support Idempotency-Key. Omit stream, then read the run's events.")
	}
	stopWatching, err := c.s.Agents.AcquireWatcher(c.Principal) // reserve the stream before the run is created
	if err != nil {
		return err
	}
	defer stopWatching()
	if err := c.s.DB.Write(c.Context(), func(tx *db.Tx) error {
		_, err := create(c.Context(), tx)
		return err
	}); err != nil {
		return err
	}
	return c.streamRun(order.Run, 0)
}

func listRuns(ctx context.Context, c *Call) (any, error) {
	q := c.query(append(pageParams, "status")...)
	page := q.page(ids.Run)
	status := choice(q, "status", agents.Statuses)
	if q.err != nil {
		return nil, q.err
	}
	budget := c.pageBudget()
	found, err := c.s.Agents.List(ctx, budget, c.Principal, agents.Filter{Status: status}, page)
	if err != nil {
		return nil, err
	}
	truncatePage(budget, found, func(r *agents.Run) string { return r.ID })
	data, room := []events.AgentRun{}, c.pageBudget()
	for i, r := range found.Rows {
		object, err := c.runObject(ctx, c.s.DB, r)
		if err != nil {
			return nil, err
		}
		data = append(data, object)
		// Required actions aren't in the run's row.
		for _, a := range object.RequiredActions {
			room.spend(a.Arguments)
		}
		if room.left <= 0 && i+1 < len(found.Rows) {
			found.More, found.Cursor = true, r.ID
			break
		}
	}
	found.Rows = found.Rows[:len(data)]
	return foundList(found, data, func(r *agents.Run) string { return r.ID }), nil
}

func (c *Call) runObject(ctx context.Context, q db.Querier, r *agents.Run) (events.AgentRun, error) {
	if !r.NeedsAction() {
		return agents.Object(r, nil), nil
	}
	calls, err := c.s.Agents.Calls(ctx, q, r.ID, r.StepsUsed, r.StepsUsed)
	return agents.Object(r, calls), err
}

func (c *Call) run(ctx context.Context) (*agents.Run, error) {
	return c.s.Agents.Get(ctx, c.s.DB, c.Principal, c.id())
}

func getRun(ctx context.Context, c *Call) (any, error) {
	r, err := c.run(ctx)
	if err != nil {
		return nil, err
	}
	return c.runObject(ctx, c.s.DB, r)
}

type stepObject struct {
	ID          string             `json:"id"`
	Object      string             `json:"object"`
	RunID       string             `json:"run_id"`
	Number      int64              `json:"number"`
	Status      string             `json:"status"`
	Model       *string            `json:"model"`
	Provider    *string            `json:"provider"`
	Text        *string            `json:"text"`
	ToolCalls   []*toolCallObject  `json:"tool_calls"`
	Usage       events.AgentUsage  `json:"usage"`
	RequestID   *string            `json:"request_id"`
	Error       *events.AgentError `json:"error"`
	CreatedAt   int64              `json:"created_at"`
	CompletedAt *int64             `json:"completed_at"`
}

type toolCallObject struct {
	ID         string          `json:"id"`
	Tool       string          `json:"tool"`
	Type       string          `json:"type"`
	Arguments  string          `json:"arguments"`
	Hash       string          `json:"arguments_hash"`
	Status     string          `json:"status"`
	Approval   *approvalObject `json:"approval"`
	Output     *string         `json:"output"`
	IsError    bool            `json:"is_error"`
	Simulated  bool            `json:"simulated"`
	Credits    credits.Micro   `json:"credits"`
	StartedAt  *int64          `json:"started_at"`
	FinishedAt *int64          `json:"finished_at"`
}

type approvalObject struct {
	ID        string  `json:"id"`
	Decision  *string `json:"decision"`
	DecidedBy *string `json:"decided_by"`
	DecidedAt *int64  `json:"decided_at"`
	Reason    *string `json:"reason"`
	Note      *string `json:"note"`
	ExpiresAt *int64  `json:"expires_at"`

	EditedArguments *string  `json:"edited_arguments"`
	ApprovedBy      []string `json:"approved_by"`
}

func newToolCallObject(k *agents.Call) *toolCallObject {
	o := &toolCallObject{ID: k.ID, Tool: k.Tool, Type: string(k.Kind), Arguments: k.Arguments, Hash: k.Hash, Status: string(k.Status), Output: orNil(k.Output),
		IsError: k.IsError, Simulated: k.Simulated, Credits: k.Credits, StartedAt: unix(k.StartedAt), FinishedAt: unix(k.FinishedAt)}
	if k.ApprovalID != "" {
		o.Approval = &approvalObject{ID: k.ApprovalID, Decision: orNil(string(k.Decision)), DecidedBy: orNil(k.DecidedBy), DecidedAt: unix(k.DecidedAt),
			Reason: orNil(k.Reason), Note: orNil(k.Note), ExpiresAt: unix(k.ExpiresAt), EditedArguments: orNil(k.Edited), ApprovedBy: append([]string{}, k.ApprovedBy...)}
	}
	return o
}

func listSteps(ctx context.Context, c *Call) (any, error) {
	q := c.query("limit", "after")
	page := q.page(ids.Step)
	if q.err != nil {
		return nil, q.err
	}
	r, err := c.run(ctx)
	if err != nil {
		return nil, err
	}
	after := int64(0)
	if page.After != "" {
		if after, err = c.s.Agents.StepNumber(ctx, c.s.DB, r.ID, page.After); err != nil {
			return nil, fault.Invalid("after", "after must be the ID of one of the run's steps.").Because(err)
		}
	}
	data, more, err := c.stepObjects(ctx, r, after, page.Limit)
	if err != nil {
		return nil, err
	}
	return newList(data, func(p *stepObject) string { return p.ID }, more), nil
}

// stepObjects returns a run's steps after a number, with their tool calls, within
// the page budget.
func (c *Call) stepObjects(ctx context.Context, r *agents.Run, after int64, limit int) (data []*stepObject, more bool, err error) {
	budget, room := c.pageBudget(), c.pageBudget()
	steps, more, err := c.s.Agents.Steps(ctx, budget, r.ID, after, limit)
	if err != nil {
		return nil, false, err
	}
	more = more || budget.exceeded
	data = []*stepObject{}
	for i, p := range steps {
		calls, err := c.s.Agents.Calls(ctx, c.s.DB, r.ID, p.Number, p.Number)
		if err != nil {
			return nil, false, err
		}
		data = append(data, newStepObject(p, calls))
		room.spend(p.Text)
		for _, k := range calls {
			room.spend(k.Arguments, k.Output)
		}
		if room.left <= 0 && i+1 < len(steps) {
			return data, true, nil
		}
	}
	return data, more, nil
}

func newStepObject(p *agents.Step, calls []*agents.Call) *stepObject {
	return &stepObject{ID: p.ID, Object: "agent.step", RunID: p.RunID, Number: p.Number, Status: p.Status, Model: orNil(p.Model), Provider: orNil(p.Provider),
		Text: orNil(p.Text), ToolCalls: web.Map(calls, newToolCallObject), Usage: events.AgentUsage{InputTokens: p.InputTokens, OutputTokens: p.OutputTokens, Credits: p.Credits},
		RequestID: orNil(p.RequestID), Error: p.Error, CreatedAt: p.CreatedAt.Unix(), CompletedAt: unix(p.CompletedAt)}
}

func cancelRun(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	return showRun(c.s.Agents.Cancel(ctx, tx, c.Principal, c.id()))
}

func showRun(r *agents.Run, calls []*agents.Call, err error) (any, error) {
	return show(r, err, func(r *agents.Run) events.AgentRun { return agents.Object(r, calls) })
}

type toolOutputsRequest struct {
	ToolOutputs []agents.ToolOutput `json:"tool_outputs"`
}

func sendToolOutputs(ctx context.Context, c *Call, tx *db.Tx, in toolOutputsRequest) (any, error) {
	return showRun(c.s.Agents.SubmitOutputs(ctx, tx, c.Principal, c.id(), in.ToolOutputs))
}

func decideApproval(ctx context.Context, c *Call, tx *db.Tx, in agents.Decision) (any, error) {
	approval := c.R.PathValue("approval")
	if !ids.Valid(ids.Approval, approval) {
		return nil, fault.NoSuch("approval", web.Sanitize(approval, 64))
	}
	return showRun(c.s.Agents.Decide(ctx, tx, agents.DecideParams{Decider: tools.Decider{Principal: c.Principal, Actor: c.Actor()}, RunID: c.id(), ApprovalID: approval, Decision: in}))
}

type runEvent struct {
	Object    string         `json:"object"`
	Seq       int64          `json:"seq"`
	RunID     string         `json:"run_id"`
	Type      string         `json:"type"`
	Data      jsontext.Value `json:"data"`
	CreatedAt int64          `json:"created_at"`
}

func newRunEvent(runID string, e *agents.Entry) runEvent {
	return runEvent{Object: "agent.run.event", Seq: e.Seq, RunID: runID, Type: e.Type, Data: jsontext.Value(e.Data), CreatedAt: e.CreatedAt.Unix()}
}

func getRunEvents(c *Call) error {
	q := c.query("stream", "starting_after", "limit")
	after := q.number("starting_after", 0, 1<<53, 0)
	limit := q.number("limit", 1, watchBatch, watchBatch)
	stream := q.boolean("stream")
	if last := c.R.Header.Get("Last-Event-ID"); last != "" && q.err == nil {
		n, err := strconv.ParseInt(last, 10, 64)
		if err != nil || n < 0 {
			q.fail(fault.Invalid("Last-Event-ID", "Last-Event-ID must be the ID of an event of this run."))
		}
		after = n
	}
	if q.err != nil {
		return q.err
	}
	r, err := c.run(c.Context())
	if err != nil {
		return err
	}
	if stream {
		stopWatching, err := c.s.Agents.AcquireWatcher(c.Principal)
		if err != nil {
			return err
		}
		defer stopWatching()
		return c.streamRun(r, after)
	}
	budget := c.pageBudget()
	list, err := c.s.Agents.Entries(c.Context(), budget, r.ID, after, int(limit)+1)
	if err != nil {
		return err
	}
	list, more := db.Cut(db.Page{Limit: int(limit)}, list)
	more = more || budget.exceeded
	data := web.Map(list, func(e *agents.Entry) runEvent { return newRunEvent(r.ID, e) })
	return c.sendJSON(newList(data, func(e runEvent) string { return strconv.FormatInt(e.Seq, 10) }, more))
}

func (c *Call) streamRun(r *agents.Run, after int64) error {
	added, stop := c.s.Agents.Watch(r.ID)
	defer stop()
	out := &eventWriter{c: c}
	return c.follow(out, added, func() (ended bool, err error) {
		// Read the run first: if it has ended, its last entry is in the log.
		current, err := c.s.Agents.Get(c.Context(), c.s.DB, c.Principal, r.ID)
		if err != nil {
			return false, err
		}
		if after, err = c.sendEntries(out, r.ID, after); err != nil || !current.Status.Ended() {
			return false, err
		}
		out.end()
		return true, nil
	})
}

func (c *Call) sendEntries(out *eventWriter, runID string, after int64) (int64, error) {
	for out.err == nil {
		budget := c.pageBudget()
		list, err := c.s.Agents.Entries(c.Context(), budget, runID, after, watchBatch)
		if err != nil {
			return after, err
		}
		for _, e := range list {
			data, err := json.Marshal(newRunEvent(runID, e))
			if err != nil {
				return after, err
			}
			out.numbered(strconv.FormatInt(e.Seq, 10), e.Type, data)
			after = e.Seq
		}
		if len(list) < watchBatch && !budget.exceeded {
			break
		}
	}
	return after, nil
}
