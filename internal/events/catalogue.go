// Package events defines the events that customers can subscribe to, and stores
// them. Publish stores an event in the transaction that causes it.
package events

import (
	"slices"
	"strings"

	"turnpike/internal/fault"
)

// Type is the name of an event.
type Type string

// The event types.
const (
	ImageBatchCompleted      Type = "image.batch.completed"
	VideoRenderCompleted     Type = "video.render.completed"
	VoiceRenderCompleted     Type = "voice.render.completed"
	VoiceTranscriptCompleted Type = "voice.transcription.completed"
	AgentRunAwaitingApproval Type = "agent.run.awaiting_approval"
	AgentRunCompleted        Type = "agent.run.completed"
	AgentRunFailed           Type = "agent.run.failed"
	ResponseCompleted        Type = "response.completed"
	ResponseIncomplete       Type = "response.incomplete"
	ResponseFailed           Type = "response.failed"
	ResponseCancelled        Type = "response.cancelled"
	BatchCompleted           Type = "batch.completed"
	BatchFailed              Type = "batch.failed"
	BatchExpired             Type = "batch.expired"
	BatchCancelled           Type = "batch.cancelled"
	BillingCreditsLow        Type = "billing.credits.low"
	BillingUnbilledLimit     Type = "billing.unbilled_limit_reached"
	BudgetThresholdReached   Type = "budget.threshold_reached"
	BudgetWasExceeded        Type = "budget.exceeded"
	KeyAutoRevoked           Type = "key.auto_revoked"
	EndpointFailing          Type = "endpoint.failing"
	EndpointPaused           Type = "endpoint.paused"
	EndpointSecretLeaked     Type = "endpoint.secret_leaked"
	DeliveryFailed           Type = "delivery.failed"
)

// Types lists all event types, in the order of the documentation.
var Types = []Type{
	ImageBatchCompleted, VideoRenderCompleted, VoiceRenderCompleted, VoiceTranscriptCompleted,
	AgentRunAwaitingApproval, AgentRunCompleted, AgentRunFailed,
	ResponseCompleted, ResponseIncomplete, ResponseFailed, ResponseCancelled,
	BatchCompleted, BatchFailed, BatchExpired, BatchCancelled,
	BillingCreditsLow, BillingUnbilledLimit, BudgetThresholdReached, BudgetWasExceeded, KeyAutoRevoked,
	EndpointFailing, EndpointPaused, EndpointSecretLeaked, DeliveryFailed,
}

// everything matches all events, including future ones.
const everything = "*"

// wildcards match all events of one resource.
var wildcards = []string{"image.batch.*", "video.render.*", "voice.render.*", "voice.transcription.*", "agent.run.*", "response.*", "batch.*", "billing.*", "billing.credits.*", "budget.*", "key.*", "endpoint.*", "delivery.*"}

// maxPatterns is the maximum size of a subscription.
const maxPatterns = 50

// AboutDelivery reports whether the event is about an endpoint or a delivery. Delivering
// such an event never causes another one.
func (t Type) AboutDelivery() bool {
	return strings.HasPrefix(string(t), "endpoint.") || strings.HasPrefix(string(t), "delivery.")
}

// ParseType parses the name of an event type.
func ParseType(param, s string) (Type, error) {
	if t := Type(s); slices.Contains(Types, t) {
		return t, nil
	}
	return "", fault.Invalid(param, "Unknown event %q. Allowed events: %s.", s, eventNames(nil))
}

// CheckPatterns returns an error if a subscription names unknown events.
func CheckPatterns(param string, patterns []string) error {
	if len(patterns) == 0 {
		return fault.Missing(param, "%s must name at least one event, or \"*\" for all events.", param)
	}
	if len(patterns) > maxPatterns {
		return fault.Invalid(param, "%s can have at most %d entries.", param, maxPatterns)
	}
	for _, p := range patterns {
		if p == everything || slices.Contains(wildcards, p) || slices.Contains(Types, Type(p)) {
			continue
		}
		return fault.Invalid(param, "Unknown event %q. Allowed events: %s.", p, eventNames(append([]string{everything}, wildcards...)))
	}
	return nil
}

func eventNames(more []string) string {
	names := make([]string, 0, len(Types)+len(more))
	for _, t := range Types {
		names = append(names, string(t))
	}
	return strings.Join(append(names, more...), ", ")
}

// Matches reports whether a subscription includes the event type.
func (t Type) Matches(patterns []string) bool {
	for _, p := range patterns {
		prefix, wild := strings.CutSuffix(p, "*")
		if p == string(t) || wild && strings.HasPrefix(string(t), prefix) {
			return true
		}
	}
	return false
}
