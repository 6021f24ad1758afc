package chaos

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/test/chaos/program"
)

func TestGracefulShutdownFinishesRequestsInFlight(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, at program.Place) {
		server := serve(t, at)
		key := newKey(t, at)
		const streams, plain, tokens = 20, 10, 60
		outcomes := make([]*outcome, streams+plain)
		var begun, calls sync.WaitGroup
		begun.Add(len(outcomes))
		for i := range outcomes {
			mark := fmt.Sprintf("shutdown/%d", i)
			r := chat(mark, key, "Take your time. [[sim:delay=1500ms]]", false)
			r.expect = true
			if i < streams {
				r = chat(mark, key, fmt.Sprintf("Slowly. [[sim:length=%d]] [[sim:chunk_delay=25ms]]", tokens), true)
			}
			once := sync.OnceFunc(begun.Done)
			calls.Go(func() {
				defer once() // a failed request has started too
				c := newClient(server.URL)
				defer c.close()
				outcomes[i] = c.do(r, func([]byte) { once() })
			})
		}
		begun.Wait()

		if err := server.Terminate(); err != nil {
			t.Fatal(err)
		}
		eventually(t, 10*time.Second, "the server accepts no more requests", func() bool {
			conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
			if err != nil {
				return true
			}
			conn.Close()
			return false
		})
		// Closing a terminal may send the signal twice.
		if err := server.Terminate(); err != nil {
			t.Fatal(err)
		}
		calls.Wait()
		if code, err := server.Wait(30 * time.Second); code != 0 || err != nil {
			t.Errorf("got exit code %d (%v), want 0", code, err)
		}

		checkWhole(t, outcomes)
		wrong := &failures{t: t}
		defer wrong.done()
		for _, o := range outcomes {
			if !acknowledged(o) {
				wrong.add("got %v, want 200", o)
			}
			// The first chunk has the role and no content.
			if pieces := strings.Count(string(o.body), `"content":"`) - 1; o.streamed && pieces != tokens {
				wrong.add("got %d chunks, want %d: %v", pieces, tokens, o)
			}
		}
		settled := count(t, open(t, at), `SELECT count(*) FROM requests WHERE user_agent LIKE 'shutdown/%'
			AND settled AND status = 200 AND usage_source = 'provider' AND output_tokens > 0`)
		if settled != len(outcomes) {
			t.Errorf("got %d of %d requests settled in the log, want all", settled, len(outcomes))
		}
	})
}
