package chaos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/test/chaos/program"
	"turnpike/test/harness"
)

// TestTranscriptionJobsSurviveKill9 repeatedly kills the server while a provider transcribes. Every job
// ends with its transcript and one event, and is charged once, although calls are repeated.
func TestTranscriptionJobsSurviveKill9(t *testing.T) {
	t.Parallel()
	kills, jobs := 2, 12
	if full {
		kills, jobs = 10, 100
	}
	eachEngine(t, func(t *testing.T, at program.Place) {
		// The provider answers as many calls as there are tokens.
		tokens := make(chan struct{}, jobs)
		answerAll := sync.OnceFunc(func() { close(tokens) })
		s := newMediaProvider(t, func() time.Duration { <-tokens; return 0 })
		t.Cleanup(answerAll)
		w := newMediaFixture(t, at, s, "--media-per-workspace=2")
		paths := make([]string, jobs)
		for i := range paths {
			paths[i] = w.createTranscription(t, "listener")
		}
		for n := range kills {
			some := jobs / (2 * kills)
			for range some {
				tokens <- struct{}{}
			}
			eventually(t, time.Minute, "calls are in progress", func() bool { return len(s.received("POST")) > (n+1)*some })
			w.server.Kill()
			w.restart(t)
		}
		answerAll()
		for _, path := range paths {
			j := w.waitForEnd(t, w.account.key, path, time.Minute)
			if j.Status != "completed" || j.Cost != credits.Credit {
				t.Errorf("got job %+v, want a completed one for a credit", j)
				continue
			}
			if file, err := w.fetch(j.URL); err != nil || !strings.Contains(string(file), "A word.") {
				t.Errorf("got the transcript %q (%v)", file, err)
			}
		}
		if n := len(s.received("POST /audio/transcriptions")); n <= jobs {
			t.Errorf("got %d calls for %d jobs, want more: the kills came at the wrong moments to show anything", n, jobs)
		}
		if n := count(t, w.d, "SELECT count(*) FROM events WHERE type = 'voice.transcription.completed'"); n != jobs {
			t.Errorf("got %d events, want %d", n, jobs)
		}
		if n := count(t, w.d, "SELECT count(*) FROM requests WHERE path = '/v1/voice/transcriptions' AND credits = $1", int64(credits.Credit)); n != jobs {
			t.Errorf("the log has %d charged jobs, want %d", n, jobs)
		}
		if spent := totalSpent(t, w.d); spent != credits.Micro(jobs)*credits.Credit {
			t.Errorf("got %s charged, want %d", spent, jobs)
		}
		w.checkFiles(t)
		stop(t, w.server)
		checkBalances(t, w.d)
	})
}

// createTranscription creates a job for a second of audio.
func (w *mediaFixture) createTranscription(t *testing.T, model string) (path string) {
	t.Helper()
	form, header := harness.TranscriptionForm(model)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.server.URL+"/v1/voice/transcriptions", strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	req.Header.Set("Authorization", "Bearer "+w.account.key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var j job
	if err := json.NewDecoder(res.Body).Decode(&j); err != nil || j.ID == "" {
		t.Fatal(fmt.Errorf("failed to create a job: %d, %w", res.StatusCode, err))
	}
	return "/v1/voice/transcriptions/" + j.ID
}
