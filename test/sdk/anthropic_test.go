//go:build clients

package sdk_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

// The tested versions of npm packages that speak Anthropic's format.
const (
	npmAnthropic   = "1.9.0"
	npmAI7         = "7.0.170"
	npmAIAnthropic = "4.0.102"
)

// runAnthropicClient runs a program with a client for Anthropic's API through the shared conversation:
// with each provider, and with the simulator.
func runAnthropicClient(t *testing.T, command func() *exec.Cmd) {
	t.Helper()
	run := func(t *testing.T, s *harness.Server, key, model string, more ...string) {
		t.Helper()
		cmd := command()
		cmd.Env = append(os.Environ(), append(cmd.Env, append(more, "BASE_URL="+s.URL, "KEY="+key, "MODEL="+model,
			"SPOKEN="+spoken, "TOOL="+toolName, "ARGS="+toolArgs, "PERSON="+person, "PIXEL="+pixel)...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	withUpstreams(t, "sqlite", func(t *testing.T, s *harness.Server, key string, u upstream) { run(t, s, key, u.model) })
	t.Run("simulator", func(t *testing.T) {
		t.Parallel()
		s := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
		key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
		run(t, s, key, "claude-sonnet-4-5", "SIMULATED=1")
	})
}

func TestAnthropicNodeSDK(t *testing.T) {
	t.Parallel()
	modules, err := npmInstall("anthropic-"+npmAnthropic, "@anthropic-ai/sdk@"+npmAnthropic)
	if err != nil {
		t.Fatal(err)
	}
	runAnthropicClient(t, func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "node", "testdata/anthropic.mjs")
		cmd.Env = []string{"MODULES=" + modules + string(filepath.Separator)}
		return cmd
	})
}

func TestAISDKWithAnthropicFormat(t *testing.T) {
	t.Parallel()
	modules, err := npmInstall("ai-"+npmAI7+"-anthropic-"+npmAIAnthropic, "ai@"+npmAI7, "@ai-sdk/anthropic@"+npmAIAnthropic, "zod@"+npmZod)
	if err != nil {
		t.Fatal(err)
	}
	runAnthropicClient(t, func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "node", "testdata/ai-anthropic.mjs")
		cmd.Env = []string{"MODULES=" + modules + string(filepath.Separator)}
		return cmd
	})
}

// TestAnthropicGoSDK runs a program in a module of its own, because the product doesn't use the SDK.
func TestAnthropicGoSDK(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "client")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "anthropicgo", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	runAnthropicClient(t, func() *exec.Cmd { return exec.CommandContext(t.Context(), binary) })
}
