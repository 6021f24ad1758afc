package api_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/internal/spend"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

const (
	transcriptions = "/v1/audio/transcriptions"
	translations   = "/v1/audio/translations"
)

// withTranscribers adds models that transcribe. A second costs a credit, and a token as much as
// for the model small.
func withTranscribers(cfg *config.Config) {
	second := func(usd config.Decimal) *config.ModelPrice { return &config.ModelPrice{PerSecond: usd} }
	cfg.Providers[0].Models = append(cfg.Providers[0].Models,
		config.ProviderModel{ID: "ear", Upstream: "whisper", Kind: "transcription", Price: second("0.001")},
		config.ProviderModel{ID: "token-ear", Upstream: "gpt-4o-transcribe", Kind: "transcription", Price: price("2", "8", "")},
		config.ProviderModel{ID: "diarize", Upstream: "gpt-4o-transcribe-diarize", Kind: "transcription", Price: price("2", "8", "")},
		config.ProviderModel{ID: "silent-ear", Upstream: "silent", Kind: "transcription", Price: second("0.001")},
		config.ProviderModel{ID: "free-ear", Upstream: "silent", Kind: "transcription", Price: second("0")})
}

// recording returns a WAV file that plays for milliseconds.
func recording(ms int) []byte { return wavOf(make([]int16, speechRate*ms/1000)) }

// transcribe sends a file with fields, given as name=value.
func (c *client) transcribe(t *testing.T, path string, file []byte, fields ...string) *harness.Response {
	t.Helper()
	return c.Do(t, c.transcription(t, path, file, fields...))
}

func (c *client) transcription(t *testing.T, path string, file []byte, fields ...string) harness.Request {
	t.Helper()
	parts := []formPart{{"file", "speech.wav", "audio/wav", file}}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, "=")
		parts = append(parts, formPart{name: name, data: []byte(value)})
	}
	body, header := formOf(t, "b", parts...)
	return harness.Request{Method: "POST", Path: path, Key: c.key, Body: body, Header: header}
}

// waitForLedger waits until the last requests are settled.
func (c *client) waitForLedger(t *testing.T, amount credits.Micro) {
	t.Helper()
	c.Eventually(t, func() bool { return c.spent(t, spend.Workspace, c.workspace.ID).Spent == amount })
	c.checkLedger(t, amount)
}

func TestTranscriptionsCostSecondsOrTokens(t *testing.T) {
	eachGateway(t, both, withTranscribers, func(t *testing.T, m *gatewayClient) {
		total := credits.Micro(0)
		for _, c := range []struct {
			model  string
			ms     int
			want   credits.Micro
			source string
		}{
			{"ear", 6000, 6 * credit, "provider"},
			{"ear", 5400, 6 * credit, "provider"}, // it counts whole seconds
			{"silent-ear", 5400, mills(5400), "estimated"},
			{"token-ear", 6000, 60*smallIn + 12*smallOut, "provider"},
			{"free-ear", 6000, 0, "estimated"},
		} {
			r := m.transcribe(t, transcriptions, recording(c.ms), "model="+c.model).Want(t, 200, "")
			e := m.entry(t, r)
			if r.Text("text") != upstreams.Transcript || charged(t, r) != c.want || amount(t, e, "credits") != c.want || e.Text("usage_source") != c.source || e.Text("model") != c.model {
				t.Errorf("%d ms by %s cost %s, want %s: %s %s", c.ms, c.model, charged(t, r), c.want, r.Body, e.Body)
			}
			total += c.want
		}
		r := m.transcribe(t, transcriptions, recording(6000), "model=token-ear", "stream=true").Want(t, 200, "")
		all := chunks(r)
		last := all[len(all)-1]
		want := credits.Micro(60*smallIn + 12*smallOut)
		if last.Text("type") != "transcript.text.done" || last.Text("text") != upstreams.Transcript || amount(t, last, "usage.credits") != want || all[0].Text("delta") != "The " {
			t.Errorf("got %s", r.Body)
		}
		if e := m.entry(t, r); amount(t, e, "credits") != want || e.Text("usage_source") != "provider" || count(e, "input_tokens") != 60 || count(e, "output_tokens") != 12 {
			t.Errorf("got log entry %s", e.Body)
		}
		total += want
		// A model that doesn't stream ignores stream, as OpenAI's does.
		r = m.transcribe(t, translations, recording(2000), "model=ear", "stream=true").Want(t, 200, "")
		if total += 2 * credit; r.Text("text") != upstreams.Transcript || charged(t, r) != 2*credit {
			t.Errorf("got %s", r.Body)
		}
		m.waitForLedger(t, total)
	})
}

