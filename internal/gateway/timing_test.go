package gateway

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/providers"
)

// TestUpstreamTimeExcludesOwnWaits checks that the log keeps Turnpike's wait between attempts apart from
// the time of the provider, and that it has the status of the attempt that succeeded.
func TestUpstreamTimeExcludesOwnWaits(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"plain": plainBody, "stream": streamBody} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			var passed time.Duration
			after := func(d time.Duration, do chatFunc) chatFunc {
				return func(ctx context.Context, req *providers.ChatRequest) (*providers.Response, error) {
					passed += d
					return do(ctx, req)
				}
			}
			p := newFake("one", after(20*time.Millisecond, fail(providers.Failure{Kind: providers.KindRateLimited, Status: 429})), after(60*time.Millisecond, respond(10, 5)))
			r := newFixture(t, []providers.Provider{p})
			r.Now = func() time.Time { return start.Add(passed) }
			r.sleep = func(_ context.Context, d time.Duration) { passed += d }
			c := r.newCall()
			c.Record = r.log.Open(audit.Entry{RequestID: c.Record.Entry().RequestID, Tenant: c.Principal.Tenant, KeyID: testKey, CreatedAt: start})
			c.Body, c.UseProject = []byte(body), func(context.Context) error {
				passed += 7 * time.Millisecond // as a reservation that waits for others
				return nil
			}
			response, err := r.Chat(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if response.Stream != nil {
				if _, err := readAll(response.Stream); err != nil {
					t.Fatal(err)
				}
				_ = response.Stream.Close()
			}
			e := c.Record.Entry()
			c.Record.Settle(func(e *audit.Entry) { e.Status = 200 })
			var attempts []Attempt
			if err := json.Unmarshal(e.Attempts, &attempts); err != nil || len(attempts) != 2 {
				t.Fatalf("attempts %s, %v; want 2", e.Attempts, err)
			}
			if e.Upstream != 80*time.Millisecond || e.Queue != 7*time.Millisecond {
				t.Errorf("upstream %s, queue %s; want 80ms without the wait of 250ms, and 7ms", e.Upstream, e.Queue)
			}
			if a := attempts[0]; a.Status != 429 || a.MS != 20 || a.WaitMS != 0 {
				t.Errorf("first attempt %+v, want status 429 after 20 ms", a)
			}
			if a := attempts[1]; a.Status != 200 || a.MS != 60 || a.WaitMS != 250 {
				t.Errorf("second attempt %+v, want status 200 after 60 ms and a wait of 250 ms", a)
			}
			if want := map[string]time.Duration{"stream": 337 * time.Millisecond}[name]; e.FirstToken != want {
				t.Errorf("first token after %s, want %s", e.FirstToken, want)
			}
		})
	}
}

// TestLogNamesBrokenAttempt checks that a stream that breaks shows its attempt.
func TestLogNamesBrokenAttempt(t *testing.T) {
	t.Parallel()
	broken := respondStream(&fakeStream{chunks: []providers.Chunk{textChunk("a")}, end: &providers.Failure{Kind: providers.KindCut}})
	for name, do := range map[string][]chatFunc{"first": {broken}, "second": {fail(providers.Failure{Kind: providers.KindServer, Status: 500}), broken}} {
		r := newFixture(t, []providers.Provider{newFake("one", do...)})
		var attempts []Attempt
		if err := json.Unmarshal([]byte(r.chat(streamBody).Attempts), &attempts); err != nil || len(attempts) != len(do) || attempts[len(do)-1].Outcome != string(providers.KindCut) {
			t.Errorf("%s: attempts %+v, %v; want the last one cut", name, attempts, err)
		}
	}
}
