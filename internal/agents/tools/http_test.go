package tools

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"turnpike/internal/safehttp"
)

const testSecret = "Bearer sk-very-secret-value"

// call runs the one http tool that the fields describe.
func call(t *testing.T, ctx context.Context, x *Executor, fields object, arguments string) (Output, error) {
	t.Helper()
	fields["type"], fields["name"] = "http", "tool"
	specs, secrets := parsed(t, x, fields)
	tools, err := x.Resolve(ctx, specs, secrets)
	if err != nil {
		t.Fatal(err)
	}
	return x.Run(ctx, Invocation{tools[0], specs[0], secrets, json.RawMessage(arguments), "run_1:call_1", nil})
}

func failure(t *testing.T, err error) *Failure {
	t.Helper()
	var f *Failure
	if !errors.As(err, &f) {
		t.Fatalf("%v, want a *Failure", err)
	}
	return f
}

func TestHTTPRequestFollowsTheSpec(t *testing.T) {
	t.Parallel()
	type seen struct {
		method, query, body, key, agent, secret, kind string
	}
	var got seen
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = seen{r.Method, r.URL.RawQuery, string(body), r.Header.Get("Idempotency-Key"), r.Header.Get("User-Agent"), r.Header.Get("Authorization"), r.Header.Get("Content-Type")}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"ok":true}`)
	})
	headers := object{"authorization": testSecret}
	const agent = "Turnpike/1.2.3 (agents)"
	for _, c := range []struct {
		fields    object
		arguments string
		want      seen
	}{
		{object{}, `{"a": 12345678901234567890}`, seen{"POST", "", `{"a": 12345678901234567890}`, "run_1:call_1", agent, testSecret, "application/json"}},
		{object{"method": "DELETE"}, ``, seen{"DELETE", "", `{}`, "run_1:call_1", agent, testSecret, "application/json"}},
		{object{"method": "GET", "url": url + "/?k=v"}, `{"q":"a b&c","n":12345678901234567890,"l":["x",1,null],"o":{"b":1},"no":null,"y":true}`,
			seen{"GET", "k=v&l=x&l=1&n=12345678901234567890&o=%7B%22b%22%3A1%7D&q=a+b%26c&y=true", "", "run_1:call_1", agent, testSecret, ""}},
	} {
		c.fields["headers"] = headers
		if c.fields["url"] == nil {
			c.fields["url"] = url
		}
		out, err := call(t, t.Context(), local(), c.fields, c.arguments)
		if err != nil || out != (Output{Text: `{"ok":true}`}) {
			t.Errorf("%v: %+v, %v", c.fields, out, err)
		}
		if got != c.want {
			t.Errorf("sent %+v, want %+v", got, c.want)
		}
	}
	out, err := call(t, t.Context(), local(), object{"url": url, "method": "GET"}, `{"q":"`+strings.Repeat("a", 10_000)+`"}`)
	if err != nil || !out.IsError || !strings.Contains(out.Text, "too long") {
		t.Errorf("a long query: %+v, %v", out, err)
	}
}

func TestHTTPResponsesAreLimitedText(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		status         int
		kind, body     string
		isError        bool
		begins, within string
		atMost         int
	}{
		"JSON":            {200, "application/json", `{"a":1}`, false, `{"a":1}`, "", 7},
		"text":            {201, "text/plain", "hello", false, "hello", "", 5},
		"nothing":         {204, "", "", false, "", "", 0},
		"a page":          {200, "text/html; charset=utf-8", "<html>" + strings.Repeat("ä", 100_000), false, "<html>", "longer than 16 KiB", 17 << 10},
		"much":            {200, "application/json", strings.Repeat("ä", 200_000), false, "ää", "longer than 256 KiB", 257 << 10},
		"a picture":       {200, "image/png", "\x89PNG\r\n\x1a\n\x00\x00", true, "the response is image/png", "", 200},
		"NUL in text":     {200, "text/plain", "a\x00b", true, "the response is text/plain", "", 200},
		"Latin-1":         {200, "text/plain", "caf\xe9", false, "caf\uFFFD", "", 10},
		"unknown bytes":   {200, "application/octet-stream", "caf\xe9", true, "the response is application/octet-stream", "", 200},
		"much unknown":    {200, "application/octet-stream", strings.Repeat("a", 2) + strings.Repeat("ä", 200_000), false, "aaä", "longer than 256 KiB", 257 << 10},
		"unknown text":    {200, "application/octet-stream", "café", false, "café", "", 5},
		"an error":        {500, "application/json", `{"error":"broken"}`, true, "the tool returned 500 Internal Server Error:\n", `{"error":"broken"}`, 200},
		"a long error":    {400, "text/plain", strings.Repeat("a", 100_000), true, "the tool returned 400 Bad Request", "aaa", 17 << 10},
		"a page of error": {404, "text/html", "<h1>no</h1>", true, "the tool returned 404 Not Found", "<h1>", 200},
		"the secret":      {200, "application/json", `{"headers":"` + testSecret + `"}`, false, `{"headers":"[hidden]"}`, "", 100},
		"half of it":      {500, "text/plain", "sk-very-secret-value", true, "the tool returned 500 Internal Server Error:\n[hidden]", "", 100},
		"it at the limit": {200, "text/plain", strings.Repeat("a", maxOutput-5) + testSecret, false, "aa", "[hid", maxOutput + 100},
	} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", c.kind)
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		})
		out, err := call(t, t.Context(), local(), object{"url": url, "headers": object{"Authorization": testSecret}}, `{}`)
		if err != nil || out.IsError != c.isError || !strings.HasPrefix(out.Text, c.begins) || !strings.Contains(out.Text, c.within) || len(out.Text) > c.atMost {
			t.Errorf("%s: %t %d %.200q, %v", what, out.IsError, len(out.Text), out.Text, err)
		}
		if strings.Contains(out.Text, "sk-very") || strings.Contains(out.Text, "Bearer") {
			t.Errorf("%s: the secret is in the output", what)
		}
	}
}

func TestHTTPGigabyteIsNotRead(t *testing.T) {
	var wrote atomic.Int64
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		block := []byte(strings.Repeat("a", 64<<10))
		for wrote.Load() < 1<<30 {
			n, err := w.Write(block)
			wrote.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	out, err := call(t, t.Context(), local(), object{"url": url}, `{}`)
	runtime.ReadMemStats(&after)
	if err != nil || len(out.Text) > maxOutput+100 || !strings.Contains(out.Text, "cut") {
		t.Errorf("%d bytes, %v", len(out.Text), err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
		t.Errorf("it took %d bytes of memory", took)
	}
	if n := wrote.Load(); n > 64<<20 {
		t.Errorf("the server could write %d bytes", n)
	}
}

func TestHTTPRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var reached atomic.Bool
	inner := serve(t, func(http.ResponseWriter, *http.Request) { reached.Store(true) })
	url := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, inner, http.StatusTemporaryRedirect) })
	out, err := call(t, t.Context(), local(), object{"url": url}, `{}`)
	if err != nil || !out.IsError || !strings.Contains(out.Text, "307 Temporary Redirect") || reached.Load() {
		t.Errorf("%+v, %v, reached %t", out, err, reached.Load())
	}
}

func TestHTTPFailuresSayWhetherTheCallMayHaveHadAnEffect(t *testing.T) {
	t.Parallel()
	// A server notices that its client has gone once it has read the request.
	hanging := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	breaking := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	halfway := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
	})
	dripping := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for what, c := range map[string]struct {
		url     string
		unknown bool
		says    string
	}{
		"a timeout":            {hanging, true, "no response within 1 s"},
		"a slow body":          {dripping, true, "no response within 1 s"},
		"a broken connection":  {breaking, true, "closed the connection"},
		"a broken answer":      {halfway, true, "was cut off"},
		"another protocol":     {serve(t, switching), true, "101 Switching Protocols"},
		"nobody there":         {"http://" + closed.Addr().String(), false, "refused the connection"},
		"no such name":         {"http://nowhere.invalid/", false, "nowhere.invalid"},
		"an address not meant": {"http://127.0.0.1.nip.invalid/", false, "nip.invalid"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			out, err := call(t, t.Context(), local(), object{"url": c.url, "timeout_seconds": 1, "headers": object{"Authorization": testSecret}}, `{}`)
			f := failure(t, err)
			if out != (Output{}) || f.Unknown != c.unknown || !strings.Contains(f.Error(), c.says) || strings.Contains(f.Error(), "secret") {
				t.Errorf("%+v: %q, unknown %t", out, f, f.Unknown)
			}
		})
	}
}

func TestHTTPPrivateAddressIsRefused(t *testing.T) {
	t.Parallel()
	var reached atomic.Bool
	url := serve(t, func(http.ResponseWriter, *http.Request) { reached.Store(true) })
	// The policy was another one when the tool was checked.
	specs, secrets := parsed(t, local(), object{"type": "http", "name": "tool", "url": url})
	strict := NewExecutor(safehttp.New(safehttp.Policy{AllowHTTP: true}), "1")
	tools, err := strict.Resolve(t.Context(), specs, secrets)
	if err != nil {
		t.Fatal(err)
	}
	_, err = strict.Run(t.Context(), Invocation{tools[0], specs[0], secrets, nil, "k", nil})
	if f := failure(t, err); f.Unknown || !strings.Contains(f.Message, "loopback") || reached.Load() {
		t.Errorf("%+v, reached %t", f, reached.Load())
	}
}

func TestCanceledHTTPCallEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	})
	_, err := call(t, ctx, local(), object{"url": url, "timeout_seconds": 300}, `{}`)
	if f := failure(t, err); !f.Unknown || !errors.Is(err, context.Canceled) {
		t.Errorf("%+v", f)
	}
	specs, secrets := parsed(t, local(), object{"type": "http", "name": "tool", "url": url})
	_, err = local().Run(ctx, Invocation{Tool{Kind: HTTP}, specs[0], secrets, nil, "k", nil})
	if f := failure(t, err); f.Unknown {
		t.Error("a call that was cancelled before it began had no effect")
	}
}

// A server that closes a kept connection just as a request arrives makes
// net/http send it again, because it has an Idempotency-Key.
func TestHTTPRequestIsNeverSentTwice(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if requests.Add(1) == 1 {
			return // well, and the connection could be kept
		}
		panic(http.ErrAbortHandler)
	})
	x := local()
	if _, err := call(t, t.Context(), x, object{"url": url}, `{}`); err != nil {
		t.Fatal(err)
	}
	_, err := call(t, t.Context(), x, object{"url": url}, `{}`)
	if f := failure(t, err); !f.Unknown || requests.Load() != 2 {
		t.Errorf("%+v, %d requests, want 2", f, requests.Load())
	}
}

func TestHTTPWorksOverHTTP2(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	guard := safehttp.New(safehttp.Policy{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	x := NewExecutor(guard, "1")
	x.single = guard.Client(safehttp.ClientOptions{MaxIdlePerHost: -1, RootCAs: roots}).Transport
	for range 3 {
		out, err := call(t, t.Context(), x, object{"url": s.URL}, `{}`)
		if err != nil || out.Text != "HTTP/2.0" {
			t.Fatalf("%+v, %v", out, err)
		}
	}
}

func TestFailuresAndSpecsDoNotContainHeaders(t *testing.T) {
	t.Parallel()
	specs, secrets := parsed(t, local(), object{"type": "http", "name": "tool", "url": "http://nowhere.invalid/?token=hidden-in-query", "headers": object{"Authorization": testSecret}})
	_, err := local().Run(t.Context(), Invocation{Tool{Kind: HTTP}, specs[0], secrets, nil, "k", nil})
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Error("failed", "error", err)
	if text := log.String(); strings.Contains(text, "sk-very") || strings.Contains(text, "hidden-in-query") {
		t.Errorf("the log has it: %s", text)
	}
}

func TestFunctionsAreNotExecuted(t *testing.T) {
	t.Parallel()
	specs, secrets := parsed(t, local(), `{"type":"function","name":"f","require_approval":"always"}`)
	tools, err := local().Resolve(t.Context(), specs, secrets)
	if want := []Tool{{Name: "f", Kind: Function, Parameters: noParameters, NeedsApproval: true}}; err != nil || !reflect.DeepEqual(tools, want) {
		t.Errorf("%+v, %v", tools, err)
	}
	if _, err := local().Run(t.Context(), Invocation{tools[0], specs[0], secrets, nil, "k", nil}); err == nil {
		t.Error("a function was executed")
	}
}

func TestModelCannotChangeTheURL(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	url := serve(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	out, err := call(t, t.Context(), local(), object{"url": url + "/?tenant=mine", "method": "GET"}, `{"q":"x","tenant":"other"}`)
	if err != nil || !out.IsError || !strings.Contains(out.Text, `"tenant"`) || asked.Load() != 0 {
		t.Errorf("%+v, %v, asked %d times", out, err, asked.Load())
	}
}

func TestSecretInsideAnotherSecretIsRedacted(t *testing.T) {
	t.Parallel()
	headers := map[string]string{"A": "abcdefgh", "B": "abcdefgh-ijklmnop", "C": "x-abcdefgh"}
	for range 20 { // maps have no order
		if got := redact("abcdefgh-ijklmnop x-abcdefgh abcdefgh", headers); got != "[hidden] [hidden] [hidden]" {
			t.Fatal(got)
		}
	}
}

func TestSecretsAreRedactedInEveryCommonEncoding(t *testing.T) {
	t.Parallel()
	headers := map[string]string{"Authorization": `Bearer ab/cd+"ef\gh<i>&=é😀`}
	for what, text := range map[string]string{
		"as it is":             `ab/cd+"ef\gh<i>&=é😀`,
		"JSON":                 `ab/cd+\"ef\\gh<i>&=é😀`,
		"JSON of PHP":          `ab\/cd+\"ef\\gh<i>&=\u00e9\ud83d\ude00`,
		"JSON of Go":           `ab/cd+\"ef\\gh\u003ci\u003e\u0026=é😀`,
		"JSON of .NET":         `ab/cd\u002B\u0022ef\\gh\u003Ci\u003E\u0026=\u00E9\uD83D\uDE00`,
		"JSON in JSON":         `ab\\\/cd+\\\"ef\\\\gh<i>&=\\u00e9\\ud83d\\ude00`,
		"of a URL":             `ab%2Fcd%2B%22ef%5Cgh%3Ci%3E%26%3D%C3%A9%F0%9F%98%80`,
		"of a URL, lower case": `ab%2fcd%2b%22ef%5cgh%3ci%3e%26%3d%c3%a9%f0%9f%98%80`,
	} {
		if got := redact("<"+text+">", headers); got != "<[hidden]>" {
			t.Errorf("%s: %s", what, got)
		}
		if got := redact(`{"a":"Bearer `+text+`"}`, headers); got != `{"a":"[hidden]"}` {
			t.Errorf("%s, all of it: %s", what, got)
		}
	}
	for _, text := range []string{`ab\/cd+`, `\`, `\u12`, `%2`, `100 %`, `a\nb\u00e9 %41`, ``} {
		if got := redact(text, headers); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestTruncatedResponseHasNoPartOfASecret(t *testing.T) {
	t.Parallel()
	secret := strings.Repeat("s/", 3000)
	escaped := strings.Repeat(`s\/`, 3000)
	for what, body := range map[string]string{
		"across the limit":      strings.Repeat("a", maxOutput-50) + escaped,
		"at the end of reading": strings.Repeat(escaped, 1+readBytes/len(escaped)),
	} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, body)
		})
		out, err := call(t, t.Context(), local(), object{"url": url, "headers": object{"X-Key": secret}}, `{}`)
		if err != nil || strings.Contains(out.Text, "s/") || strings.Contains(out.Text, `s\/`) || !strings.Contains(out.Text, "[hidden]") {
			t.Errorf("%s: got %d bytes (%v), want them redacted", what, len(out.Text), err)
		}
	}
}

func TestTruncatedCharacterIsStillText(t *testing.T) {
	t.Parallel()
	for _, character := range []string{"a", "é", "€", "😀"} {
		for skip := range len(character) {
			body := []byte(strings.Repeat("-", skip) + strings.Repeat(character, readBytes/len(character)+1))
			if text, ok := readText("application/x-unknown", body[:readBytes], nil); !ok {
				t.Errorf("%s after %d bytes: %s", character, skip, text)
			}
		}
	}
	if _, ok := readText("application/x-unknown", []byte("half an \xc3"), nil); ok {
		t.Error("a complete body that ends within a character is taken for text")
	}
}
