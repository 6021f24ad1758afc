package agents

import (
	"context"
	"errors"
	"fmt"
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
	"turnpike/internal/spend"
)

// item is a run that is due.
type item struct {
	id  string
	due int64
}

// Key is the run's place in its lane.
func (i *item) Key() lanes.Key { return lanes.Key{Due: i.due, ID: i.id} }

// Fetch returns what is due in a lane.
func (s *Service) Fetch(ctx context.Context, lane string, after lanes.Key, n int) (b lanes.Batch[*item], err error) {
	now := s.now().UnixMicro()
	// The limits are in the text, of which there are a few: SQLite compiles a
	// statement anew whenever the parameter of a LIMIT is bound.
	rows, err := s.db.Query(ctx, fmt.Sprintf("SELECT id, due_at FROM agent_runs WHERE lane = $1 AND due_at <= $2 AND (due_at, id) > ($3, $4) ORDER BY due_at, id LIMIT %d", n),
		lane, now, after.Due, after.ID)
	b.Items, err = db.All(rows, err, func(r db.Row) (*item, error) {
		var i item
		err := r.Scan(&i.id, &i.due)
		return &i, err
	})
	if err != nil || len(b.Items) > 0 {
		return b, err
	}
	var next *int64
	if err := s.db.QueryRow(ctx, "SELECT min(due_at) FROM agent_runs WHERE lane = $1 AND due_at > $2", lane, now).Scan(&next); err != nil {
		return b, fmt.Errorf("read next run: %w", err)
	}
	if at := db.Time(next); at != nil {
		b.Next = *at
	}
	return b, nil
}

// errLost is a run that another node has by now.
var errLost = errors.New("agents: another node has the run")

// Work does one turn of a run and hands over what came of it.
func (s *Service) Work(ctx context.Context, _ string, i *item) lanes.Result {
	r, err := scanRun(s.db.QueryRow(ctx, "SELECT "+runColumns+" FROM agent_runs WHERE id = $1", i.id))
	switch {
	case errors.Is(err, db.ErrNotFound):
		return lanes.Result{Healthy: true, Done: true, Outcome: db.Written}
	case err != nil:
		slog.Warn("cannot read a run; it is tried again", "run", i.id, "error", err)
		lanes.Backoff(ctx)
		return lanes.Result{Outcome: db.Written}
	case r.DueAt == nil || r.DueAt.After(s.now()):
		return lanes.Result{Healthy: true, Outcome: db.Written} // it was taken care of
	}
	turn, done := s.working(ctx, r.ID)
	defer done()
	o, err := s.turn(turn, r)
	switch {
	case errors.Is(err, errLost):
		return lanes.Result{Healthy: true, Outcome: db.Written} // somebody else's, or later
	case err != nil && turn.Err() != nil:
		return lanes.Result{Healthy: true, Outcome: db.Written} // the server stops, or the run was cancelled, which the next look finds
	case err != nil:
		slog.Warn("a turn of a run failed; it is tried again", "run", r.ID, "error", err)
		lanes.Backoff(ctx)
		return lanes.Result{Outcome: db.Written}
	}
	due := o.run.DueAt // before it is handed over: the writer may change it
	return lanes.Result{Healthy: true, Done: due == nil, Due: due, Outcome: s.outcomes.Add(o)}
}

// turn does what is next in a run.
func (s *Service) turn(ctx context.Context, r *Run) (*outcome, error) {
	now := s.now()
	o := begin(r)
	switch r.Status {
	case Cancelling:
		return s.close(ctx, o, Cancelled, errCancelled)
	case AwaitingApproval:
		return o, o.end(Failed, failure("approval_expired", "nobody decided about the run's call in time"), now)
	case RequiresAction:
		return o, o.end(Failed, failure("tool_output_timeout", "the outputs of the run's tools were not sent in time"), now)
	}
	limit := time.Duration(r.Orders.TimeoutSeconds) * time.Second
	began := time.Now() // before its end is set, so that all of it is counted
	if limit > 0 && r.Worked >= limit {
		return s.close(ctx, o, Failed, failure("run_timeout", "the run has worked for the %d s that it was given", r.Orders.TimeoutSeconds))
	}
	p, why, err := s.may(ctx, r, now)
	if err != nil {
		return nil, err
	}
	if why != nil {
		return s.close(ctx, o, Failed, why)
	}
	working, stop := ctx, context.CancelFunc(func() {})
	if limit > 0 {
		// By the time of day: tests that move the clock do not wait.
		working, stop = context.WithTimeout(ctx, limit-r.Worked)
	}
	defer stop()
	o, err = s.goOn(working, r, p)
	if err != nil && !errors.Is(err, errLost) && ctx.Err() == nil && working.Err() != nil {
		o, err = s.asItIs(ctx, r.ID) // its time was over in the middle of something
	}
	if err == nil {
		o.run.Worked += time.Since(began)
	}
	return o, err
}

// asItIs has a run worked again from where it stands in the store, unless
// another node has taken it on from there.
func (s *Service) asItIs(ctx context.Context, id string) (*outcome, error) {
	r, err := scanRun(s.db.QueryRow(ctx, "SELECT "+runColumns+" FROM agent_runs WHERE id = $1", id))
	if err != nil {
		return nil, err
	}
	now := s.now()
	if r.DueAt == nil || r.DueAt.After(now) {
		return nil, errLost
	}
	o := begin(r)
	o.again(now)
	return o, nil
}

