package safehttp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"turnpike/internal/fault"
)

var loopbackAllowed = Policy{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowHTTP: true}

var acceptedURLs = []string{
	"https://example.com",
	"https://example.com/",
	"https://example.com/hooks?a=1&b=%20",
	"https://example.com?x",
	"https://example.com/hök/日本",
	"https://example.com/a@b:c//d%2Fe",
	"HTTPS://EXAMPLE.com/Path",
	"https://example.com:1/", "https://example.com:443/", "https://example.com:65535/",
	"https://xn--bcher-kva.example/",
	"https://a-b--c.example/", "https://1and1.example/", "https://3com/", "https://127.0.0.1.example.com/", "https://0x7f.example/", "https://0xg/",
	"https://intranet/", // the dial decides
	"https://notlocalhost/", "https://localhost.example/",
	"https://" + strings.Repeat("a", 63) + ".example/",
	"https://" + strings.Repeat("a.", 126) + "a/",
	"https://1.1.1.1/", "https://8.8.8.8:8443/",
	"https://[2606:4700:4700::1111]/", "https://[2606:4700:4700::1111]:8443/",
}

func TestValidURLsAreAccepted(t *testing.T) {
	t.Parallel()
	g := New(Policy{})
	for _, raw := range append(acceptedURLs, "https://example.com/"+strings.Repeat("a", maxURL-20)) {
		u, err := g.CheckURL("url", raw)
		if err != nil {
			t.Errorf("CheckURL(%q) = %v", raw, err)
		} else if u.Scheme != "https" || u.Host == "" {
			t.Errorf("CheckURL(%q) returned %q", raw, u)
		}
	}
}

