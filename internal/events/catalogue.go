// Package events is the catalogue of what the service tells its customers, and
// the way in: Publish stores an event in the transaction that causes it.
package events

import (
	"slices"
	"strings"

	"turnpike/internal/fault"
)

// Type is the name of an event.
type Type string

// The catalogue.
const (
	ImageBatchCompleted      Type = "image.batch.completed"
	VideoRenderCompleted     Type = "video.render.completed"
	VoiceRenderCompleted     Type = "voice.render.completed"
	AgentRunAwaitingApproval Type = "agent.run.awaiting_approval"
	AgentRunCompleted        Type = "agent.run.completed"
	AgentRunFailed           Type = "agent.run.failed"
	BillingCreditsLow        Type = "billing.credits.low"
	KeyAutoRevoked           Type = "key.auto_revoked"
)

// Types lists every event, in the order of the documentation.
var Types = []Type{
	ImageBatchCompleted, VideoRenderCompleted, VoiceRenderCompleted,
	AgentRunAwaitingApproval, AgentRunCompleted, AgentRunFailed,
	BillingCreditsLow, KeyAutoRevoked,
}

// everything is the wildcard over all events, later ones included.
const everything = "*"

// wildcards are those of one resource each.
var wildcards = []string{"image.batch.*", "video.render.*", "voice.render.*", "agent.run.*", "billing.credits.*", "key.*"}

// maxPatterns bounds a subscription.
const maxPatterns = 50

// ParseType reads an event's name.
func ParseType(param, s string) (Type, error) {
	if t := Type(s); slices.Contains(Types, t) {
		return t, nil
	}
	return "", fault.Invalid(param, "there is no event %q; there are: %s", s, joined(nil))
}

// CheckPatterns refuses a subscription to what does not exist.
func CheckPatterns(param string, patterns []string) error {
	if len(patterns) == 0 {
		return fault.Missing(param, "%s must name at least one event, or \"*\" for all", param)
	}
	if len(patterns) > maxPatterns {
		return fault.Invalid(param, "%s may have at most %d entries", param, maxPatterns)
	}
	for _, p := range patterns {
		if p == everything || slices.Contains(wildcards, p) || slices.Contains(Types, Type(p)) {
			continue
		}
		return fault.Invalid(param, "there is no event %q; there are: %s", p, joined(append([]string{everything}, wildcards...)))
	}
	return nil
}

func joined(more []string) string {
	names := make([]string, 0, len(Types)+len(more))
	for _, t := range Types {
		names = append(names, string(t))
	}
	return strings.Join(append(names, more...), ", ")
}

// Matches reports whether a subscription wants the event.
func (t Type) Matches(patterns []string) bool {
	for _, p := range patterns {
		prefix, wild := strings.CutSuffix(p, "*")
		if p == string(t) || wild && strings.HasPrefix(string(t), prefix) {
			return true
		}
	}
	return false
}