// may is whose run it is, or why it may not go on: what its key could not begin
// now, it does not go on with.
func (s *Service) may(ctx context.Context, r *Run, now time.Time) (p *access.Principal, why *events.AgentError, err error) {
	p, err = access.PrincipalOf(ctx, s.db, r.KeyID, now)
	switch {
	case err != nil:
		return nil, nil, err
	case p == nil:
		return nil, failure("key_revoked", "the key that made the run was revoked or has expired"), nil
	case !p.Grant.Allows(access.AgentRunsCreate):
		return nil, failure("key_revoked", "the key that made the run no longer has the scope %s", access.AgentRunsCreate), nil
	case r.Project == "":
		return p, nil, nil
	}
	project, err := accounts.GetProject(ctx, s.db, r.WorkspaceID, r.Environment, r.Project)
	if err == nil && project.ArchivedAt != nil {
		why = failure(string(fault.UnknownProject), "the run's project %q was archived; restore it with PATCH /v1/projects/%s, and begin another run", r.Project, r.Project)
	}
	return p, why, err
}

// goOn finds out where a run stands, and does the next thing.
func (s *Service) goOn(ctx context.Context, r *Run, p *access.Principal) (*outcome, error) {
	if !r.Resolved {
		if o, err := s.resolve(ctx, r); o != nil || err != nil {
			return o, err
		}
	}
	if r.Status == Verifying {
		return s.verify(ctx, r, p)
	}
	calls, err := callsOf(ctx, s.db, r.ID, r.StepsUsed, r.StepsUsed)
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

// close ends a run that may have been in the middle of something.
func (s *Service) close(ctx context.Context, o *outcome, to Status, why *events.AgentError) (*outcome, error) {
	dead, wait, err := s.takeOver(ctx, o)
	if err != nil || wait {
		return o, err
	}
	now := s.now()
	if dead != nil {
		dead.Status, dead.Error, dead.CompletedAt = stepFailed, why, &now
		o.step = dead
	}
	return o, o.end(to, why, now)
}

// resolve asks what the tools are that the model can call. It returns an
// outcome only when that failed or has to wait.
func (s *Service) resolve(ctx context.Context, r *Run) (*outcome, error) {
	list, err := s.listTools(ctx, r)
	var refused *limits.Refusal
	if errors.As(err, &refused) {
		o := begin(r)
		o.since = r.CreatedAt
		o.putOff(refused, s.now())
		return o, nil
	}
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, ctx.Err()
		}
		return s.retry(ctx, begin(r), "tool_error", err)
	}
	r.Tools, r.Resolved = list, true
	return nil, nil
}

// listTools returns the tools that the model can call. MCP servers are asked for
// theirs unless tools are simulated.
func (s *Service) listTools(ctx context.Context, r *Run) ([]tools.Tool, error) {
	mode, err := s.toolMode(ctx, r)
	if err != nil {
		return nil, err
	}
	if mode == accounts.ToolsSimulated {
		return tools.ResolveSimulated(r.Specs)
	}
	secrets, err := s.secrets(r)
	if err != nil {
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
	return s.tools.Counted(requests).Resolve(ctx, r.Specs, secrets)
}

// retries is how long after each failure a turn is tried again.
var retries = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute}

// retry has a turn done again later, or ends the run: what will not pass is not
// waited for, and a test that asks for a failure should see it.
func (s *Service) retry(ctx context.Context, o *outcome, code string, err error) (*outcome, error) {
	r, now := o.run, s.now()
	if ctx.Err() != nil {
		o.again(now) // its own time is over, which the next turn finds
		return o, nil
	}
	message := "something went wrong on the server's side"
	passing := true
	if f, ok := fault.As(err); ok {
		message = f.Message
		passing = fault.FamilyOf(f.Code).Status >= 500 || f.Code == fault.RateLimitExceeded
		switch f.Code {
		case fault.BudgetExceeded, fault.InsufficientCredits:
			if spend.Passing(err) { // what others have set aside may come back
				o.again(now.Add(o.patience(now)))
				return o, nil
			}
			code, message = string(f.Code), noRoom(err, f.Message)
		case fault.ContextLengthExceeded:
			code, message = string(f.Code), "the conversation has become longer than the model takes; use a model with a larger context_window (GET /v1/models), or tools that answer more briefly"
		case fault.RateLimitExceeded:
			if r.Environment == accounts.Live { // the key's own limit: it only takes longer
				o.again(now.Add(max(f.RetryAfter, time.Second)))
				return o, nil
			}
		}
	} else if code == "tool_error" {
		message = err.Error()
		var f *tools.Failure
		passing = !errors.As(err, &f) || !f.Final
	}
	slog.Debug("a turn of a run failed", "run", r.ID, "error", err)
	if passing && r.Environment == accounts.Live && int(r.Tries) < len(retries) {
		o.again(now.Add(retries[r.Tries]))
		r.Tries++
		return o, nil
	}
	return o, o.end(Failed, failure(code, "%s", message), now)
}

// A step or a judge that waits for credits, and a tool call that waits for the
// request limits, asks again after a quarter of the time that it has waited, within
// these bounds: calls take seconds, and jobs minutes.
const (
	leastPatience = time.Second
	mostPatience  = 30 * time.Second
)

// patience is when to ask again for what others have at the moment.
func (o *outcome) patience(now time.Time) time.Duration {
	return min(max(leastPatience, now.Sub(o.since)/4), mostPatience)
}

// noRoom says which budget does not pay for the next step, and what can be done
// about that for a run.
func noRoom(err error, otherwise string) string {
	var r *spend.Refusal
	if !errors.As(err, &r) || r.Level == spend.Run {
		return otherwise
	}
	what := "raise its budget"
	if r.Level == spend.Workspace {
		what = "an admin can raise them with PATCH /v1/billing"
	}
	return fmt.Sprintf("the %s has used %s of its %s credits this month, and the run's next step could cost more than is left; %s", r.Level, r.Spent, r.Limit, what)
}
