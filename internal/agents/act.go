package agents

import (
	"context"
	"errors"
	"sync"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/agents/toolservers"
	"turnpike/internal/fault"
	"turnpike/internal/limits"
)

// parallelCalls is how many tools of a step are executed concurrently.
const parallelCalls = 8

// unknownOutcome is the note of an approval to repeat a call.
const unknownOutcome = "The server stopped during this call, and it is unknown whether the call was carried out. Approve to make it again."

// act executes the calls that are ready. The checkpoint before it marks them as
// started. A call that is already started was interrupted by a crash: it is
// repeated if its tool is idempotent, and otherwise needs an approval.
func (s *Service) act(ctx context.Context, r *Run, calls []*Call) (*outcome, error) {
	x := execution{run: r}
	var err error
	if x.mode, err = s.toolMode(ctx, r); err != nil {
		return nil, err
	}
	if x.mode == accounts.ToolsSimulated {
		x.result, err = s.simulatedResult(ctx, r)
	} else {
		x.secrets, err = s.secrets(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	now := s.Now()
	o := newOutcome(r)
	o.calls = calls
	if wait, err := s.recoverCharges(ctx, o, calls); err != nil || wait {
		return o, err
	}
	var executable []*Call
	for _, c := range calls {
		t, found := toolOf(r, c.Tool)
		switch {
		case c.Status == callReady, c.Status == callStarted && found && t.Idempotent:
			executable = append(executable, c)
		case c.Status == callStarted:
			c.requestApproval(r, unknownOutcome, now)
		}
	}
	if err := o.transition(InProgress, now); err != nil {
		return nil, err
	}
	admitted, refused, err := s.admit(r, x.mode, executable)
	if err != nil {
		return nil, err
	}
	defer releaseAll(admitted)
	if len(admitted) == 0 {
		return o, s.proceedLater(ctx, o, refused, now)
	}
	o.run.ToolCalls += int64(len(admitted))
	assignCharges(o.run, admitted)
	for _, c := range admitted {
		c.Status, c.StartedAt = callStarted, &now
		o.logEvent("tool_call.started", map[string]any{"call_id": c.ID, "tool": c.Tool})
	}
	if err := s.checkpoint(ctx, o); err != nil {
		return nil, err
	}
	x.run = o.run
	s.execute(ctx, x, admitted)
	after := newOutcome(o.run)
	after.calls = calls
	for _, c := range admitted {
		if c.finished() {
			after.run.Credits += c.finishCharge()
			after.logCallCompleted(c.Call)
		}
	}
	return after, after.proceed(s.Now())
}

// proceedLater is proceed for a run whose calls the request limits may have
// refused.
func (s *Service) proceedLater(ctx context.Context, o *outcome, refused *limits.Refusal, now time.Time) error {
	if err := o.proceed(now); err != nil || refused == nil || o.run.Status != InProgress {
		return err
	}
	step, err := getStep(ctx, s.DB, o.run.ID, o.run.StepsUsed)
	if err != nil {
		return err
	}
	o.waitingSince = now
	if step != nil && step.CompletedAt != nil {
		o.waitingSince = *step.CompletedAt
	}
	o.postpone(refused, now)
	return nil
}

// execution is what the calls of a step have in common.
type execution struct {
	run     *Run
	mode    accounts.ToolMode
	secrets tools.Secrets
	result  *string // of simulated calls, if the conversation sets one
}

func (s *Service) execute(ctx context.Context, x execution, list []*admittedCall) {
	slots := make(chan struct{}, parallelCalls)
	var all sync.WaitGroup
	for _, c := range list {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			s.callTool(ctx, x, c)
		})
	}
	all.Wait()
}

// callTool executes one call. The model reads the error of a failed call.
func (s *Service) callTool(ctx context.Context, x execution, c *admittedCall) {
	r := x.run
	t, found := toolOf(r, c.Tool)
	if !found || t.Spec < 0 || t.Spec >= len(r.Specs) {
		c.finish("The tool no longer exists.", true, s.Now())
		return
	}
	if problem := r.servers.problem(t); problem != "" {
		c.finish(problem, true, s.Now())
		return
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		c.Status, c.StartedAt, c.RequestID = callReady, nil, "" // the server stops before the call began
		return
	}
	call := func() (tools.Output, error) {
		if x.mode == accounts.ToolsSimulated {
			c.Simulated = true
			return tools.Simulate(c.Tool, c.effectiveArguments(), x.result)
		}
		return s.runTool(ctx, x, c, t)
	}
	var out tools.Output
	var err error
	if c.price > 0 {
		out, err = s.charged(ctx, x, c, call)
	} else {
		out, err = call()
	}
	if err == nil {
		c.finish(out.Text, out.IsError, s.Now())
		return
	}
	if errors.Is(ctx.Err(), context.Canceled) || errors.Is(err, errUnlogged) {
		return // the server stops, the run was canceled, or the charge isn't in the log: the outcome is unknown
	}
	if f, ok := fault.As(err); ok {
		c.finish("The call was not made: "+f.Message, true, s.Now())
		return
	}
	text := "The call failed: " + err.Error()
	var f *tools.Failure
	if errors.As(err, &f) && f.Unknown {
		text += ". It is not known whether it was carried out."
	}
	c.finish(text, true, s.Now())
}

// runTool executes a tool once. A tool of a registered server gets the server's current headers.
func (s *Service) runTool(ctx context.Context, x execution, c *admittedCall, t tools.Tool) (tools.Output, error) {
	r := x.run
	run := func(secrets tools.Secrets) (tools.Output, error) {
		return s.tools.Counted(c.requests).Run(ctx, tools.Invocation{Tool: t, Spec: r.Specs[t.Spec], Secrets: secrets, Arguments: []byte(c.effectiveArguments()),
			IdempotencyKey: r.ID + ":" + c.ID})
	}
	server, registered := r.servers[t.Spec]
	if !registered {
		return run(x.secrets)
	}
	return toolservers.WithToken(ctx, s.Servers, server.Server, func(headers map[string]string) (tools.Output, error) {
		return run(tools.Secrets{server.label: headers})
	})
}
