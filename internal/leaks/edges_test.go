package leaks

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestReportersURLsAreCleaned(t *testing.T) {
	t.Parallel()
	key := "tp_live_" + strings.Repeat("a", 38)
	for given, want := range map[string]string{
		"":                                   "",
		" https://github.com/a/b/blob/c#L3 ": "https://github.com/a/b/blob/c#L3",
		"https://user:pass@example.com/x":    "https://example.com/x",
		"https://example.com/x?token=secret": "https://example.com/x",
		"https://example.com/" + key:         "https://example.com/tp_live_%2A%2A%2A",
		"https://example.com/tp%5Flive%5F" + strings.Repeat("a", 38): "https://example.com/tp_live_%2A%2A%2A",
		"https://example.com/#" + key:                                "https://example.com/#tp_live_***",
		"javascript:alert(1)":                                        "",
		"file:///etc/passwd":                                         "",
		"https://":                                                   "",
		"not a url":                                                  "",
		"https://example.com/\x00":                                   "",
		"https://example.com/%00":                                    "",
		"https://example.com/\xff":                                   "",
		"https://example.com/" + strings.Repeat("a", maxURL):         "",
	} {
		if got := cleanURL(given); got != want {
			t.Errorf("%q became %q, want %q", given, got, want)
		}
	}
}

func TestVisitorsAreLimitedByNetworkAndMinute(t *testing.T) {
	t.Parallel()
	now := time.Unix(600, 0)
	s := New(Options{ReportsPerMinute: 2, Now: func() time.Time { return now }})
	admitted := func(ip string) bool { return s.Admit(netip.MustParseAddr(ip)) == 0 }
	if !admitted("192.0.2.1") || !admitted("::ffff:192.0.2.1") || admitted("192.0.2.1") || !admitted("192.0.2.2") {
		t.Error("an IPv4 address is not counted by itself")
	}
	if !admitted("2001:db8::1") || !admitted("2001:db8::2") || admitted("2001:db8:0:0:ffff::3") || !admitted("2001:db8:0:1::1") {
		t.Error("an IPv6 network is not counted as one")
	}
	now = now.Add(45 * time.Second)
	if wait := s.Admit(netip.MustParseAddr("192.0.2.1")); wait != 15*time.Second {
		t.Errorf("the wait is %v", wait)
	}
	now = now.Add(15 * time.Second)
	if !admitted("192.0.2.1") {
		t.Error("a new minute did not begin")
	}
	for i := range maxVisitors {
		s.Admit(netip.MustParseAddr(fmt.Sprintf("10.0.%d.%d", i/256, i%256)))
	}
	if len(s.visitors.counts) > maxVisitors+1 || admitted("198.51.100.1") && admitted("198.51.100.2") && admitted("198.51.100.3") {
		t.Error("many addresses are not bounded")
	}
	if off := New(Options{Now: time.Now}); off.Admit(netip.MustParseAddr("192.0.2.1")) != 0 || len(off.visitors.counts) > 0 {
		t.Error("a limit of 0 is one")
	}
}
