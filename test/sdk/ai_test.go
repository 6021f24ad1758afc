//go:build clients

package sdk_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"turnpike/test/harness"
)

// The tested versions of the npm packages "ai" and "@ai-sdk/openai", and of their peer
// dependencies.
const (
	npmAI       = "6.0.326"
	npmAIOpenAI = "3.0.139"
	npmZod      = "4.6.7"
)

// TestAISDKWithEveryProvider runs the published AI SDK from Vercel through the shared
// conversation, with chat completions and responses.
func TestAISDKWithEveryProvider(t *testing.T) {
	t.Parallel()
	modules, err := npmInstall("ai-"+npmAI, "ai@"+npmAI, "@ai-sdk/openai@"+npmAIOpenAI, "zod@"+npmZod)
	if err != nil {
		t.Fatal(err)
	}
	withUpstreams(t, "sqlite", func(t *testing.T, s *harness.Server, key string, u upstream) {
		cmd := exec.CommandContext(t.Context(), "node", "testdata/ai.mjs")
		cmd.Env = append(os.Environ(), "MODULES="+modules+string(filepath.Separator), "BASE_URL="+s.URL+"/v1", "KEY="+key, "MODEL="+u.model,
			"SPOKEN="+spoken, "TOOL="+toolName, "ARGS="+toolArgs, "PERSON="+person, "PIXEL="+pixel)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
