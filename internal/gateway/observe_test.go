package gateway

import (
	"context"
	"errors"
	"io"
	"math/big"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/providers"
)

// TestCallsAreObserved as the log has them, each once.
func TestCallsAreObserved(t *testing.T) {
	t.Parallel()
	base := newRig(t, nil)
	for name, tt := range map[string]struct {
		do      doing
		call    string
		failure string
	}{
		"plain":              {says(10, 5), plainCall, ""},
		"stream":             {says(10, 5), streamedCall, ""},
		"stream that breaks": {streams(&fakeStream{chunks: []providers.Chunk{said("a")}, end: &providers.Failure{Kind: providers.KindCut}}), streamedCall, "upstream_error"},
		"refused":            {fails(providers.Failure{Kind: providers.KindInvalid, Status: 400}), plainCall, "invalid_parameter"},
	} {
		r := base.serving(t, []providers.Provider{doer("one", tt.do)})
		out := r.chat(tt.call)
		seen := r.observed()
		if len(seen) != 1 {
			t.Errorf("%s: observed %d times", name, len(seen))
			continue
		}
		o := seen[0]
		if o.Operation != "chat" || o.Environment != "live" || o.Provider != "one" || o.Requested != "small" || o.Model != "small" || !o.Known {
			t.Errorf("%s: observed as %+v", name, o)
		}
		if o.Input != out.Input || o.Output != out.Output || o.Credits != out.Charged || o.Failure != tt.failure {
			t.Errorf("%s: observed with %d in, %d out, %s credits and %q; the log has %d, %d, %s", name, o.Input, o.Output, o.Credits, o.Failure, out.Input, out.Output, out.Charged)
		}
		if broken := strings.Contains(name, "breaks"); broken != slices.ContainsFunc(o.Attempts, func(a Attempt) bool { return a.Outcome == string(providers.KindCut) }) {
			t.Errorf("%s: the attempts are %v", name, o.Attempts)
		}
		if n := r.InFlight(); n != 0 {
			t.Errorf("%s: %d calls are in flight", name, n)
		}
	}
}

// TestWhoWatchesIsToldLater: the call's place is free and its charge noted before.
func TestWhoWatchesIsToldLater(t *testing.T) {
	t.Parallel()
	r := newRig(t, []providers.Provider{doer("one", says(10, 5))})
	var later []func()
	c := r.open()
	c.Body, c.Later = []byte(plainCall), func(do func()) { later = append(later, do) }
	if _, err := r.Chat(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	c.Record.Settle(func(e *audit.Entry) { e.Status = 200 })
	if n := len(r.observed()); n != 0 || len(later) != 1 || r.InFlight() != 1 {
		t.Errorf("observed %d times, %d things are left for later, %d calls in flight", n, len(later), r.InFlight())
	}
	r.chat(plainCall) // there is one place only
	for _, do := range later {
		do()
	}
	if n := len(r.observed()); n != 2 || r.InFlight() != 0 {
		t.Errorf("observed %d times, %d calls in flight", n, r.InFlight())
	}
}

// TestNames that no caller has made up.
func TestNames(t *testing.T) {
	t.Parallel()
	r := newRig(t, []providers.Provider{doer("shop", says(1, 1))}, shop())
	r.routes = map[string][]string{"mine": {"dear"}}
	for name, want := range map[string]bool{"auto": true, "auto:slowest": false, "route/mine": true, "route/yours": false, "cheap": true, "gpt-4o-mini": true, "invented": false} {
		if r.named(name) != want {
			t.Errorf("%s is named: %t", name, !want)
		}
	}
}

// TestCallsInFlight are those whose answer has not ended.
func TestCallsInFlight(t *testing.T) {
	t.Parallel()
	r := newRig(t, []providers.Provider{doer("one", says(10, 5))})
	c := r.open()
	c.Body = []byte(streamedCall)
	answer, err := r.Chat(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.InFlight(); n != 1 {
		t.Errorf("%d in flight while it streams", n)
	}
	_ = answer.Stream.Close()
	_ = answer.Stream.Close()
	if seen := r.observed(); len(seen) != 1 || seen[0].Failure != "client_left" {
		t.Errorf("one that was left is observed as %+v", seen)
	}
	if n := r.InFlight(); n != 0 {
		t.Errorf("%d in flight after its end", n)
	}
	c.Record.Settle(func(*audit.Entry) {})
}

// speaker is a provider that reads one file aloud.
type speaker struct {
	*fake
	body io.Reader
}

func (s speaker) Speech(context.Context, *providers.SpeechRequest) (*providers.Content, error) {
	return &providers.Content{ContentType: "audio/wav", Body: io.NopCloser(s.body), Size: -1}, nil
}

// TestSoundIsObserved as it ended: whole, left by its client, or broken off.
func TestSoundIsObserved(t *testing.T) {
	t.Parallel()
	cut := &providers.Failure{Kind: providers.KindCut, Err: errors.New("as the test says")}
	for name, tt := range map[string]struct {
		body    io.Reader
		read    int64 // how much of it the client takes
		failure string
	}{
		"whole":  {strings.NewReader("sound"), 100, ""},
		"left":   {strings.NewReader("sound"), 2, "client_left"},
		"broken": {io.MultiReader(strings.NewReader("so"), iotest.ErrReader(cut)), 100, "upstream_error"},
	} {
		price := catalog.ListPrice{PerCharacter: big.NewRat(1, 1000)}
		r := newRig(t, []providers.Provider{speaker{doer("mouth", says(1, 1)), tt.body}},
			catalog.Supplier{Models: []catalog.Supply{{ID: "talk", Kind: catalog.Speech, Price: &price}}})
		c := r.open()
		c.Body = []byte(`{"model":"talk","voice":"alloy","input":"Hello","response_format":"wav"}`)
		answer, err := r.Speech(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(answer.Sound, tt.read))
		_ = answer.Sound.Close()
		c.Record.Settle(func(*audit.Entry) {})
		seen := r.observed()
		if len(seen) != 1 || seen[0].Operation != "speech" || seen[0].Failure != tt.failure {
			t.Errorf("%s: observed as %+v", name, seen)
		} else if broken := len(seen[0].Attempts) > 0 && seen[0].Attempts[0].Outcome == string(providers.KindCut); broken != (name == "broken") {
			t.Errorf("%s: the attempts are %v", name, seen[0].Attempts)
		}
	}
}
