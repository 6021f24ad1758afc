package chaos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/batches"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/lanes"
	"turnpike/test/chaos/program"
	"turnpike/test/fakes/upstreams"
)

// TestUpstreamBatchSurvivesKill9 kills the server when a provider has created its batch, before the
// server knows, and again while it reads the results. The provider has one batch, and every line is
// charged once, at the batch price.
func TestUpstreamBatchSurvivesKill9(t *testing.T) {
	t.Parallel()
	const lines = 250 // more than a transaction stores
	eachEngine(t, func(t *testing.T, at program.Place) {
		provider := upstreams.NewOpenAI(t, "sk-provider")
		path := filepath.Join(at.Dir, "upstream.yaml")
		settings := fmt.Sprintf(`
limits: {live_requests_per_minute: 0, live_tokens_per_minute: 0, live_in_flight: 0}
providers:
  - {name: openai, type: openai, base_url: %s, api_key: sk-provider, batch_price_percent: 50, models: [{id: %s, price: {input: 0, output: 10}}]}
`, provider.BaseURL(), callModel)
		if err := os.WriteFile(path, []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
		w := &mediaFixture{at: at, args: []string{"--config=" + path}}
		w.server, w.d = serve(t, at, w.args...), open(t, at)
		w.account = newAccount(t, at, w.server.URL)
		w.account.setCredits(t, w.server.URL, 20_000*credits.Credit)
		var killed sync.WaitGroup
		killed.Add(2)
		provider.Batches.Created = sync.OnceFunc(func() { w.server.Kill(); killed.Done() })
		provider.Batches.Read = sync.OnceFunc(func() { w.server.Kill(); killed.Done() })

		var input strings.Builder
		for i := range lines {
			fmt.Fprintf(&input, `{"custom_id":"line-%d","method":"POST","url":"/v1/chat/completions","body":{"model":"%s","max_tokens":%d,"messages":[{"role":"user","content":"Hi."}]}}`+"\n", i, callModel, callTokens)
		}
		batch := w.createBatch(t, input.String())
		eventually(t, time.Minute, "the provider has the batch", func() bool { return len(provider.Batches.All()) == 1 })
		w.restart(t)
		eventually(t, time.Minute, "the batch is found again", func() bool {
			if count(t, w.d, "SELECT count(*) FROM batches WHERE upstream_id IS NOT NULL") == 1 {
				return true
			}
			// Instead of waiting ten minutes. The server may be postponing the batch, so once can be too early.
			w.wakeBatch(t, "submitting_at = submitting_at - 600000000")
			return false
		})
		provider.Batches.End("completed", lines)
		w.wakeBatch(t, "id = id")
		killed.Wait()
		w.restart(t)
		w.wakeBatch(t, "id = id")
		var b struct {
			Status  string
			Cost    credits.Micro
			Counted struct{ Completed int } `json:"request_counts"`
		}
		eventually(t, 2*time.Minute, "the batch ends", func() bool {
			o := call(w.server.URL, request{mark: "batch", method: "GET", path: batch, key: w.account.key})
			return o.status == http.StatusOK && json.Unmarshal(o.body, &b) == nil && b.Status == "completed"
		})
		if all := provider.Batches.All(); len(all) != 1 || len(all[0].Lines) != lines {
			t.Errorf("the provider has %d batches, want one with all lines", len(all))
		}
		// Seven output tokens at half a hundredth of a credit.
		if want := lines * 7 * credits.Credit / 200; b.Cost != want || b.Counted.Completed != lines {
			t.Errorf("got %d lines for %s, want %d for %s", b.Counted.Completed, b.Cost, lines, want)
		}
		if n := count(t, w.d, "SELECT count(*) FROM requests WHERE path = $1 AND method = 'POST' AND credits > 0 AND settled", batch); n != lines {
			t.Errorf("the log has %d charged requests, want %d", n, lines)
		}
		w.checkSettled(t, "batch.completed", b.Cost)
	})
}

// wakeBatch changes the batch, and makes the work on it due.
func (w *mediaFixture) wakeBatch(t *testing.T, change string) {
	t.Helper()
	eventually(t, time.Minute, "the batch is due", func() bool {
		err := w.d.Write(t.Context(), func(tx *db.Tx) error {
			now := time.Now()
			if _, err := tx.Exec(t.Context(), "UPDATE batches SET "+change); err != nil {
				return err
			}
			if _, err := tx.Exec(t.Context(), "UPDATE batch_lines SET due_at = $1 WHERE position = 0", now.UnixMicro()); err != nil {
				return err
			}
			names, err := db.Strings(tx.Query(t.Context(), "SELECT id FROM lanes WHERE queue = $1", batches.Queue))
			if err != nil {
				return err
			}
			due := map[string]time.Time{}
			for _, id := range names {
				due[id] = now
			}
			return lanes.Enqueue(t.Context(), tx, batches.Queue, due)
		})
		return err == nil
	})
}
