package api

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/agents"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
)

func createRun(c *Call) error {
	var in agents.Request
	body, err := c.readOrder(&in)
	if err != nil {
		return err
	}
	if err := c.s.Gateway.CheckRateLimit(c.modelCall(nil)); err != nil {
		return err
	}
	order, err := c.s.Agents.Draft(agents.Caller{Principal: c.Principal, Project: c.Project, RequestID: c.id, IP: c.ip.String()}, in)
	if err != nil {
		return err
	}
	create := func(tx *db.Tx) (any, error) {
		if err := c.createProjectIn(tx); err != nil {
			return nil, err
		}
		if err := c.s.Agents.Create(c.Context(), tx, order); err != nil {
			return nil, err
		}
		return agents.Object(order.Run, nil), nil
	}
	if !in.Stream {
		return c.perform(body, action{do: create})
	}
	if c.r.Header.Get("Idempotency-Key") != "" {
		return fault.Param(fault.InvalidParameter, "Idempotency-Key", "a streamed run cannot be asked for twice; leave stream out, and read its events")
	}
	leave, err := c.s.Agents.AcquireWatcher(c.Principal) // before there is a run that nobody watches
	if err != nil {
		return err
	}
	defer leave()
	if err := c.s.DB.Write(c.Context(), func(tx *db.Tx) error {
		_, err := create(tx)
		return err
	}); err != nil {
		return err
	}
	return c.streamRun(order.Run, 0)
}

func listRuns(c *Call) (any, error) {
	q := c.query(append(pageParams, "status")...)
	page := q.page(ids.Run)
	status := agents.Status(q.text("status"))
	if status != "" && !slices.Contains(agents.Statuses, status) {
		q.fail(fault.Invalid("status", "status must be queued, in_progress, awaiting_approval, requires_action, verifying, cancelling, completed, failed or cancelled"))
	}
	if q.err != nil {
		return nil, q.err
	}
	portion := c.portion()
	found, err := c.s.Agents.List(c.Context(), portion, c.Principal, status, page)
	if err != nil {
		return nil, err
	}
	cutPage(portion, found, func(r *agents.Run) string { return r.ID })
	data, room := []events.AgentRun{}, c.portion()
	for i, r := range found.Rows {
		object, err := c.runObject(c.s.DB, r)
		if err != nil {
			return nil, err
		}
		data = append(data, object)
		// What a run waits for is not in its row.
		for _, a := range object.RequiredActions {
			room.take(a.Arguments)
		}
		if room.left <= 0 && i+1 < len(found.Rows) {
			found.More, found.Cursor = true, r.ID
			break
		}
	}
	l := newList(data, func(r events.AgentRun) string { return r.ID }, found.More)
	l.goOnFrom(found.Cursor)
	return l, nil
}

func (c *Call) runObject(q db.Querier, r *agents.Run) (events.AgentRun, error) {
	if !r.NeedsAction() {
		return agents.Object(r, nil), nil
	}
	calls, err := c.s.Agents.Calls(c.Context(), q, r.ID, r.StepsUsed, r.StepsUsed)
	return agents.Object(r, calls), err
}

// run is the one that the path names.
func (c *Call) run() (*agents.Run, error) {
	id, err := c.pathID(ids.Run, "agent run")
	if err != nil {
		return nil, err
	}
	return c.s.Agents.Get(c.Context(), c.s.DB, c.Principal, id)
}

func getRun(c *Call) (any, error) {
	r, err := c.run()
	if err != nil {
		return nil, err
	}
	return c.runObject(c.s.DB, r)
}

// stepObject is a step as the interface shows it, with the tools that it called.
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
}

func newToolCallObject(k *agents.Call) *toolCallObject {
	o := &toolCallObject{ID: k.ID, Tool: k.Tool, Type: string(k.Kind), Arguments: k.Arguments, Hash: k.Hash, Status: string(k.Status), Output: orNil(k.Output),
		IsError: k.IsError, Simulated: k.Simulated, StartedAt: unix(k.StartedAt), FinishedAt: unix(k.FinishedAt)}
	if k.ApprovalID != "" {
		o.Approval = &approvalObject{ID: k.ApprovalID, Decision: orNil(k.Decision), DecidedBy: orNil(k.DecidedBy), DecidedAt: unix(k.DecidedAt),
			Reason: orNil(k.Reason), Note: orNil(k.Note), ExpiresAt: unix(k.ExpiresAt)}
	}
	return o
}

