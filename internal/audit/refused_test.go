package audit

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Not parallel: it looks at the process's own log.
func TestRefusedKeysAreCountedByNetworkAndTold(t *testing.T) {
	var lines bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&lines, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	now := time.Unix(600, 0)
	r := NewRefused(nil, 3, func() time.Time { return now })
	limited := func(ip string) bool { _, is := r.Add(ip); return is }
	for i := range 6 {
		if got := limited(fmt.Sprintf("2001:db8::%x", i+1)); got != (i >= 3) {
			t.Errorf("refusal %d of one IPv6 network: limited is %v", i+1, got)
		}
	}
	if limited("2001:db8:0:1::1") || limited("192.0.2.1") || limited("192.0.2.2") {
		t.Error("another network is limited")
	}
	if text := lines.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "2001:db8::/64") {
		t.Errorf("the log has %q, not one line with the network", text)
	}
	now = now.Add(time.Minute)
	if limited("2001:db8::1") {
		t.Error("still limited in the next minute")
	}
}
