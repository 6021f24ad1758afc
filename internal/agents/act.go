package agents

import (
	"context"
	"errors"
	"sync"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/limits"
)

// parallelCalls is how many tools of a step are executed at once.
const parallelCalls = 8

// act executes the calls that are ready. That they are started is written down
// first: one that is found started was begun by a node that died, and nobody
// knows what came of it. It is repeated only if that does no harm, and else a
// person is asked.
func (s *Service) act(ctx context.Context, r *Run, calls []*Call) (*outcome, error) {
	x := execution{run: r}
	var err error
	if x.secrets, err = s.secrets(r); err != nil {
		return nil, err
	}
	if x.mode, err = s.toolMode(ctx, r); err != nil {
		return nil, err
	}
	if x.mode == accounts.ToolsSimulated {
		if x.result, err = s.simulatedResult(ctx, r); err != nil {
			return nil, err
		}
	}
	now := s.now()
	o := begin(r)
	o.calls = calls
	var wanted []*Call
	for _, c := range calls {
		t, found := toolOf(r, c.Tool)
		switch {
		case c.Status == callReady:
			wanted = append(wanted, c)
		case c.Status == callStarted && found && t.Idempotent:
			wanted = append(wanted, c)
		case c.Status == callStarted:
			s.askFor(r, c, "the server stopped while this call was under way, and it is not known whether it was carried out; approve to make it again", now)
		}
	}
	if err := o.move(InProgress); err != nil {
		return nil, err
	}
	list, refused, err := s.admit(r, x.mode, wanted)
	if err != nil {
		return nil, err
	}
	defer releaseAll(list)
	if len(list) == 0 {
		return o, s.proceedLater(ctx, o, refused, now)
	}
	o.run.ToolCalls += int64(len(list))
	for _, c := range list {
		c.Status, c.StartedAt = callStarted, &now
		o.say("tool_call.started", map[string]any{"call_id": c.ID, "tool": c.Tool})
	}
	if err := s.checkpoint(ctx, o); err != nil {
		return nil, err
	}
	s.execute(ctx, x, list)
	after := begin(o.run)
	after.calls = calls
	for _, c := range list {
		if !c.over() {
			continue
		}
		after.sayDone(c.Call)
	}
	return after, s.proceed(after, s.now())
}

// proceedLater is proceed for a run whose calls the request limits may have
// refused.
func (s *Service) proceedLater(ctx context.Context, o *outcome, refused *limits.Refusal, now time.Time) error {
	if err := s.proceed(o, now); err != nil || refused == nil || o.run.Status != InProgress {
		return err
	}
	if err := s.waitingSince(ctx, o); err != nil {
		return err
	}
	o.putOff(refused, now)
	return nil
}

// execution is what the calls of a step have in common.
type execution struct {
	run     *Run
	mode    accounts.ToolMode
	secrets tools.Secrets
	result  *string // of simulated calls, if the conversation sets one
}

// execute calls the tools, some at once.
func (s *Service) execute(ctx context.Context, x execution, list []admittedCall) {
	places := make(chan struct{}, parallelCalls)
	var all sync.WaitGroup
	for _, c := range list {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			s.call(ctx, x, c)
		})
	}
	all.Wait()
}

// call executes one. What fails is told to the model, which may know better.
func (s *Service) call(ctx context.Context, x execution, c admittedCall) {
	r := x.run
	t, found := toolOf(r, c.Tool)
	if !found || t.Spec < 0 || t.Spec >= len(r.Specs) {
		c.finish("The tool is not there any more.", true, s.now())
		return
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		c.Status, c.StartedAt = callReady, nil // the server stops, and has not begun
		return
	}
	var out tools.Output
	var err error
	if x.mode == accounts.ToolsSimulated {
		c.Simulated = true
		out, err = tools.Simulate(c.Tool, c.Arguments, x.result)
	} else {
		out, err = s.tools.Counted(c.requests).Run(ctx, t, r.Specs[t.Spec], x.secrets, []byte(c.Arguments), r.ID+":"+c.ID)
	}
	if err == nil {
		c.finish(out.Text, out.IsError, s.now())
		return
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the server stops, or somebody cancelled the run: nobody knows what came of it
	}
	text := "The call failed: " + err.Error()
	var f *tools.Failure
	if errors.As(err, &f) && f.Unknown {
		text += ". It is not known whether it was carried out."
	}
	c.finish(text, true, s.now())
}