// listSteps lists a run's steps, the first one first.
func listSteps(c *Call) (any, error) {
	q := c.query("limit", "after")
	page := q.page(ids.Step)
	if q.err != nil {
		return nil, q.err
	}
	r, err := c.run()
	if err != nil {
		return nil, err
	}
	after := int64(0)
	if page.After != "" {
		if after, err = c.s.Agents.StepNumber(c.Context(), c.s.DB, r.ID, page.After); err != nil {
			return nil, fault.Invalid("after", "after must be the id of one of the run's steps").Because(err)
		}
	}
	data, more, err := c.stepObjects(r, after, page.Limit)
	if err != nil {
		return nil, err
	}
	return newList(data, func(p *stepObject) string { return p.ID }, more), nil
}

// stepObjects are a run's steps after one, each with its calls, as far as a page
// has room.
func (c *Call) stepObjects(r *agents.Run, after int64, limit int) (data []*stepObject, more bool, err error) {
	portion, room := c.portion(), c.portion()
	steps, more, err := c.s.Agents.Steps(c.Context(), portion, r.ID, after, limit)
	if err != nil {
		return nil, false, err
	}
	more = more || portion.cut
	data = []*stepObject{}
	for i, p := range steps {
		// Step by step, since a step is shown with all of its calls.
		calls, err := c.s.Agents.Calls(c.Context(), c.s.DB, r.ID, p.Number, p.Number)
		if err != nil {
			return nil, false, err
		}
		data = append(data, newStepObject(p, calls))
		room.take(p.Text)
		for _, k := range calls {
			room.take(k.Arguments, k.Output)
		}
		if room.left <= 0 && i+1 < len(steps) {
			return data, true, nil
		}
	}
	return data, more, nil
}

func newStepObject(p *agents.Step, calls []*agents.Call) *stepObject {
	o := &stepObject{ID: p.ID, Object: "agent.step", RunID: p.RunID, Number: p.Number, Status: p.Status, Model: orNil(p.Model), Provider: orNil(p.Provider),
		Text: orNil(p.Text), ToolCalls: []*toolCallObject{}, Usage: events.AgentUsage{InputTokens: p.InputTokens, OutputTokens: p.OutputTokens, Credits: p.Credits},
		RequestID: orNil(p.RequestID), Error: p.Error, CreatedAt: p.CreatedAt.Unix(), CompletedAt: unix(p.CompletedAt)}
	for _, k := range calls {
		o.ToolCalls = append(o.ToolCalls, newToolCallObject(k))
	}
	return o
}

func cancelRun(c *Call, tx *db.Tx, _ struct{}) (any, error) {
	id, err := c.pathID(ids.Run, "agent run")
	if err != nil {
		return nil, err
	}
	r, calls, err := c.s.Agents.Cancel(c.Context(), tx, c.Principal, id)
	if err != nil {
		return nil, err
	}
	return agents.Object(r, calls), nil
}

type toolOutputsRequest struct {
	ToolOutputs []agents.ToolOutput `json:"tool_outputs"`
}

func sendToolOutputs(c *Call, tx *db.Tx, in toolOutputsRequest) (any, error) {
	id, err := c.pathID(ids.Run, "agent run")
	if err != nil {
		return nil, err
	}
	r, calls, err := c.s.Agents.SubmitOutputs(c.Context(), tx, c.Principal, id, in.ToolOutputs)
	if err != nil {
		return nil, err
	}
	return agents.Object(r, calls), nil
}

func decideApproval(c *Call, tx *db.Tx, in agents.Decision) (any, error) {
	id, err := c.pathID(ids.Run, "agent run")
	if err != nil {
		return nil, err
	}
	approval := c.r.PathValue("approval")
	if !ids.Valid(ids.Approval, approval) {
		return nil, fault.NoSuch("approval", masked(approval, 64))
	}
	r, calls, err := c.s.Agents.Decide(c.Context(), tx, agents.DecideParams{Principal: c.Principal, Actor: c.Actor(), RunID: id, ApprovalID: approval, Decision: in})
	if err != nil {
		return nil, err
	}
	return agents.Object(r, calls), nil
}

// runEvent is a line of a run's log.
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

