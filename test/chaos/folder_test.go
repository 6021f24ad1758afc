package chaos

import (
	"strings"
	"testing"

	"turnpike/test/chaos/program"
)

// TestTwoServersCannotShareADataFolder starts a second server beside the first.
func TestTwoServersCannotShareADataFolder(t *testing.T) {
	t.Parallel()
	at := program.Place{Folder: t.TempDir()}
	first := serve(t, at)
	key := newKey(t, at)

	second, err := binary(t).Serve(at)
	if err == nil {
		second.Kill()
		t.Fatal("a second server runs on the same folder")
	}
	if !strings.Contains(err.Error(), "another turnpike serve is running") || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("the second server does not say what is wrong: %v", err)
	}
	serves(t, first.URL, key)

	// The lock ends with its holder, however that ends.
	first.Kill()
	serves(t, serve(t, at).URL, key)
}
