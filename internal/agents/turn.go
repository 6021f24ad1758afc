package agents

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/lanes"
	"turnpike/internal/limits"
)

// Fetch returns the runs that are due in a lane.
func (s *Service) Fetch(ctx context.Context, lane string, after lanes.Key, n int) (lanes.Batch[*lanes.Row], error) {
	return lanes.Table{DB: s.DB, Now: s.Now, Name: "agent_runs", ID: "id"}.Fetch(ctx, lane, after, n)
}

// errStale means that another node works the run, or that the next turn must
// read it again.
var errStale = errors.New("agents: the run has changed since it was read")

// Work does one turn of a run and queues its outcome.
func (s *Service) Work(ctx context.Context, _ string, i *lanes.Row) lanes.Result {
	r, err := s.loadRun(ctx, i.ID)
	switch {
	case errors.Is(err, db.ErrNotFound):
		return lanes.Result{Healthy: true, Done: true, Outcome: db.Written}
	case err != nil:
		slog.Warn("failed to read run; retrying", "run", i.ID, "error", err)
		return lanes.Retry(ctx)
	case r.DueAt == nil || r.DueAt.After(s.Now()):
		return lanes.Result{Healthy: true, Outcome: db.Written} // another node did it
	}
	turn, done := s.startWorking(ctx, r.ID)
	defer done()
	o, err := s.runTurn(turn, r)
	switch {
	case errors.Is(err, errStale), err != nil && turn.Err() != nil: // the server stops, or the run was canceled
		return lanes.Result{Healthy: true, Outcome: db.Written}
	case err != nil:
		slog.Warn("turn failed; retrying", "run", r.ID, "error", err)
		return lanes.Retry(ctx)
	}
	due := o.run.DueAt // read before the writer can change it
	return lanes.Result{Healthy: true, Done: due == nil, Due: due, Outcome: s.outcomes.Add(o)}
}

func (s *Service) loadRun(ctx context.Context, id string) (*Run, error) {
	return scanRun(s.DB.QueryRow(ctx, "SELECT "+runColumns+" FROM agent_runs WHERE id = $1", id))
}

// runTurn does one turn: it ends a run whose time is over, and advances any other.
func (s *Service) runTurn(ctx context.Context, r *Run) (*outcome, error) {
	now := s.Now()
	o := newOutcome(r)
	switch r.Status {
	case Cancelling:
		return s.endInFlight(ctx, o, Cancelled, errCancelled)
	case AwaitingApproval:
		return o, s.expireApprovals(ctx, o, now)
	case RequiresAction:
		return o, o.end(Failed, runError("tool_output_timeout", "The outputs of the tool calls were not submitted in time."), now)
	}
	limit := time.Duration(r.Config.TimeoutSeconds) * time.Second
	began := time.Now() // before the deadline is set, so that all of the turn counts
	if limit > 0 && r.Worked >= limit {
		return s.endInFlight(ctx, o, Failed, runError("run_timeout", "The run reached its timeout of %d seconds.", r.Config.TimeoutSeconds))
	}
	p, denied, err := s.authorize(ctx, r, now)
	if err != nil {
		return nil, err
	}
	if denied != nil {
		return s.endInFlight(ctx, o, Failed, denied)
	}
	working, stop := ctx, context.CancelFunc(func() {})
	if limit > 0 {
		working, stop = context.WithTimeout(ctx, limit-r.Worked)
	}
	defer stop()
	o, err = s.advance(working, r, p)
	if err != nil && !errors.Is(err, errStale) && ctx.Err() == nil && working.Err() != nil {
		o, err = s.reload(ctx, r.ID) // the run's timeout interrupted the turn
	}
	if err == nil {
		o.run.Worked += time.Since(began)
	}
	return o, err
}

// reload returns an outcome that schedules the run again from its stored state,
// unless another node has worked it since.
func (s *Service) reload(ctx context.Context, id string) (*outcome, error) {
	r, err := s.loadRun(ctx, id)
	if err != nil {
		return nil, err
	}
	now := s.Now()
	if r.DueAt == nil || r.DueAt.After(now) {
		return nil, errStale
	}
	o := newOutcome(r)
	o.schedule(now, 0)
	return o, nil
}

