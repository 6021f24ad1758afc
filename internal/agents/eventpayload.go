package agents

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"turnpike/internal/events"
)

const (
	// maxPayload leaves room in an event for the fields around the run.
	maxPayload = events.MaxBody - 4<<10
	// maxText and maxActions apply to a run that is too large for its event.
	maxText    = 256 << 10
	maxActions = 500

	truncationMark = "… [cut: the run itself has all of it]"
)

// eventPayload returns the run as its event carries it. The texts of models, tools
// and checks can exceed the size of an event, so it cuts long ones. An event that
// can't be stored would block the run.
func eventPayload(o events.AgentRun) events.AgentRun {
	for limit := maxText; limit > 0 && !fits(o); limit /= 2 {
		o = truncated(o, limit)
	}
	return o
}

func fits(o events.AgentRun) bool {
	text, err := json.Marshal(o)
	return err != nil || len(text) <= maxPayload // the publisher reports an error
}

func truncated(o events.AgentRun, limit int) events.AgentRun {
	o.RequiredActions = slices.Clone(o.RequiredActions[:min(len(o.RequiredActions), maxActions)])
	for i := range o.RequiredActions {
		a := &o.RequiredActions[i]
		a.Tool, a.Arguments = truncate(a.Tool, limit), truncate(a.Arguments, limit)
	}
	if o.PartialResult != nil {
		text := truncate(*o.PartialResult, limit)
		o.PartialResult = &text
	}
	if o.Error != nil {
		o.Error = runError(o.Error.Code, "%s", truncate(o.Error.Message, limit))
	}
	if o.Result != nil {
		result := *o.Result
		result.OutputText, result.Output = truncate(result.OutputText, limit), nil
		if v := result.Verification; v != nil {
			shown := *v
			shown.Checks = slices.Clone(v.Checks)
			for i, c := range shown.Checks {
				shown.Checks[i].Reason = truncate(c.Reason, limit)
			}
			result.Verification = &shown
		}
		o.Result = &result
	}
	return o
}

func truncate(s string, limit int) string {
	if len(s) <= limit+len(truncationMark) {
		return s
	}
	return strings.ToValidUTF8(strings.TrimSuffix(s, truncationMark)[:limit], "") + truncationMark
}
