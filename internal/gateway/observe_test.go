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
	"turnpike/internal/modelroutes"
	"turnpike/internal/providers"
)

func TestEachCallIsObservedOnce(t *testing.T) {
	t.Parallel()
	base := newFixture(t, nil)
	for name, tt := range map[string]struct {
		do      chatFunc
		call    string
		failure string
	}{
		"plain":              {respond(10, 5), plainBody, ""},
		"stream":             {respond(10, 5), streamBody, ""},
		"stream that breaks": {respondStream(&fakeStream{chunks: []providers.Chunk{textChunk("a")}, end: &providers.Failure{Kind: providers.KindCut}}), streamBody, "upstream_error"},
		"refused":            {fail(providers.Failure{Kind: providers.KindInvalid, Status: 400}), plainBody, "invalid_parameter"},
	} {
		r := base.withProviders(t, []providers.Provider{newFake("one", tt.do)})
		out := r.chat(tt.call)
		seen := r.observed()
		if len(seen) != 1 {
			t.Errorf("%s: observed %d times, want 1", name, len(seen))
			continue
		}
		o := seen[0]
		if o.Operation != "chat" || o.Environment != "live" || o.Provider != "one" || o.Requested != "small" || o.Model != "small" || !o.ModelKnown {
			t.Errorf("%s: observed as %+v", name, o)
		}
		if o.Input != out.Input || o.Output != out.Output || o.Credits != out.Charged || o.Failure != tt.failure {
			t.Errorf("%s: observed with %d in, %d out, %s credits and %q; the log has %d, %d, %s", name, o.Input, o.Output, o.Credits, o.Failure, out.Input, out.Output, out.Charged)
		}
		if broken := strings.Contains(name, "breaks"); broken != slices.ContainsFunc(o.Attempts, func(a Attempt) bool { return a.Outcome == string(providers.KindCut) }) {
			t.Errorf("%s: got attempts %v", name, o.Attempts)
		}
		if n := r.InFlight(); n != 0 {
			t.Errorf("%s: %d calls in flight, want 0", name, n)
		}
	}
}

func TestObservationIsDeferredAfterSlotIsFree(t *testing.T) {
	t.Parallel()
	r := newFixture(t, []providers.Provider{newFake("one", respond(10, 5))})
	var deferred []func()
	c := r.newCall()
	c.Body, c.Defer = []byte(plainBody), func(do func()) { deferred = append(deferred, do) }
	if _, err := r.Chat(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	c.Record.Settle(func(e *audit.Entry) { e.Status = 200 })
	if n := len(r.observed()); n != 0 || len(deferred) != 1 || r.InFlight() != 1 {
		t.Errorf("observed %d times, %d deferred, %d calls in flight; want 0, 1, 1", n, len(deferred), r.InFlight())
	}
	r.chat(plainBody) // needs the only slot
	for _, do := range deferred {
		do()
	}
	if n := len(r.observed()); n != 2 || r.InFlight() != 0 {
		t.Errorf("observed %d times, %d calls in flight; want 2, 0", n, r.InFlight())
	}
}

func TestInventedModelNamesAreNotKnown(t *testing.T) {
	t.Parallel()
	r := newFixture(t, []providers.Provider{newFake("acme", respond(1, 1))}, tieredSupplier())
	r.current.Load().routes = map[string]*Route{"mine": {Spec: modelroutes.Spec{Models: []string{"dear"}}}}
	for name, want := range map[string]bool{"auto": true, "auto:slowest": false, "route/mine": true, "route/yours": false, "cheap": true, "gpt-4o-mini": true, "invented": false} {
		if r.current.Load().isKnownName(name) != want {
			t.Errorf("isKnownName(%q) = %t", name, !want)
		}
	}
}

func TestCallIsInFlightUntilItsStreamIsClosed(t *testing.T) {
	t.Parallel()
	r := newFixture(t, []providers.Provider{newFake("one", respond(10, 5))})
	c := r.newCall()
	c.Body = []byte(streamBody)
	response, err := r.Chat(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.InFlight(); n != 1 {
		t.Errorf("%d in flight while streaming, want 1", n)
	}
	_ = response.Stream.Close()
	_ = response.Stream.Close()
	if seen := r.observed(); len(seen) != 1 || seen[0].Failure != "client_left" {
		t.Errorf("observed %+v, want client_left", seen)
	}
	if n := r.InFlight(); n != 0 {
		t.Errorf("%d in flight after the end, want 0", n)
	}
	c.Record.Settle(func(*audit.Entry) {})
}

// speechProvider returns one audio file.
type speechProvider struct {
	*fake
	body io.Reader
}

func (s speechProvider) Speech(context.Context, *providers.SpeechRequest) (*providers.Content, error) {
	return &providers.Content{ContentType: "audio/wav", Body: io.NopCloser(s.body), Size: -1}, nil
}

func TestSpeechOutcomeIsObserved(t *testing.T) {
	t.Parallel()
	cut := &providers.Failure{Kind: providers.KindCut, Err: errors.New("test failure")}
	for name, tt := range map[string]struct {
		body    io.Reader
		read    int64 // by the client
		failure string
	}{
		"whole":  {strings.NewReader("audio"), 100, ""},
		"left":   {strings.NewReader("audio"), 2, "client_left"},
		"broken": {io.MultiReader(strings.NewReader("so"), iotest.ErrReader(cut)), 100, "upstream_error"},
	} {
		price := catalog.ListPrice{PerCharacter: big.NewRat(1, 1000)}
		r := newFixture(t, []providers.Provider{speechProvider{newFake("speech", respond(1, 1)), tt.body}},
			catalog.Supplier{Models: []catalog.ListedModel{{ID: "talk", Kind: catalog.Speech, Price: &price}}})
		c := r.newCall()
		c.Body = []byte(`{"model":"talk","voice":"alloy","input":"Hello","response_format":"wav"}`)
		response, err := r.Speech(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(response.Audio, tt.read))
		_ = response.Audio.Close()
		c.Record.Settle(func(*audit.Entry) {})
		seen := r.observed()
		if len(seen) != 1 || seen[0].Operation != "speech" || seen[0].Failure != tt.failure {
			t.Errorf("%s: observed as %+v", name, seen)
		} else if broken := len(seen[0].Attempts) > 0 && seen[0].Attempts[0].Outcome == string(providers.KindCut); broken != (name == "broken") {
			t.Errorf("%s: got attempts %v", name, seen[0].Attempts)
		}
	}
}
