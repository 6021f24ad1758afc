//go:build clients

package sdk_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// anthropicGo runs a program in a module of its own, because the product doesn't use the SDK.
func anthropicGo(t *testing.T, c connection) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "client")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "anthropicgo", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Env = append(os.Environ(), c.env()...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return string(out)
}