// refusedURLs maps refused URLs to a part of the message.
var refusedURLs = map[string]string{
	"":                        "begin with https://",
	"/hooks":                  "begin with https://",
	"example.com/hooks":       "begin with https://",
	"//example.com/hooks":     "begin with https://",
	"http://example.com/":     "begin with https://",
	"ftp://example.com/":      "begin with https://",
	"file:///etc/passwd":      "begin with https://",
	"javascript:alert(1)":     "begin with https://",
	"https:":                  "absolute URL",
	"https://":                "absolute URL",
	"https:///hooks":          "absolute URL",
	"https:example.com":       "absolute URL",
	"https:/example.com":      "absolute URL",
	"https://?x":              "absolute URL",
	"https://exa^mple.com/":   "absolute URL",
	"https://example.com/%zz": "absolute URL",
	"://example.com":          "absolute URL",

	"https://user:secret@example.com/":                      "a user name or password",
	"https://user@example.com/":                             "a user name or password",
	"https://us%65r:secret@example.com/":                    "a user name or password",
	"https://@example.com/":                                 "a user name or password",
	"https://example.com@127.0.0.1/":                        "a user name or password",
	"https://a:b@c:d@example.com/":                          "a user name or password",
	"https://example.com/#top":                              "a fragment",
	"https://example.com/#":                                 "a fragment",
	"https://example.com#@127.0.0.1/":                       "a fragment",
	`https://example.com\@127.0.0.1/`:                       "a backslash",
	`https:\\example.com`:                                   "a backslash",
	`https://example.com/a\b`:                               "a backslash",
	"https://example.com/a b":                               "spaces, control",
	" https://example.com/":                                 "spaces, control",
	"https://example.com/\n":                                "spaces, control",
	"https://example.com/\r\nX-Header: 1":                   "spaces, control",
	"https://exam\tple.com/":                                "spaces, control",
	"https://example.com/\x00":                              "spaces, control",
	"https://example.com/\x7f":                              "spaces, control",
	"https://example.com/\u00a0":                            "spaces, control",
	"https://example.com/\u2028":                            "spaces, control",
	"https://example.com/\u202egpj":                         "spaces, control", // reverses the text
	"https://exa\u200bmple.com/":                            "spaces, control", // zero width
	"https://exa\u00admple.com/":                            "spaces, control", // soft hyphen
	"https://example.com/\xff":                              "spaces, control",
	"https://example.com/" + strings.Repeat("a", maxURL-19): "at most 2048 bytes",

	"https://example.com:/":      "port from 1 to 65535",
	"https://example.com:0/":     "port from 1 to 65535",
	"https://example.com:65536/": "port from 1 to 65535",
	"https://example.com:0443/":  "port from 1 to 65535",
	"https://[2606:4700::1]:0/":  "port from 1 to 65535",
	"https://example.com:http/":  "absolute URL",
	"https://example.com:-1/":    "absolute URL",
	"https://example.com:+443/":  "absolute URL",
	"https://example.com:1:2/":   "absolute URL",

	"https://%65xample.com/":                           "host without %",
	"https://127%2e0%2e0%2e1/":                         "host without %",
	"https://ex%C3%A4mple.com/":                        "host without %",
	"https://[fe80::1%25eth0]/":                        "host without %",
	"https://[fe80::1%eth0]/":                          "host without %",
	"https://bücher.example/":                          "punycode",
	"https://127。0。0。1/":                               "punycode",
	"https://１２７.0.0.1/":                               "punycode",
	"https://127．0．0．1/":                               "punycode",
	"https://①②⑦.0.0.1/":                               "punycode",
	"https://ⓔxample.com/":                             "punycode",
	"https://localhoſt/":                               "punycode",
	"https://example.com./":                            "dot at its end",
	"https://127.0.0.1./":                              "dot at its end",
	"https://localhost./":                              "dot at its end",
	"https://./":                                       "dot at its end",
	"https://.example.com/":                            "host name such as",
	"https://example..com/":                            "host name such as",
	"https://-example.com/":                            "host name such as",
	"https://example-.com/":                            "host name such as",
	"https://ex_ample.com/":                            "host name such as",
	"https://exa*mple.com/":                            "host name such as",
	"https://example.com,other.example/":               "host name such as",
	"https://example.com;a/":                           "host name such as",
	"https://" + strings.Repeat("a", 64) + ".example/": "host name such as",
	"https://" + strings.Repeat("a.", 126) + "aa/":     "at most 253",

	"https://2130706433/":   "end in a number",
	"https://0x7f000001/":   "end in a number",
	"https://0X7F000001/":   "end in a number",
	"https://017700000001/": "end in a number",
	"https://0x7f.1/":       "end in a number",
	"https://127.1/":        "end in a number",
	"https://127.0.1/":      "end in a number",
	"https://0177.0.0.1/":   "end in a number",
	"https://127.0.0.01/":   "end in a number",
	"https://127.0.0.0x1/":  "end in a number",
	"https://127.0.0.0x/":   "end in a number",
	"https://1.1.1.256/":    "end in a number",
	"https://1.1.1.1.1/":    "end in a number",
	"https://0/":            "end in a number",
	"https://example.123/":  "end in a number",

	"https://localhost/":         "localhost is this server itself",
	"https://LOCALHOST:8443/":    "localhost is this server itself",
	"https://a.b.localhost/":     "localhost is this server itself",
	"https://127.0.0.1/":         "127.0.0.1 is a loopback address",
	"https://127.255.255.254/":   "loopback",
	"https://0.0.0.0/":           "unspecified",
	"https://10.0.0.5:8443/":     "10.0.0.5 is private",
	"https://169.254.169.254/":   "link-local",
	"https://168.63.129.16/":     "reserved",
	"https://[::1]/":             "loopback",
	"https://[::]/":              "unspecified",
	"https://[::ffff:10.0.0.5]/": "private",
	"https://[::ffff:7f00:1]/":   "loopback",
	"https://[::127.0.0.1]/":     "reserved",
	"https://[64:ff9b::a00:5]/":  "reserved",
	"https://[2002:a00:5::]/":    "reserved",
	"https://[fd00:ec2::254]/":   "private",
	"https://[fe80::1]/":         "link-local",

	// The parser itself rejects these.
	"https://[127.0.0.1]/":     "absolute URL",
	"https://[::1":             "absolute URL",
	"https://[]/":              "absolute URL",
	"https://[v1.a]/":          "absolute URL",
	"https://a[::1]/":          "absolute URL",
	"https://[::1]a/":          "absolute URL",
	"https://::1/":             "absolute URL",
	"https://2606:4700::1111/": "absolute URL",
}

func TestInvalidURLErrorsExplainWhy(t *testing.T) {
	t.Parallel()
	g := New(Policy{})
	for raw, want := range refusedURLs {
		u, err := g.CheckURL("webhook.url", raw)
		f, ok := fault.As(err)
		if u != nil || !ok {
			t.Errorf("CheckURL(%q) = %v, %v, want a fault", raw, u, err)
			continue
		}
		if f.Code != fault.InvalidParameter || f.Param != "webhook.url" || !strings.HasPrefix(f.Message, "webhook.url must ") {
			t.Errorf("CheckURL(%q) = %+v, want a message about webhook.url", raw, f)
		}
		if !strings.Contains(f.Message, want) {
			t.Errorf("CheckURL(%q) says %q, want %q in it", raw, f.Message, want)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("CheckURL(%q) repeats the password: %v", raw, err)
		}
	}
}

