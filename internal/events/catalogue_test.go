package events_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/events"
	"turnpike/internal/fault"
)

// resources are the wildcards, with the events that each must cover.
var resources = map[string][]events.Type{
	"image.batch.*":     {events.ImageBatchCompleted},
	"video.render.*":    {events.VideoRenderCompleted},
	"voice.render.*":    {events.VoiceRenderCompleted},
	"agent.run.*":       {events.AgentRunAwaitingApproval, events.AgentRunCompleted, events.AgentRunFailed},
	"response.*":        {events.ResponseCompleted, events.ResponseIncomplete, events.ResponseFailed, events.ResponseCancelled},
	"batch.*":           {events.BatchCompleted, events.BatchFailed, events.BatchExpired, events.BatchCancelled},
	"billing.credits.*": {events.BillingCreditsLow},
	"billing.*":         {events.BillingCreditsLow, events.BillingUnbilledLimit},
	"budget.*":          {events.BudgetThresholdReached, events.BudgetWasExceeded},
	"key.*":             {events.KeyAutoRevoked},
	"endpoint.*":        {events.EndpointFailing, events.EndpointPaused, events.EndpointSecretLeaked},
	"delivery.*":        {events.DeliveryFailed},
	"*":                 events.Types,

	"voice.transcription.*": {events.VoiceTranscriptCompleted},
}

func TestEventTypesMatchTheSpecification(t *testing.T) {
	t.Parallel()
	want := []events.Type{"image.batch.completed", "video.render.completed", "voice.render.completed", "voice.transcription.completed", "agent.run.awaiting_approval",
		"agent.run.completed", "agent.run.failed", "billing.credits.low", "billing.unbilled_limit_reached", "budget.threshold_reached", "budget.exceeded", "key.auto_revoked", "endpoint.failing", "endpoint.paused", "endpoint.secret_leaked", "delivery.failed"}
	// The events of OpenAI's API.
	openAI := []events.Type{"response.completed", "response.incomplete", "response.failed", "response.cancelled", "batch.completed", "batch.failed", "batch.expired", "batch.cancelled"}
	ours := slices.DeleteFunc(slices.Clone(events.Types), func(t events.Type) bool { return slices.Contains(openAI, t) })
	if !slices.Equal(ours, want) || len(events.Types) != len(want)+len(openAI) {
		t.Errorf("the catalogue is %v", events.Types)
	}
}

func TestWildcardsMatchOnlyTheirResource(t *testing.T) {
	t.Parallel()
	for pattern, covered := range resources {
		if err := events.CheckPatterns("events", []string{pattern}); err != nil {
			t.Errorf("%s is refused: %v", pattern, err)
		}
		for _, typ := range events.Types {
			if got := typ.Matches([]string{pattern}); got != slices.Contains(covered, typ) {
				t.Errorf("%s covers %s: %t", pattern, typ, got)
			}
		}
	}
	if !events.Type("agent.run.paused").Matches([]string{"key.*", "*"}) || !events.Type("agent.run.paused").Matches([]string{"agent.run.*"}) {
		t.Error("a wildcard does not cover an event to come")
	}
	if events.KeyAutoRevoked.Matches(nil) || events.AgentRunFailed.Matches([]string{"agent.run.completed"}) {
		t.Error("an endpoint gets an event that it does not subscribe to")
	}
}

func TestUnknownEventsAreRejectedWithTheAllowedOnes(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"", "agent", "agent.*", "agent.run", "agent.run.", "agent.run.*.*", "agent.run.c*", "**", "*.completed", "Agent.run.*",
		" agent.run.*", "image.batch.failed", "agent.run.completed ", "key*"} {
		err := events.CheckPatterns("events", []string{"key.auto_revoked", pattern})
		f, ok := fault.As(err)
		if !ok || f.Code != fault.InvalidParameter || f.Param != "events" {
			t.Errorf("%q: %v", pattern, err)
			continue
		}
		for _, typ := range events.Types {
			if !strings.Contains(f.Message, string(typ)) {
				t.Errorf("%q: the message does not name %s", pattern, typ)
			}
		}
		for wildcard := range resources {
			if !strings.Contains(f.Message, wildcard) {
				t.Errorf("%q: the message does not name %s", pattern, wildcard)
			}
		}
	}
	if err := events.CheckPatterns("events", nil); !fault.Is(err, fault.MissingParameter) {
		t.Errorf("no events at all: %v", err)
	}
	if err := events.CheckPatterns("events", slices.Repeat([]string{"*"}, 50)); err != nil {
		t.Errorf("50 entries: %v", err)
	}
	if err := events.CheckPatterns("events", slices.Repeat([]string{"*"}, 51)); !fault.Is(err, fault.InvalidParameter) {
		t.Errorf("51 entries: %v", err)
	}
}

func TestParseTypeAcceptsOnlyKnownTypes(t *testing.T) {
	t.Parallel()
	for _, typ := range events.Types {
		if got, err := events.ParseType("type", string(typ)); err != nil || got != typ {
			t.Errorf("%s: %v", typ, err)
		}
	}
	for pattern := range resources {
		if _, err := events.ParseType("type", pattern); !fault.Is(err, fault.InvalidParameter) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

func TestEveryEventHasASample(t *testing.T) {
	t.Parallel()
	for _, typ := range events.Types {
		if events.Sample(typ, time.Now()) == nil {
			t.Errorf("%s has no sample", typ)
		}
	}
}
