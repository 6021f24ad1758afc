package agents

import (
	"strings"

	"github.com/go-json-experiment/json"

	"turnpike/internal/events"
)

const (
	// announcedBytes is what a run may take in its event: a delivery is
	// bounded, and has some words around the run.
	announcedBytes = events.MaxBody - 4<<10
	// longestText and mostActions are what is left of a run that is longer.
	longestText = 256 << 10
	mostActions = 500

	cutText = "… [cut: the run itself has all of it]"
)

// announced is a run as its event has it. What models, tools and checks say
// has no bound that an event would keep to, so long texts are cut there: an
// event that cannot be stored would hold up the run, and those beside it.
func announced(o events.AgentRun) events.AgentRun {
	for longest := longestText; longest > 0 && !fits(o); longest /= 2 {
		o = shortened(o, longest)
	}
	return o
}

func fits(o events.AgentRun) bool {
	text, err := json.Marshal(o)
	return err != nil || len(text) <= announcedBytes // an error is the publisher's to tell
}

// shortened is a run without what is long. The object that it is made of stays
// as it is.
func shortened(o events.AgentRun, longest int) events.AgentRun {
	o.RequiredActions = append([]events.RequiredAction{}, o.RequiredActions[:min(len(o.RequiredActions), mostActions)]...)
	for i := range o.RequiredActions {
		a := &o.RequiredActions[i]
		a.Tool, a.Arguments = shortText(a.Tool, longest), shortText(a.Arguments, longest)
	}
	if o.PartialResult != nil {
		text := shortText(*o.PartialResult, longest)
		o.PartialResult = &text
	}
	if o.Error != nil {
		o.Error = failure(o.Error.Code, "%s", shortText(o.Error.Message, longest))
	}
	if o.Result != nil {
		result := *o.Result
		result.OutputText, result.Output = shortText(result.OutputText, longest), nil
		result.Verification = shortReasons(result.Verification, longest)
		o.Result = &result
	}
	return o
}

func shortReasons(v *events.Verification, longest int) *events.Verification {
	if v == nil {
		return nil
	}
	out := *v
	out.Checks = append([]events.VerificationCheck{}, v.Checks...)
	for i := range out.Checks {
		out.Checks[i].Reason = shortText(out.Checks[i].Reason, longest)
	}
	return &out
}

func shortText(s string, longest int) string {
	if len(s) <= longest+len(cutText) {
		return s
	}
	return strings.ToValidUTF8(strings.TrimSuffix(s, cutText)[:longest], "") + cutText
}