func TestErrorOfRefusedLiteralHasItsAddress(t *testing.T) {
	t.Parallel()
	_, err := New(Policy{}).CheckURL("url", "https://10.0.0.5/")
	var refused *AddrError
	if !errors.As(err, &refused) || refused.Addr != netip.MustParseAddr("10.0.0.5") {
		t.Errorf("got %v, want a *AddrError for 10.0.0.5", err)
	}
}

func TestOperatorCanAllowPlainHTTPAndLoopback(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]bool{
		"http://example.com/":         true,
		"https://example.com/":        true,
		"http://127.0.0.1:3000/hooks": true,
		"http://localhost:3000/hooks": true,
		"http://app.localhost/":       true,
		"http://[::ffff:127.0.0.1]/":  true,
		"http://10.0.0.5/":            false,
		"http://[::1]/":               false,
		"ftp://127.0.0.1/":            false,
		"http://user@127.0.0.1/":      false,
		"http://127.1/":               false,
	} {
		if _, err := New(loopbackAllowed).CheckURL("url", raw); (err == nil) != want {
			t.Errorf("CheckURL(%q) = %v, want accepted: %t", raw, err, want)
		}
	}
	_, err := New(Policy{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("::1/128")}}).CheckURL("url", "https://localhost/")
	if err != nil {
		t.Errorf("localhost is refused although ::1 is allowed: %v", err)
	}
}

func TestDialedHostIsTheCheckedHost(t *testing.T) {
	t.Parallel()
	g := New(Policy{})
	for _, raw := range acceptedURLs {
		u, err := g.CheckURL("url", raw)
		if err != nil {
			t.Errorf("CheckURL(%q) = %v", raw, err)
			continue
		}
		want := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))
		for _, text := range []string{raw, u.String()} {
			if got := dialled(t, text); got != want {
				t.Errorf("checked %q, but %q dials %q", want, text, got)
			}
		}
	}
}

// dialled returns the address that net/http would dial for a URL.
func dialled(t *testing.T, raw string) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	enough := errors.New("enough")
	transport := &http.Transport{DialTLSContext: func(_ context.Context, _, addr string) (net.Conn, error) {
		got = addr
		return nil, enough
	}}
	if _, err := transport.RoundTrip(req); !errors.Is(err, enough) {
		t.Fatal(err)
	}
	return got
}

// FuzzCheckURL checks every input for three guarantees: no panic, every refusal
// is a fault about the field, and net/http extracts the checked host. It avoids
// net/http's goroutines, which confuse the fuzzer. The test above dials.
func FuzzCheckURL(f *testing.F) {
	for _, raw := range acceptedURLs {
		f.Add(raw)
	}
	for raw := range refusedURLs {
		f.Add(raw)
	}
	g := New(Policy{})
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := g.CheckURL("url", raw)
		if err != nil {
			if e, ok := fault.As(err); !ok || e.Code != fault.InvalidParameter || e.Param != "url" || !strings.HasPrefix(e.Message, "url must ") {
				t.Errorf("refused %q with %v", raw, err)
			}
			return
		}
		if u.Scheme != "https" || u.User != nil || u.Fragment != "" || u.Opaque != "" {
			t.Errorf("accepted %q as %#v", raw, u)
		}
		for _, text := range []string{raw, u.String()} {
			if got := asked(t, text); got != u.Host {
				t.Errorf("checked %q, but %q asks for %q", u.Host, text, got)
			}
		}
		addr, err := netip.ParseAddr(u.Hostname())
		if err == nil && g.CheckAddr(addr) != nil {
			t.Errorf("accepted %q, which leads to %s", raw, addr)
		}
		if err != nil && strings.Trim(strings.ToLower(u.Hostname()), "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
			t.Errorf("accepted %q, whose host is %q", raw, u.Hostname())
		}
	})
}

// asked returns the host that net/http would request.
func asked(t *testing.T, raw string) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, raw, nil)
	if err != nil {
		t.Fatalf("accepted %q, but net/http does not: %v", raw, err)
	}
	var wire bytes.Buffer
	if err := req.Write(&wire); err != nil {
		t.Fatalf("accepted %q, but net/http does not: %v", raw, err)
	}
	seen, err := http.ReadRequest(bufio.NewReader(&wire))
	if err != nil {
		t.Fatalf("accepted %q, which servers do not: %v", raw, err)
	}
	if seen.Host != req.URL.Host {
		t.Errorf("%q dials %q and asks for %q", raw, req.URL.Host, seen.Host)
	}
	return seen.Host
}