func TestTranscriptionsRespectEveryBudget(t *testing.T) {
	eachGateway(t, both, withTranscribers, func(t *testing.T, m *gatewayClient) {
		budget := 10 * credit
		key, keyID := m.newKey(t, access.Key{MonthlyBudget: &budget})
		poor := m.as(key)
		poor.transcribe(t, transcriptions, recording(6000), "model=ear").Want(t, 200, "")
		before := len(m.openai.Requests())
		r := poor.transcribe(t, transcriptions, recording(4001), "model=ear").Want(t, 402, "budget_exceeded")
		if r.Text("error.details.limit_source") != "key" || r.At("error.details.spent") != 6.0 || len(m.openai.Requests()) != before {
			t.Errorf("got %s", r.Body)
		}
		// A header that claims less than the file has.
		cheat := recording(60_000)
		binary.LittleEndian.PutUint32(cheat[40:], 2)
		poor.transcribe(t, transcriptions, cheat, "model=ear").Want(t, 402, "budget_exceeded")
		poor.transcribe(t, transcriptions, recording(4000), "model=ear", "stream=true").Want(t, 200, "")
		m.waitForLedger(t, budget)
		if b := m.spent(t, spend.Key, keyID); b.Spent != budget {
			t.Errorf("the key was charged %s, want %s", b.Spent, budget)
		}
	})
}

func TestTranscriptionFormReachesTheProvider(t *testing.T) {
	eachGateway(t, sqlite, withTranscribers, func(t *testing.T, m *gatewayClient) {
		file := recording(1500)
		m.transcribe(t, transcriptions, file, "model=ear", "language=en", "prompt=Ahoy", "response_format=verbose_json", "timestamp_granularities[]=word",
			"timestamp_granularities[]=segment", "x_new=1", "temperature=0.2").Want(t, 200, "")
		got := m.openai.Requests()[0]
		body := string(got.Body)
		for _, want := range []string{"name=\"model\"\r\n\r\nwhisper\r\n", "name=\"language\"\r\n\r\nen\r\n", "name=\"timestamp_granularities[]\"\r\n\r\nword\r\n",
			"name=\"timestamp_granularities[]\"\r\n\r\nsegment\r\n", "name=\"x_new\"\r\n\r\n1\r\n", "filename=\"speech.wav\"", string(file)} {
			if !strings.Contains(body, want) {
				t.Errorf("the provider did not get %.60q", want)
			}
		}
		if got.Path != transcriptions[3:] || strings.Count(body, "name=\"model\"") != 1 {
			t.Errorf("the provider got %s", got.Path)
		}
		for format, begins := range map[string]string{"text": "The ferry", "srt": "1\n00:00", "vtt": "WEBVTT", "verbose_json": `{"task"`, "json": `{"text"`} {
			r := m.transcribe(t, transcriptions, file, "model=ear", "response_format="+format).Want(t, 200, "")
			kind := "text/plain; charset=utf-8"
			if strings.HasSuffix(format, "json") {
				kind = "application/json"
			}
			if !strings.HasPrefix(string(r.Body), begins) || r.Header.Get("Content-Type") != kind || charged(t, r) != 2*credit && kind == "application/json" {
				t.Errorf("%s: %s %s %s", format, r.Header.Get("Content-Type"), charged(t, r), r.Body)
			}
		}
		r := m.transcribe(t, transcriptions, file, "model=diarize", "response_format=diarized_json").Want(t, 200, "")
		if r.Text("segments.0.speaker") != "A" {
			t.Errorf("got %s", r.Body)
		}
		// The next model is tried if the first fails.
		m.openai.Queue(upstreams.OpenAIReply{Status: 500})
		r = m.transcribe(t, transcriptions, file, "model=token-ear", "models[]=ear").Want(t, 200, "")
		if r.Header.Get("Service-Model") != "ear" || r.Header.Get("Service-Provider") != "first" {
			t.Errorf("got %v", r.Header)
		}
	})
}

