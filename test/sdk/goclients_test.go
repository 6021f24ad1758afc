//go:build clients

package sdk_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// goProgram returns a function that runs a program of goclients. These clients are in another module, because the product
// doesn't use them.
func goProgram(name string) func(t *testing.T, c connection) string {
	return func(t *testing.T, c connection) string {
		t.Helper()
		binary := filepath.Join(t.TempDir(), name)
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "goclients", "-o", binary, "./"+name).CombinedOutput(); err != nil {
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
}
