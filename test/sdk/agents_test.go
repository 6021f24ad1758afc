//go:build clients

package sdk_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/db/dbtest"
	"turnpike/test/harness"
)

// The tested versions of the npm package "@openai/agents" and of its client.
const (
	npmAgents       = "0.20.0"
	npmAgentsOpenAI = "6.49.0"
)

// TestAgentsSDKContinuesStoredResponses runs OpenAI's agents SDK with its defaults: it refers to earlier
// responses and conversations.
func TestAgentsSDKContinuesStoredResponses(t *testing.T) {
	t.Parallel()
	modules, err := npmInstall("agents-"+npmAgents, "@openai/agents@"+npmAgents, "openai@"+npmAgentsOpenAI, "zod@"+npmZod)
	if err != nil {
		t.Fatal(err)
	}
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := harness.Start(t, harness.Config(t, engine), harness.NewClock())
			key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
			cmd := exec.CommandContext(t.Context(), "node", "testdata/agents.mjs")
			cmd.Env = append(os.Environ(), "MODULES="+modules+string(filepath.Separator), "BASE_URL="+s.URL+"/v1", "KEY="+key)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
