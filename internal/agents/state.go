package agents

import (
	"fmt"
	"slices"
	"time"

	"turnpike/internal/events"
)

// Status is the state of a run.
type Status string

// The states. The package comment shows how they follow each other.
const (
	Queued           Status = "queued"
	InProgress       Status = "in_progress"
	AwaitingApproval Status = "awaiting_approval"
	RequiresAction   Status = "requires_action"
	Verifying        Status = "verifying"
	Cancelling       Status = "cancelling"
	Completed        Status = "completed"
	Failed           Status = "failed"
	Cancelled        Status = "cancelled"
)

// Statuses lists all states.
var Statuses = []Status{Queued, InProgress, AwaitingApproval, RequiresAction, Verifying, Cancelling, Completed, Failed, Cancelled}

// transitions lists the states that can follow each state.
var transitions = map[Status][]Status{
	Queued:           {InProgress, Cancelled, Failed},
	InProgress:       {AwaitingApproval, RequiresAction, Verifying, Cancelling, Queued, Failed},
	AwaitingApproval: {Queued, RequiresAction, Failed, Cancelled},
	RequiresAction:   {Queued, Failed, Cancelled},
	Verifying:        {Completed, InProgress, Cancelling, Queued, Failed},
	Cancelling:       {Cancelled},
}

// Ended reports whether the state is final.
func (s Status) Ended() bool { return s == Completed || s == Failed || s == Cancelled }

// transition moves the run to a state and logs it. No other code changes the
// status of a run. A final state also ends the schedule and publishes an event.
func (o *outcome) transition(to Status, now time.Time) error {
	r := o.run
	if r.Status == to {
		return nil
	}
	if !slices.Contains(transitions[r.Status], to) {
		return fmt.Errorf("agents: a run cannot change from %s to %s", r.Status, to)
	}
	r.Status = to
	data := map[string]any{"status": to}
	switch {
	case to.Ended():
		r.CompletedAt, r.DueAt, o.publish = &now, nil, true
		data["error"] = r.Error
	case to == AwaitingApproval:
		o.publish = true
	case to == Cancelling:
		r.DueAt = &now
	}
	o.logEvent("run."+string(to), data)
	return nil
}

// end moves the run to a final state. err is nil if it completed.
func (o *outcome) end(to Status, err *events.AgentError, now time.Time) error {
	o.run.Error = err
	return o.transition(to, now)
}

// applyCancellation replaces the turn's own transition by cancelling, because
// the run was canceled during the turn. The turn's other results are kept. The
// log has run.cancelling already.
func (o *outcome) applyCancellation(now time.Time) error {
	r := o.run
	r.Status, r.CompletedAt, r.Error, r.Result, o.publish = o.from, nil, nil, nil, false
	err := o.transition(Cancelling, now)
	o.entries = slices.DeleteFunc(o.entries, logEntry.isTransition)
	return err
}

// maxDelay is the longest time that a run waits for its next turn, unless it
// waits for a decision or an output.
const maxDelay = time.Hour

// schedule sets when the run is due for its next turn.
func (o *outcome) schedule(now time.Time, delay time.Duration) {
	at := now.Add(min(delay, maxDelay))
	o.run.DueAt = &at
}
