package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/test/chaos/program"
)

// TestBatchSurvivesKill9 kills the server during a batch, in the middle of calls to the provider.
// Every line ends with one result and is charged for one request, and there is one event.
//
// Without a record before each call, a line in progress would be charged twice or never run again.
func TestBatchSurvivesKill9(t *testing.T) {
	t.Parallel()
	kills, lines := 3, 150
	if full {
		kills, lines = 10, 1000
	}
	eachEngine(t, func(t *testing.T, at program.Place) {
		var calls atomic.Int64
		provider := upstream(t, func() int64 { calls.Add(1); return 100 }, func() time.Duration { return 10*time.Millisecond + rand.N(40*time.Millisecond) })
		path := filepath.Join(at.Dir, "batches.yaml")
		settings := fmt.Sprintf(`
limits: {live_requests_per_minute: 0, live_tokens_per_minute: 0, live_in_flight: 0}
providers:
  - {name: metered, type: openai, base_url: %s, api_key: sk-provider, models: [{id: %s, price: %s}]}
`, provider, callModel, callPrice)
		if err := os.WriteFile(path, []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
		w := &mediaFixture{at: at, args: []string{"--config=" + path}}
		w.server, w.d = serve(t, at, w.args...), open(t, at)
		w.account = newAccount(t, at, w.server.URL)
		w.account.setCredits(t, w.server.URL, 20_000*credits.Credit)

		var input strings.Builder
		for i := range lines {
			fmt.Fprintf(&input, `{"custom_id":"line-%d","method":"POST","url":"/v1/chat/completions","body":{"model":"%s","max_tokens":%d,"messages":[{"role":"user","content":"Hi."}]}}`+"\n", i, callModel, callTokens)
		}
		batch := w.createBatch(t, input.String())
		for range kills {
			killAt := calls.Load() + 1 + rand.Int64N(int64(lines/kills))
			eventually(t, time.Minute, "the provider gets calls", func() bool { return calls.Load() >= killAt })
			w.server.Kill()
			w.restart(t)
		}
		var b struct {
			Status  string
			Cost    credits.Micro
			Output  string                                 `json:"output_file_id"`
			Failed  string                                 `json:"error_file_id"`
			Counted struct{ Total, Completed, Failed int } `json:"request_counts"`
		}
		eventually(t, 2*time.Minute, "the batch ends", func() bool {
			o := call(w.server.URL, request{mark: "batch", method: "GET", path: batch, key: w.account.key})
			return o.status == http.StatusOK && json.Unmarshal(o.body, &b) == nil && b.Status == "completed"
		})
		if b.Counted.Total != lines || b.Counted.Completed != lines || b.Failed != "" {
			t.Errorf("got the batch %+v, want %d completed lines", b, lines)
		}
		o := call(w.server.URL, request{mark: "results", method: "GET", path: "/v1/files/" + b.Output + "/content", key: w.account.key})
		seen := map[string]bool{}
		for text := range strings.Lines(string(o.body)) {
			var l struct {
				CustomID string `json:"custom_id"`
				Response struct {
					RequestID string `json:"request_id"`
				}
			}
			if err := json.Unmarshal([]byte(text), &l); err != nil || seen[l.CustomID] || l.Response.RequestID == "" {
				t.Errorf("got the result %s (%v), want one for each line", text, err)
			}
			seen[l.CustomID] = true
			if n := count(t, w.d, "SELECT count(*) FROM requests WHERE id = $1 AND settled AND credits > 0", l.Response.RequestID); n != 1 {
				t.Errorf("the log has %d charged requests %s, want 1", n, l.Response.RequestID)
			}
		}
		if len(seen) != lines {
			t.Errorf("%d lines have a result, want %d", len(seen), lines)
		}
		// 100 output tokens cost a tenth of a credit.
		if want := credits.Micro(lines) * credits.Credit / 10; b.Cost != want {
			t.Errorf("the batch cost %s, want %s", b.Cost, want)
		}
		t.Logf("%d kills; %d calls for %d lines", w.deaths, calls.Load(), lines)
		w.checkSettled(t, "batch.completed", b.Cost)
	})
}

// createBatch uploads the input and creates a batch of chat completions.
func (w *mediaFixture) createBatch(t *testing.T, input string) (path string) {
	t.Helper()
	var form bytes.Buffer
	writer := multipart.NewWriter(&form)
	part, err := writer.CreateFormFile("file", "requests.jsonl")
	if err == nil {
		_, err = io.WriteString(part, input)
	}
	if err = errors.Join(err, writer.WriteField("purpose", "batch"), writer.Close()); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.server.URL+"/v1/files", &form)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", writer.FormDataContentType())
	req.Header.Set("Authorization", "Bearer "+w.account.key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var created struct{ ID string }
	if err := json.NewDecoder(res.Body).Decode(&created); err != nil || created.ID == "" {
		t.Fatalf("failed to upload the input: %d, %v", res.StatusCode, err)
	}
	o := call(w.server.URL, request{mark: "batch", method: "POST", path: "/v1/batches", key: w.account.key,
		body: fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h"}`, created.ID)})
	if o.status != http.StatusOK || json.Unmarshal(o.body, &created) != nil {
		t.Fatalf("failed to create a batch: %v\n%s", o, o.body)
	}
	return "/v1/batches/" + created.ID
}
