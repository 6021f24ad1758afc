package events_test

import (
	"testing"

	"turnpike/internal/events"
)

func TestSampleRunsMatchRealOnes(t *testing.T) {
	t.Parallel()
	for _, typ := range []events.Type{events.AgentRunAwaitingApproval, events.AgentRunCompleted, events.AgentRunFailed} {
		r := events.Sample(typ, happened).(events.AgentRun)
		if r.StartedAt == nil {
			t.Errorf("the run of %s has ended or waits, and never began", typ)
		}
		if r.Result != nil && (r.Result.Verified != nil) != (r.Result.Verification != nil) {
			t.Errorf("the run of %s is verified (%v) by %v", typ, r.Result.Verified, r.Result.Verification)
		}
	}
}
