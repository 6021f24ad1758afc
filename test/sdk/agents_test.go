//go:build clients

package sdk_test

import (
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

// TestAgentsSDKContinuesStoredResponses runs OpenAI's agents SDK with its defaults on PostgreSQL too: it refers to earlier
// responses and conversations.
func TestAgentsSDKContinuesStoredResponses(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Config(t, "postgres"), harness.NewClock())
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	script("agents.mjs", "@openai/agents", "openai", "zod")(t, connection{url: s.URL, key: key, model: "gpt-4o-mini", simulated: true})
}
