//go:build clients

package sdk_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"turnpike/test/harness"
)

// The tested versions of the npm packages "@langchain/openai" and "@langchain/core".
const (
	npmLangChain     = "1.6.0"
	npmLangChainCore = "1.2.13"
)

// TestLangChainWithEveryProvider runs the published LangChain through the shared conversation.
func TestLangChainWithEveryProvider(t *testing.T) {
	t.Parallel()
	modules, err := npmInstall("langchain-"+npmLangChain, "@langchain/openai@"+npmLangChain, "@langchain/core@"+npmLangChainCore)
	if err != nil {
		t.Fatal(err)
	}
	withUpstreams(t, "sqlite", func(t *testing.T, s *harness.Server, key string, u upstream) {
		cmd := exec.CommandContext(t.Context(), "node", "testdata/langchain.mjs")
		cmd.Env = append(os.Environ(), "MODULES="+modules+string(filepath.Separator), "BASE_URL="+s.URL+"/v1", "KEY="+key, "MODEL="+u.model,
			"SPOKEN="+spoken, "TOOL="+toolName, "ARGS="+toolArgs, "PERSON="+person, "PIXEL="+pixel, "LANGSMITH_TRACING=false")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