func TestBadTranscriptionsReachNoProvider(t *testing.T) {
	eachGateway(t, sqlite, withTranscribers, func(t *testing.T, m *gatewayClient) {
		wav := recording(100)
		for name, c := range map[string]struct {
			file   []byte
			fields []string
			status int
			code   string
			param  string
		}{
			"no model":        {wav, nil, 400, "missing_parameter", "model"},
			"two models":      {wav, []string{"model=ear", "model=free-ear"}, 400, "invalid_parameter", "model"},
			"array of models": {wav, []string{"model=ear", "model[]=free-ear"}, 400, "invalid_parameter", "model"},
			"spelling":        {wav, []string{"model=ear", "Model=free-ear"}, 400, "unknown_parameter", "Model"},
			"empty file":      {nil, []string{"model=ear"}, 400, "missing_parameter", "file"},
			"not audio":       {[]byte(strings.Repeat("not audio", 50)), []string{"model=ear"}, 400, "invalid_parameter", "file"},
			"stream":          {wav, []string{"model=ear", "stream=maybe"}, 400, "invalid_parameter", "stream"},
			"text for a file": {wav, []string{"model=ear", "file=speech.wav"}, 400, "invalid_parameter", "file"},
			"other kind":      {wav, []string{"model=unpriced"}, 400, "model_not_priced", "model"},
			"no such model":   {wav, []string{"model=nothing"}, 404, "model_not_found", "model"},
		} {
			if r := m.transcribe(t, transcriptions, c.file, c.fields...).Want(t, c.status, c.code); r.Text("error.param") != c.param {
				t.Errorf("%s: %s", name, r.Body)
			}
		}
		m.Do(t, harness.Request{Method: "POST", Path: transcriptions, Key: m.key, Body: map[string]any{"model": "ear"}}).Want(t, 415, "unsupported_media_type")
		m.withKey(t, access.Key{Scopes: []string{"voice:create"}}).transcribe(t, transcriptions, wav, "model=ear").Want(t, 403, "insufficient_scope")
		if n := len(m.openai.Requests()); n != 0 {
			t.Errorf("the provider got %d requests", n)
		}
		m.withKey(t, access.Key{Scopes: []string{"audio.transcriptions:create"}}).transcribe(t, transcriptions, wav, "model=ear").Want(t, 200, "")
		// Without a price, only the provider has to understand the file.
		m.transcribe(t, transcriptions, []byte(strings.Repeat("not audio", 50)), "model=free-ear").Want(t, 400, "invalid_parameter")
		if n := len(m.openai.Requests()); n != 2 {
			t.Errorf("the provider got %d requests, want 2", n)
		}
		m.waitForLedger(t, credit)
	})
}