const (
	// watchBatch is how many lines are read at once.
	watchBatch = 100
	// watchPoll is how often a log is looked into for what another node wrote,
	// and watchBeat how often a silent stream says that it is there.
	watchPoll = 500 * time.Millisecond
	watchBeat = 15 * time.Second
	// watchStill is how long a revoked key goes on watching.
	watchStill = time.Second
)

// getRunEvents lists a run's log, or streams it as it grows.
func getRunEvents(c *Call) error {
	q := c.query("stream", "starting_after", "limit")
	after := q.number("starting_after", 0, 1<<53, 0)
	limit := q.number("limit", 1, watchBatch, watchBatch)
	stream := q.boolean("stream")
	if last := c.r.Header.Get("Last-Event-ID"); last != "" && q.err == nil {
		n, err := strconv.ParseInt(last, 10, 64)
		if err != nil || n < 0 {
			q.fail(fault.Invalid("Last-Event-ID", "Last-Event-ID must be the id of an event of this run"))
		}
		after = n
	}
	if q.err != nil {
		return q.err
	}
	r, err := c.run()
	if err != nil {
		return err
	}
	if stream {
		leave, err := c.s.Agents.AcquireWatcher(c.Principal)
		if err != nil {
			return err
		}
		defer leave()
		return c.streamRun(r, after)
	}
	portion := c.portion()
	list, err := c.s.Agents.Entries(c.Context(), portion, r.ID, after, int(limit)+1)
	if err != nil {
		return err
	}
	list, more := db.Cut(db.Page{Limit: int(limit)}, list)
	more = more || portion.cut
	data := make([]runEvent, len(list))
	for i, e := range list {
		data[i] = newRunEvent(r.ID, e)
	}
	return c.sendJSON(newList(data, func(e runEvent) string { return strconv.FormatInt(e.Seq, 10) }, more))
}

// streamRun sends a run's log as it grows, until the run has ended.
func (c *Call) streamRun(r *agents.Run, after int64) error {
	grown, end := c.s.Agents.Watch(r.ID)
	defer end()
	poll, beat := time.NewTicker(watchPoll), time.NewTicker(watchBeat)
	defer poll.Stop()
	defer beat.Stop()
	out := &eventWriter{c: c}
	asked := time.Now()
	for out.err == nil {
		// A run may take days, and a key that was revoked sees nothing more of it.
		if time.Since(asked) >= watchStill {
			if err := c.reenter(); err != nil {
				return c.streamFailed(out, err)
			}
			asked = time.Now()
		}
		// Asked first: what ended it is in the log by then.
		now, err := c.s.Agents.Get(c.Context(), c.s.DB, c.Principal, r.ID)
		if err != nil {
			return c.streamFailed(out, err)
		}
		after, err = c.sendEntries(out, r.ID, after)
		if err != nil {
			return c.streamFailed(out, err)
		}
		if now.Status.Ended() {
			out.event([]byte("[DONE]"))
			break
		}
		if !c.wrote {
			out.comment() // who has seen all that is there wants to know that they are connected
		}
		select {
		case <-grown:
		case <-poll.C:
		case <-beat.C:
			out.comment()
		case <-c.s.watching.Done():
			return c.streamFailed(out, fault.New(fault.Overloaded, "the server is stopping; connect again, and go on after the last event"))
		case <-c.Context().Done():
			out.err = errLeft
		}
	}
	if !c.wrote {
		return out.err
	}
	c.settle(http.StatusOK, "")
	return nil
}

func (c *Call) sendEntries(out *eventWriter, runID string, after int64) (int64, error) {
	for out.err == nil {
		portion := c.portion()
		list, err := c.s.Agents.Entries(c.Context(), portion, runID, after, watchBatch)
		if err != nil {
			return after, err
		}
		for _, e := range list {
			data, err := json.Marshal(newRunEvent(runID, e))
			if err != nil {
				return after, err
			}
			out.numbered(e.Seq, e.Type, data)
			after = e.Seq
		}
		if len(list) < watchBatch && !portion.cut {
			break
		}
	}
	return after, nil
}

// streamFailed ends a stream that cannot go on.
func (c *Call) streamFailed(out *eventWriter, err error) error {
	if !c.wrote || context.Cause(c.Context()) != nil {
		return err
	}
	f := c.faultOf(err)
	out.named("error", c.errorJSON(f))
	c.settle(http.StatusOK, string(f.Code))
	return nil
}
