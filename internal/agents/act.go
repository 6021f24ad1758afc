package agents

import (
	"context"
	"errors"
	"sync"

	"turnpike/internal/agents/tools"
)

// parallelCalls is how many tools of a step are executed at once.
const parallelCalls = 8

// act executes the calls that are ready. That they are started is written down
// first: one that is found started was begun by a node that died, and nobody
// knows what came of it. It is repeated only if that does no harm, and else a
// person is asked.
func (s *Service) act(ctx context.Context, r *Run, calls []*Call) (*outcome, error) {
	secrets, err := s.secrets(r)
	if err != nil {
		return nil, err
	}
	now := s.now()
	o := begin(r)
	o.calls = calls
	var list []*Call
	for _, c := range calls {
		t, found := toolOf(r, c.Tool)
		switch {
		case c.Status == callReady:
			list = append(list, c)
		case c.Status == callStarted && found && t.Idempotent:
			list = append(list, c)
		case c.Status == callStarted:
			s.askFor(r, c, "the server stopped while this call was under way, and it is not known whether it was carried out; approve to make it again", now)
		}
	}
	if err := o.move(InProgress); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return o, s.proceed(o, now)
	}
	for _, c := range list {
		c.Status, c.StartedAt = callStarted, &now
		o.say("tool_call.started", map[string]any{"call_id": c.ID, "tool": c.Tool})
	}
	if err := s.checkpoint(ctx, o); err != nil {
		return nil, err
	}
	s.execute(ctx, o.run, list, secrets)
	after := begin(o.run)
	after.calls = calls
	for _, c := range list {
		if !c.over() {
			continue
		}
		after.sayDone(c)
	}
	return after, s.proceed(after, s.now())
}

// execute calls the tools, some at once.
func (s *Service) execute(ctx context.Context, r *Run, list []*Call, secrets tools.Secrets) {
	places := make(chan struct{}, parallelCalls)
	var all sync.WaitGroup
	for _, c := range list {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			s.call(ctx, r, c, secrets)
		})
	}
	all.Wait()
}

// call executes one. What fails is told to the model, which may know better.
func (s *Service) call(ctx context.Context, r *Run, c *Call, secrets tools.Secrets) {
	t, found := toolOf(r, c.Tool)
	if !found || t.Spec < 0 || t.Spec >= len(r.Specs) {
		c.finish("The tool is not there any more.", true, s.now())
		return
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		c.Status, c.StartedAt = callReady, nil // the server stops, and has not begun
		return
	}
	out, err := s.tools.Run(ctx, t, r.Specs[t.Spec], secrets, []byte(c.Arguments), r.ID+":"+c.ID)
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