func TestUploadThatStopsHalfwayCostsNothing(t *testing.T) {
	eachGateway(t, sqlite, withTranscribers, func(t *testing.T, m *gatewayClient) {
		r := m.transcription(t, transcriptions, recording(5000), "model=ear")
		body := r.Body.(string)
		for _, end := range []int{len(body) / 2, len(body) - 3} {
			conn, err := net.Dial("tcp", strings.TrimPrefix(m.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", transcriptions, m.key, r.Header.Get("Content-Type"), len(body))
			_, _ = io.WriteString(conn, body[:end])
			_ = conn.(*net.TCPConn).CloseWrite()
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(res.Body)
			if res.StatusCode != 400 || !strings.Contains(string(text), "incomplete") {
				t.Errorf("got %d %s", res.StatusCode, text)
			}
			conn.Close()
		}
		// A form without its end, in a complete request.
		r.Body = body[:len(body)/2]
		m.Do(t, r).Want(t, 400, "invalid_json")
		if n := len(m.openai.Requests()); n != 0 {
			t.Errorf("the provider got %d requests", n)
		}
		m.checkLedger(t, 0)
	})
}

func TestClientThatLeavesPaysForItsAudio(t *testing.T) {
	eachGateway(t, sqlite, withTranscribers, func(t *testing.T, m *gatewayClient) {
		m.openai.Queue(upstreams.OpenAIReply{Stall: -1})
		r := m.transcription(t, transcriptions, recording(5000), "model=ear")
		conn, err := net.Dial("tcp", strings.TrimPrefix(m.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		body := r.Body.(string)
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", transcriptions, m.key, r.Header.Get("Content-Type"), len(body), body)
		<-m.openai.Wait(1).Began
		conn.Close()
		m.waitForLedger(t, 5*credit)
		// A provider that fails is free.
		m.openai.Queue(upstreams.OpenAIReply{Status: 400}, upstreams.OpenAIReply{Body: `{"no":"text"}`}, upstreams.OpenAIReply{Body: "<html>", Type: "text/html"})
		m.transcribe(t, transcriptions, recording(5000), "model=ear").Want(t, 400, "invalid_parameter")
		m.transcribe(t, transcriptions, recording(5000), "model=ear").Want(t, 502, "upstream_error")
		m.transcribe(t, transcriptions, recording(5000), "model=ear").Want(t, 502, "upstream_error")
		// A transcript that breaks off is charged, as the provider does.
		m.openai.Queue(upstreams.OpenAIReply{Body: `data: {"type":"transcript.text.delta","delta":"The"}` + "\n\ndata: {"})
		broken := m.transcribe(t, transcriptions, recording(5000), "model=token-ear", "stream=true").Want(t, 200, "")
		all := chunks(broken)
		if last := all[len(all)-1]; last.Text("error.code") != "upstream_error" {
			t.Errorf("got %s", broken.Body)
		}
		if e := m.entry(t, broken); e.Text("usage_source") != "partial" || amount(t, e, "credits") == 0 {
			t.Errorf("got log entry %s", e.Body)
		}
	})
}

func TestTestKeysGetSimulatedTranscripts(t *testing.T) {
	eachGateway(t, sqlite, withTranscribers, func(t *testing.T, m *gatewayClient) {
		key, _ := m.Key(t, m.workspace, accounts.Test)
		sim := m.as(key)
		file := recording(8000)
		for format, has := range map[string]string{"json": `"seconds":8`, "text": "This is a simulated", "srt": "00:00:00,000 --> 00:00:04,000\n", "vtt": "00:00:04.000 --> 00:00:08.000\n",
			"verbose_json": `"segments":[{`, "diarized_json": `"speaker":"B"`} {
			r := sim.transcribe(t, transcriptions, file, "model=whisper-1", "response_format="+format).Want(t, 200, "")
			if !strings.Contains(string(r.Body), has) || charged(t, r) != 0 {
				t.Errorf("%s: %s", format, r.Body)
			}
		}
		r := sim.transcribe(t, transcriptions, file, "model=whisper-1", "response_format=verbose_json", "timestamp_granularities[]=word").Want(t, 200, "")
		if r.At("words.19.end") != 8.0 || r.At("segments") != nil || amount(t, sim.entry(t, r), "simulated_credits") != mills(800) {
			t.Errorf("got %s", r.Body)
		}
		r = sim.transcribe(t, transcriptions, file, "model=gpt-4o-transcribe", "stream=true").Want(t, 200, "")
		var text strings.Builder
		all := chunks(r)
		for _, c := range all {
			text.WriteString(c.Text("delta"))
		}
		if last := all[len(all)-1]; last.Text("text") != text.String() || count(last, "usage.input_tokens") != 80 {
			t.Errorf("got %s", r.Body)
		}
		sim.transcribe(t, transcriptions, file, "model=whisper-1", "prompt=[[sim:error=429]]").Want(t, 429, "rate_limit_exceeded")
		sim.transcribe(t, transcriptions, file, "model=whisper-1", "response_format=mp3").Want(t, 400, "invalid_parameter")
		sim.transcribe(t, transcriptions, []byte("hardly any audio"), "model=whisper-1").Want(t, 400, "invalid_parameter")
		var ids []string
		for _, model := range sim.get(t, "/v1/models").At("data").([]any) {
			ids = append(ids, model.(map[string]any)["id"].(string))
		}
		if !slices.Contains(ids, "whisper-1") || !slices.Contains(ids, "gpt-4o-transcribe") {
			t.Error("the models are not listed")
		}
		if n := len(m.openai.Requests()); n != 0 {
			t.Errorf("the provider got %d requests", n)
		}
	})
}
