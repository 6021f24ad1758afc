package tunnel

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"turnpike/test/fakes/safehttptest"
)

func TestParseTarget(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"localhost:3000/hooks":           "http://localhost:3000/hooks",
		"localhost:3000":                 "http://localhost:3000/",
		"3000":                           "http://localhost:3000/",
		"3000/hooks?a=b":                 "http://localhost:3000/hooks?a=b",
		"http://127.0.0.1:3000":          "http://127.0.0.1:3000/",
		"https://localhost:8443/a%2Fb":   "https://localhost:8443/a%2Fb",
		" [::1]:3000/hooks ":             "http://[::1]:3000/hooks",
		"host.docker.internal:3000/hook": "http://host.docker.internal:3000/hook",
	} {
		if u, err := ParseTarget(given); err != nil || u.String() != want {
			t.Errorf("ParseTarget(%q): got %v, %v, want %s", given, u, err, want)
		}
	}
	for _, wrong := range []string{"", "/hooks", "ftp://localhost", "http://", "http://user:secret@localhost:3000", "localhost:3000/#top", "http://local host"} {
		if u, err := ParseTarget(wrong); err == nil {
			t.Errorf("ParseTarget(%q): got %v, want an error", wrong, u)
		}
	}
}

func TestForwardFailsIfTheLocalServiceSwitchesProtocols(t *testing.T) {
	t.Parallel()
	left := make(chan bool)
	local := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		safehttptest.Switching(w, r)
		close(left)
	}))
	defer local.Close()
	target, err := ParseTarget(local.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := NewClient(Options{Target: target}).forward(&delivery{ID: "dlv_1", Attempt: 1, Body: []byte("{}")})
	if r.Class != "protocol" || r.Status != 0 || !strings.Contains(r.Error, "101 Switching Protocols") {
		t.Errorf("got %+v, want a protocol error", r)
	}
	<-left
}

func TestRepliesAreBounded(t *testing.T) {
	t.Parallel()
	m := newReplies()
	const n = maxReplies + 100
	made := make([]*reply, n)
	for i := range n {
		key := attempt{fmt.Sprint(i), 1}
		c, created := m.begin(key)
		if !created {
			t.Fatalf("attempt %d is already known", i)
		}
		made[i] = c
		m.finish(key, c, &result{ID: key.id, Status: 200 + i%2, Body: make([]byte, keepBody)})
	}
	if len(m.byID) != maxReplies {
		t.Errorf("got %d replies, want %d", len(m.byID), maxReplies)
	}
	for i, known := range map[int]bool{0: false, 99: false, 100: true, n - 1: true} {
		c, created := m.begin(attempt{fmt.Sprint(i), 1})
		if created == known {
			t.Errorf("attempt %d is known: got %t, want %t", i, !created, known)
		}
		if known && (c != made[i] || c.wait().Status != 200+i%2) {
			t.Errorf("attempt %d: got the reply of another", i)
		}
	}
	if _, created := m.begin(attempt{fmt.Sprint(n - 1), 2}); !created {
		t.Error("the next attempt got the reply of the previous one")
	}
}

func TestClientReconnectsUnlessTheServerRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{errors.New("connection refused"), false},
		{ended(websocket.CloseError{Code: websocket.StatusServiceRestart, Reason: "the server is stopping"}), false},
		{ended(websocket.CloseError{Code: closeReplaced, Reason: "another client has connected"}), true},
		{ended(websocket.CloseError{Code: closeRefused, Reason: "the key is no longer allowed to listen"}), true},
		{&Refusal{Status: 401, Code: "authentication_error"}, true},
		{&Refusal{Status: 404, Code: "not_found"}, true},
		{&Refusal{Status: 404}, false}, // of a proxy
		{&Refusal{Status: 429, Code: "rate_limit_exceeded"}, false},
		{&Refusal{Status: 503, Code: "storage_unavailable"}, false},
		{&Refusal{Status: 502}, false},
	} {
		if got := final(c.err); got != c.want {
			t.Errorf("final(%v): got %t, want %t", c.err, got, c.want)
		}
	}
}

// FuzzResult checks that every reported result can be stored, and that only a
// response is a success.
func FuzzResult(f *testing.F) {
	f.Add([]byte(`{"type":"result","result":{"id":"dlv_1","attempt":1,"status":200,"header":[["A","b"]],"body":"b2s="}}`))
	f.Add([]byte(`{"type":"result","result":{"class":"dns","error":"\u0000","timings":{"dns_us":-1,"address":"\ud800"}}}`))
	f.Add([]byte(`{"type":"result","result":{"status":99999,"header":[[]]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var fr frame
		if json.Unmarshal(b, &fr) != nil || fr.Result == nil {
			return
		}
		out := fr.Result.outcome()
		if out.NotConnected || (out.Status == 0) == (out.Class == "") || out.Status < 0 || out.Status > 999 || len(out.Body) > keepBody {
			t.Errorf("%s: got outcome %+v", b, out)
		}
		if out.Status == 0 && (!slices.Contains(classes, out.Class) || out.Error == "") {
			t.Errorf("%s: got outcome %+v", b, out)
		}
		for _, text := range []string{out.Error, out.Timings.Address} {
			if !utf8.ValidString(text) || strings.ContainsRune(text, 0) || len(text) > 3*keepError {
				t.Errorf("%q cannot be stored", text)
			}
		}
		for _, d := range []time.Duration{out.Timings.DNS, out.Timings.Connect, out.Timings.TLS, out.Timings.FirstByte} {
			if d < 0 || d > time.Hour {
				t.Errorf("got duration %v", d)
			}
		}
	})
}
