package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/spend"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

const transcripts = "/v1/voice/transcriptions"

func (c *client) transcriptJob(t *testing.T, file []byte, fields ...string) string {
	t.Helper()
	return transcripts + "/" + c.transcribe(t, transcripts, file, fields...).Want(t, 200, "").Text("id")
}

func TestTranscriptionJobsEndWithAFileAndAnEvent(t *testing.T) {
	eachGateway(t, both, withTranscribers, func(t *testing.T, m *gatewayClient) {
		r := m.transcription(t, transcripts, recording(90_000), "model=ear", "response_format=srt", "language=en", "x_new=1", `metadata={"show":"12"}`)
		r.Header.Set("Idempotency-Key", "once")
		first := m.Do(t, r).Want(t, 200, "")
		if first.Text("status") != "queued" || first.At("duration_seconds") != 90.0 || first.Text("metadata.show") != "12" || first.Text("task") != "transcribe" {
			t.Errorf("got %s", first.Body)
		}
		if again := m.Do(t, r).Want(t, 200, ""); again.Text("id") != first.Text("id") || again.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("got %s", again.Body)
		}
		path := transcripts + "/" + first.Text("id")
		done := m.waitForEnd(t, path, "completed")
		if amount(t, done, "cost") != 90*credit || done.Text("content_type") != "text/plain; charset=utf-8" || !strings.Contains(done.Text("url"), first.Text("id")+".srt") {
			t.Errorf("got %s", done.Body)
		}
		if text := follow(t, done.Text("url"), http.StatusOK); !strings.HasPrefix(text, "1\n00:00:00,000") {
			t.Errorf("got %s", text)
		}
		if got := string(m.openai.Requests()[0].Body); strings.Contains(got, "metadata") || !strings.Contains(got, "name=\"language\"\r\n\r\nen\r\n") || !strings.Contains(got, "name=\"x_new\"") {
			t.Errorf("the provider got %.500q", got)
		}
		event := m.get(t, "/v1/events?limit=10")
		if event.Text("data.0.type") != "voice.transcription.completed" || event.Text("data.0.data.id") != first.Text("id") || !strings.Contains(event.Text("data.0.data.url"), ".srt") {
			t.Errorf("got %s", event.Body)
		}
		// Only the transcript is left of the files.
		if n := m.rows(t, "files WHERE expires_at > 0"); n != 1 {
			t.Errorf("got %d files", n)
		}
		translated := m.waitForEnd(t, m.transcriptJob(t, recording(1000), "model=ear", "task=translate"), "completed")
		if translated.Text("task") != "translate" || m.openai.Requests()[1].Path != "/audio/translations" {
			t.Errorf("got %s", translated.Body)
		}
		m.checkLedger(t, 91*credit)
		m.Do(t, harness.Request{Method: "DELETE", Path: path, Key: m.key}).Want(t, 200, "")
		m.ask(t, "GET", path, nil).Want(t, 404, "not_found")
	})
}

func TestTranscriptionJobsRespectBudgets(t *testing.T) {
	eachGateway(t, both, withTranscribers, func(t *testing.T, m *gatewayClient) {
		budget := 10 * credit
		key, keyID := m.newKey(t, access.Key{MonthlyBudget: &budget})
		poor := m.as(key)
		m.openai.Queue(upstreams.OpenAIReply{Stall: -1})
		held := poor.transcriptJob(t, recording(6000), "model=ear")
		<-m.openai.Wait(1).Began
		r := poor.transcribe(t, transcripts, recording(4001), "model=ear").Want(t, 402, "budget_exceeded")
		if r.At("error.details.reserved") != 6.0 || r.At("error.details.spent") != 0.0 {
			t.Errorf("got %s", r.Body)
		}
		poor.transcribe(t, transcriptions, recording(4001), "model=ear").Want(t, 402, "budget_exceeded")
		if n := m.rows(t, "files"); n != 1 {
			t.Errorf("got %d files, want that of the first job", n)
		}
		poor.waitForEnd(t, poor.transcriptJob(t, recording(4000), "model=ear"), "completed")
		// A canceled job is free, and so is one that fails.
		poor.ask(t, "POST", held+"/cancel", nil).Want(t, 200, "")
		if r := poor.get(t, held); r.Text("status") != "cancelled" || r.At("cost") != 0.0 {
			t.Errorf("got %s", r.Body)
		}
		m.openai.Queue(upstreams.OpenAIReply{Status: 400, Message: "no"})
		if r := poor.waitForEnd(t, poor.transcriptJob(t, recording(6000), "model=ear"), "failed"); r.Text("error.code") != "invalid_input" || r.At("cost") != 0.0 || r.At("url") != nil {
			t.Errorf("got %s", r.Body)
		}
		poor.waitForEnd(t, poor.transcriptJob(t, recording(6000), "model=ear"), "completed")
		poor.transcribe(t, transcripts, recording(1), "model=ear").Want(t, 402, "budget_exceeded")
		if b := m.spent(t, spend.Key, keyID); b.Spent != budget {
			t.Errorf("the key was charged %s, want %s", b.Spent, budget)
		}
		m.checkLedger(t, credits.Micro(10*credit))
	})
}

func TestTranscriptionJobsRetryAndValidate(t *testing.T) {
	eachGateway(t, sqlite, withTranscribers, func(t *testing.T, m *gatewayClient) {
		m.openai.Queue(upstreams.OpenAIReply{Status: 500}, upstreams.OpenAIReply{Status: 500})
		path := m.transcriptJob(t, recording(3000), "model=ear")
		m.Eventually(t, func() bool { return m.number(t, "SELECT tries FROM media_tasks WHERE job_id = $1", idOf(path)) == 1 })
		m.advance(t, 6*time.Second)
		m.Eventually(t, func() bool { return m.number(t, "SELECT tries FROM media_tasks WHERE job_id = $1", idOf(path)) == 2 })
		m.advance(t, time.Minute)
		m.waitForEnd(t, path, "completed")
		m.checkLedger(t, 3*credit)
		wav := recording(100)
		for param, fields := range map[string][]string{"stream": {"model=ear", "stream=true"}, "task": {"model=ear", "task=sing"}, "metadata": {"model=ear", "metadata=x"},
			"model": {"model=ear", "model=small"}} {
			if r := m.transcribe(t, transcripts, wav, fields...).Want(t, 400, "invalid_parameter"); r.Text("error.param") != param {
				t.Errorf("%s: %s", param, r.Body)
			}
		}
		m.transcribe(t, transcripts, []byte(strings.Repeat("not audio", 50)), "model=ear").Want(t, 400, "invalid_parameter")
		// Test keys simulate jobs, too.
		key, _ := m.Key(t, m.workspace, accounts.Test)
		sim := m.as(key)
		done := sim.waitForEnd(t, sim.transcriptJob(t, recording(8000), "model=whisper-1", "response_format=vtt"), "completed")
		if text := follow(t, done.Text("url"), http.StatusOK); !strings.HasPrefix(text, "WEBVTT\n\n00:00:00.000 --> 00:00:04.000\nThis is") || done.At("cost") != 0.0 {
			t.Errorf("got %s: %s", done.Body, text)
		}
		if r := sim.waitForEnd(t, sim.transcriptJob(t, wav, "model=whisper-1", "prompt=[[sim:fail=capacity]]"), "failed"); r.Text("error.code") != "capacity" {
			t.Errorf("got %s", r.Body)
		}
	})
}