// authorize returns the run's principal, or why the run may no longer continue:
// its key could not create it now.
func (s *Service) authorize(ctx context.Context, r *Run, now time.Time) (p *access.Principal, denied *events.AgentError, err error) {
	p, err = access.PrincipalOf(ctx, s.DB, r.KeyID, r.Config.Token, now)
	switch {
	case err != nil:
		return nil, nil, err
	case p == nil:
		return nil, runError("key_revoked", "The key that created the run was revoked or has expired."), nil
	case r.missingScope(p) != "":
		return nil, runError("key_revoked", "The key that created the run no longer has the scope %s.", r.missingScope(p)), nil
	case r.Project == "":
		return p, nil, nil
	}
	project, err := accounts.GetProject(ctx, s.DB, r.Tenant, r.Project)
	if err == nil && project.ArchivedAt != nil {
		denied = runError(string(fault.UnknownProject), "The run's project %q was archived. Restore it with PATCH /v1/projects/%s and create another run.", r.Project, r.Project)
	}
	return p, denied, err
}

// advance does the next thing: resolve tools, verify, act or think.
func (s *Service) advance(ctx context.Context, r *Run, p *access.Principal) (*outcome, error) {
	if err := s.useServers(ctx, r, p); err != nil {
		return nil, err
	}
	if !r.Resolved {
		if o, err := s.resolveTools(ctx, r); o != nil || err != nil {
			return o, err
		}
	}
	if r.Status == Verifying {
		return s.verify(ctx, r, p)
	}
	calls, err := s.Calls(ctx, s.DB, r.ID, r.StepsUsed, r.StepsUsed)
	if err != nil {
		return nil, err
	}
	for _, c := range calls {
		if c.Status == callReady || c.Status == callStarted {
			return s.act(ctx, r, calls)
		}
	}
	return s.think(ctx, r, p, calls)
}

// endInFlight ends a run whose last turn may not have finished.
func (s *Service) endInFlight(ctx context.Context, o *outcome, to Status, reason *events.AgentError) (*outcome, error) {
	calls, err := s.Calls(ctx, s.DB, o.run.ID, o.run.StepsUsed, o.run.StepsUsed)
	if err != nil {
		return nil, err
	}
	o.calls = calls
	if wait, err := s.recoverCharges(ctx, o, calls); err != nil || wait {
		return o, err
	}
	step, wait, err := s.recoverInFlight(ctx, o)
	if err != nil || wait {
		return o, err
	}
	now := s.Now()
	if step != nil {
		step.Status, step.Error, step.CompletedAt = stepFailed, reason, &now
		o.step = step
	}
	return o, o.end(to, reason, now)
}

// resolveTools finds out which tools the model can call. It returns an outcome
// only if that failed or has to wait.
func (s *Service) resolveTools(ctx context.Context, r *Run) (*outcome, error) {
	list, err := s.listTools(ctx, r)
	var refused *limits.Refusal
	if errors.As(err, &refused) {
		o := newOutcome(r)
		o.waitingSince = r.CreatedAt
		o.postpone(refused, s.Now())
		return o, nil
	}
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, ctx.Err()
		}
		return s.retry(ctx, newOutcome(r), "tool_error", err)
	}
	r.Tools, r.Resolved = list, true
	return nil, nil
}

// listTools returns the tools that the model can call. It asks MCP servers for
// theirs unless tools are simulated.
func (s *Service) listTools(ctx context.Context, r *Run) ([]tools.Tool, error) {
	mode, err := s.toolMode(ctx, r)
	if err != nil {
		return nil, err
	}
	if mode == accounts.ToolsSimulated {
		list, err := tools.ResolveSimulated(r.Specs)
		return r.callable(list), err
	}
	secrets, err := s.secrets(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := r.servers.check(); err != nil {
		return nil, err
	}
	var servers []string
	for _, spec := range r.Specs {
		if spec.Type == tools.MCP {
			servers = append(servers, spec.Destination())
		}
	}
	requests, err := s.reserve(r, mode, servers...)
	if err != nil {
		return nil, err
	}
	defer requests.Release()
	list, err := s.tools.Counted(requests).Resolve(ctx, r.Specs, secrets)
	return r.callable(list), s.renewRejected(ctx, r, secrets, err)
}
