package chaos

import (
	"strings"
	"testing"

	"turnpike/test/chaos/program"
)

func TestTwoServersCannotShareADataDirectory(t *testing.T) {
	t.Parallel()
	at := program.Place{Dir: t.TempDir()}
	first := serve(t, at)
	key := newKey(t, at)

	second, err := binary(t).Serve(at)
	if err == nil {
		second.Kill()
		t.Fatal("a second server started on the same data directory")
	}
	if !strings.Contains(err.Error(), "another turnpike serve or move is running") || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("got error %v, want exit status 1 because another server is running", err)
	}
	serves(t, first.URL, key)

	// The lock ends with its process.
	first.Kill()
	serves(t, serve(t, at).URL, key)
}
