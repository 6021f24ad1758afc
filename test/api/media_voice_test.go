package api_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"turnpike/internal/audio"
	"turnpike/internal/config"
	"turnpike/test/harness"
)

// samplesOf reads a WAV file in the provider's format.
func samplesOf(t *testing.T, file string) []int16 {
	t.Helper()
	format, pcm, err := audio.ReadWAV(strings.NewReader(file))
	if err != nil || format.Rate != speechRate || format.Channels != 1 {
		t.Fatalf("not the WAV file that was expected: %+v, %v", format, err)
	}
	var data bytes.Buffer
	if _, err := data.ReadFrom(pcm); err != nil {
		t.Fatal(err)
	}
	out := make([]int16, data.Len()/2)
	if err := binary.Read(&data, binary.LittleEndian, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func silence(ms int) []int16 { return make([]int16, speechRate*ms/1000) }

func TestAudioPartsAreJoinedToTheSample(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		hook := newReceiver(t, s.Clock, respond(http.StatusOK))
		s.endpoint(t, hook.URL, "voice.render.completed")
		order := map[string]any{"model": "talk", "voice": "alloy", "segments": []map[string]any{
			{"text": "Once there was a ship.", "pause_ms": 333},
			{"text": "It sailed 🚢 far.", "voice": "echo"},
			{"text": "Once there was a ship.", "pause_ms": 60_000}, // the same file as the first
			{"text": "سافرت السفينة بعيدا.", "voice": "shimmer", "pause_ms": 1},
		}}
		path := s.createJob(t, renders, order)
		r := s.waitForEnd(t, path, "completed")
		want := slices.Concat(spoken("Once there was a ship.", "alloy"), silence(333), spoken("It sailed 🚢 far.", "echo"),
			spoken("Once there was a ship.", "alloy"), silence(60_000), spoken("سافرت السفينة بعيدا.", "shimmer"), silence(1))
		file := follow(t, r.Text("url"), http.StatusOK)
		if got := samplesOf(t, file); !slices.Equal(got, want) {
			t.Errorf("there are %d samples, want %d, or others", len(got), len(want))
		}
		characters := 22 + utf8.RuneCountInString("It sailed 🚢 far.") + 22 + utf8.RuneCountInString("سافرت السفينة بعيدا.")
		if r.At("characters") != float64(characters) || r.At("segments.total") != 4.0 || r.At("segments.completed") != 4.0 || r.At("progress") != 100.0 ||
			r.Text("content_type") != "audio/wav" || r.At("duration_seconds") != float64(len(want)*1000/speechRate)/1000 {
			t.Errorf("got %s", r.Body)
		}
		if cost := amount(t, r, "cost"); cost != mills(characters) {
			t.Errorf("%d characters cost %s", characters, cost)
		}
		s.checkLedger(t, mills(characters))
		if got := hook.wait(t, s.client, 1)[0]; sha256.Sum256([]byte(follow(t, linkIn(t, got.body), http.StatusOK))) != sha256.Sum256([]byte(file)) {
			t.Error("the event's link leads to another file")
		}
		// The parts no longer belong to anything.
		if n := s.rows(t, "files WHERE expires_at > 0"); n != 1 {
			t.Errorf("got %d files", n)
		}
	})
}

func TestLongTextsAreReadInParts(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		for name, text := range map[string]string{
			"sentences":       strings.Repeat("The quick brown fox jumps over the lazy dog. ", 100),
			"no sentence end": strings.Repeat("word ", 1000),
			"no word end":     strings.Repeat("x", 4000),
			"emoji":           strings.Repeat("👩‍👩‍👧‍👦", 500),
			"right to left":   strings.Repeat("هذه جملة قصيرة جدا. ", 200),
			"short":           "Hi",
		} {
			path := s.createJob(t, renders, speechBody(text))
			r := s.waitForEnd(t, path, "completed")
			var read strings.Builder
			rows := s.number(t, "SELECT count(*) FROM media_tasks WHERE job_id = $1 AND name <> 'stitch'", idOf(path))
			pieces := s.pieces(t, path)
			for _, p := range pieces {
				if utf8.RuneCountInString(p) > 1500 {
					t.Errorf("%s: a piece has %d characters", name, utf8.RuneCountInString(p))
				}
				read.WriteString(p)
			}
			plain := func(text string) string { return strings.Join(strings.Fields(text), "") }
			if plain(read.String()) != plain(text) || r.At("segments.total") != float64(rows) {
				t.Errorf("%s: other characters were read than there are", name)
			}
			total := 0
			for _, p := range pieces {
				total += len(spoken(p, "alloy"))
			}
			if got := samplesOf(t, follow(t, r.Text("url"), http.StatusOK)); len(got) != total {
				t.Errorf("%s: %d samples, want %d", name, len(got), total)
			}
		}
	})
}

// pieces returns the texts that a render is split into, in order.
func (c *client) pieces(t *testing.T, path string) (out []string) {
	t.Helper()
	for i := range c.number(t, "SELECT total FROM media_jobs WHERE id = $1", idOf(path)) {
		var input string
		if err := c.DB.QueryRow(t.Context(), "SELECT input FROM media_tasks WHERE job_id = $1 AND position = $2", idOf(path), i).Scan(&input); err != nil {
			t.Fatal(err)
		}
		var p struct{ Text string }
		decode(t, []byte(input), &p)
		out = append(out, p.Text)
	}
	return out
}

func TestAudioIsEncodedInEveryFormat(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		for format, kind := range map[string]string{"pcm": "audio/pcm", "mp3": "audio/mpeg", "flac": "audio/flac"} {
			if format != "pcm" && !audio.CanTranscode() {
				t.Fatalf("ffmpeg is missing, which %s needs", format)
			}
			order := speechBody("A short text.")
			order["response_format"] = format
			r := s.waitForEnd(t, s.createJob(t, renders, order), "completed")
			file := follow(t, r.Text("url"), http.StatusOK)
			begins := map[string][]string{"pcm": {"\x88\x13"}, "mp3": {"ID3", "\xff\xfb", "\xff\xf3"}, "flac": {"fLaC"}}[format]
			if r.Text("content_type") != kind || !slices.ContainsFunc(begins, func(b string) bool { return strings.HasPrefix(file, b) }) {
				t.Errorf("%s: %s begins with %q", format, r.Text("content_type"), file[:min(8, len(file))])
			}
			if r.At("duration_seconds") != 0.13 {
				t.Errorf("%s takes %v seconds", format, r.At("duration_seconds"))
			}
			// Without it players can't seek.
			if said := flacLength(file); format == "flac" && said != len(spoken("A short text.", "alloy")) {
				t.Errorf("the FLAC file says that it has %d samples", said)
			}
			if format == "pcm" && len(file) != 2*len(spoken("A short text.", "alloy")) {
				t.Errorf("%d bytes", len(file))
			}
		}
	})
}

// flacLength returns the number of samples in the header of a FLAC file.
func flacLength(file string) int {
	if len(file) < 26 {
		return 0
	}
	return int(binary.BigEndian.Uint64([]byte(file[18:26])) & (1<<36 - 1))
}

func TestVoicesOfARenderAreIndependent(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		fine := spoken("And this is not.", "alloy")
		path := s.createJob(t, renders, map[string]any{"model": "talk", "voice": "alloy", "segments": []map[string]any{
			{"text": "[rate 8000] This is a telephone."}, {"text": "And this is not."}}})
		got := samplesOf(t, follow(t, s.waitForEnd(t, path, "completed").Text("url"), http.StatusOK))
		coarse := 3 * len(spoken("[rate 8000] This is a telephone.", "alloy"))
		if len(got) != coarse+len(fine) || !slices.Equal(got[coarse:], fine) {
			t.Errorf("there are %d samples, want %d and %d", len(got), coarse, len(fine))
		}
	})
}

func TestRawAudioHasOneSampleRate(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		for _, rate := range []int{8_000, 48_000} {
			text := fmt.Sprintf("[rate %d] Once there was a ship.", rate)
			order := speechBody(text)
			order["response_format"] = "pcm"
			file := follow(t, s.waitForEnd(t, s.createJob(t, renders, order), "completed").Text("url"), http.StatusOK)
			if want := 2 * len(spoken(text, "alloy")) * speechRate / rate; len(file) != want {
				t.Errorf("%d samples a second became %d bytes, want %d", rate, len(file), want)
			}
		}
	})
}

func TestTruncatedAudioIsAProviderFailure(t *testing.T) {
	eachMedia(t, sqlite, func(cfg *config.Config) { cfg.Media.Deadline = 24 * time.Hour }, func(t *testing.T, s *mediaClient) {
		for _, how := range []string{"[short]", "[mute]"} {
			path := s.createJob(t, renders, speechBody(how+" Once there was a"))
			for n, wait := range []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute} {
				s.Eventually(t, func() bool { return s.tries(t, path) == int64(n+1) })
				s.advance(t, wait)
			}
			if r := s.waitForEnd(t, path, "failed"); r.Text("error.code") != "upstream_error" {
				t.Errorf("got %s", r.Body)
			}
			s.checkLedger(t, 0)
		}
	})
}

func TestCanceledRenderIsChargedForCompletedParts(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, s *mediaClient) {
		order := map[string]any{"model": "talk", "voice": "alloy", "segments": []map[string]any{{"text": "One."}, {"text": "[gate g] Two."}}}
		path := s.createJob(t, renders, order)
		s.Eventually(t, func() bool {
			return s.get(t, path).At("segments.completed") == 1.0 && s.provider.count("POST", "Two") == 1
		})
		var first string
		if err := s.DB.QueryRow(t.Context(), "SELECT sha256 FROM files").Scan(&first); err != nil {
			t.Fatal(err)
		}
		r := s.post(t, path+"/cancel", nil)
		if r.Text("status") != "cancelled" || amount(t, r, "cost") != mills(4) || r.At("url") != nil {
			t.Errorf("got %s", r.Body)
		}
		s.post(t, path+"/cancel", nil)
		s.provider.open("g")
		// A late result changes nothing and leaves no file. The first part may
		// be purged by then.
		s.Eventually(t, func() bool { return s.rows(t, "files WHERE sha256 <> '"+first+"'") == 1 })
		s.Eventually(t, func() bool { return s.rows(t, "file_uses") == 0 && s.rows(t, "files WHERE expires_at > 0") == 0 })
		if r := s.get(t, path); r.Text("status") != "cancelled" || amount(t, r, "cost") != mills(4) || len(s.eventsOf(t, idOf(path))) != 1 {
			t.Errorf("afterwards it is %s", r.Body)
		}
		s.checkLedger(t, mills(4))
	})
}

func TestRenderFailsWithItsFirstFailedPart(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		order := map[string]any{"model": "talk", "voice": "alloy", "segments": []map[string]any{{"text": "One."}, {"text": "[gate g] [blocked] Two."}, {"text": "[fails 9] Three."}}}
		path := s.createJob(t, renders, order)
		s.Eventually(t, func() bool { return s.get(t, path).At("segments.completed") == 1.0 })
		s.provider.open("g")
		r := s.waitForEnd(t, path, "failed")
		if r.Text("error.code") != "moderation_blocked_output" || r.At("cost") != 0.0 || r.At("url") != nil {
			t.Errorf("got %s", r.Body)
		}
		s.Eventually(t, func() bool { return s.rows(t, "media_tasks WHERE due_at IS NOT NULL") == 0 })
		s.ask(t, "POST", renders+"/"+r.Text("id")+"/cancel", nil).Want(t, 409, "invalid_state")
		s.checkLedger(t, 0)
	})
}

func TestRestartRepeatsAtMostOnePart(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, s *mediaClient) {
		order := map[string]any{"model": "talk", "voice": "alloy", "segments": []map[string]any{{"text": "One."}, {"text": "[fails 1] Two."}, {"text": "Three."}}}
		path := s.createJob(t, renders, order)
		s.Eventually(t, func() bool {
			return s.get(t, path).At("segments.completed") == 2.0 && s.rows(t, "media_tasks WHERE tries = 1") == 1
		})
		s.restart(t)
		s.advance(t, 5*time.Second)
		r := s.waitForEnd(t, path, "completed")
		want := slices.Concat(spoken("One.", "alloy"), spoken("[fails 1] Two.", "alloy"), spoken("Three.", "alloy"))
		if got := samplesOf(t, follow(t, r.Text("url"), http.StatusOK)); !slices.Equal(got, want) {
			t.Errorf("there are %d samples, want %d", len(got), len(want))
		}
		for text, n := range map[string]int{"One": 1, "Two": 2, "Three": 1} {
			if got := s.provider.count("POST", text); got != n {
				t.Errorf("%q was read %d times", text, got)
			}
		}
		s.checkLedger(t, mills(24))
	})
}

func TestKeyRevokedAfterTheLastPartDoesNotStopTheRender(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		owner, id := s.withKey(t, liveKey())
		path := owner.createJob(t, renders, speechBody("[gate g] One."))
		s.Eventually(t, func() bool { return s.provider.count("POST", "") == 1 })
		s.ask(t, "DELETE", "/v1/keys/"+id, nil).Want(t, 200, "")
		s.provider.open("g")
		s.waitForEnd(t, path, "completed")
		s.checkLedger(t, mills(13))
	})
}

func TestSpeechIsSynthesizedSynchronously(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		r := s.Do(t, harness.Request{Method: "POST", Path: "/v1/audio/speech", Key: s.key, Body: map[string]any{"model": "talk", "voice": "alloy", "input": "Hello there.", "response_format": "wav"}})
		if r.Status != 200 || r.Header.Get("Content-Type") != "audio/wav" || !slices.Equal(samplesOf(t, string(r.Body)), spoken("Hello there.", "alloy")) {
			t.Errorf("got %d %s", r.Status, r.Header.Get("Content-Type"))
		}
		if e := s.entry(t, r); amount(t, e, "credits") != mills(12) || e.Text("model") != "talk" {
			t.Errorf("got log entry %s", e.Body)
		}
		s.checkLedger(t, mills(12))
	})
}

func TestRendersRunConcurrently(t *testing.T) {
	eachMedia(t, sqlite, func(cfg *config.Config) { cfg.Media.PerWorkspace = 4 }, func(t *testing.T, s *mediaClient) {
		var list []map[string]any
		for i := range 4 {
			list = append(list, map[string]any{"text": fmt.Sprintf("[gate g] number %d.", i)})
		}
		path := s.createJob(t, renders, map[string]any{"model": "talk", "voice": "alloy", "segments": list})
		s.Eventually(t, func() bool { return s.provider.count("POST", "number") == 4 })
		s.provider.open("g")
		s.waitForEnd(t, path, "completed")
	})
}

func TestSpeechIsSentInEvents(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, m *mediaClient) {
		ask := map[string]any{"model": "talk", "voice": "alloy", "input": "The ferry leaves at seven.", "response_format": "wav"}
		file := m.ask(t, "POST", "/v1/audio/speech", ask).Want(t, 200, "")
		ask["stream_format"] = "sse"
		r := m.ask(t, "POST", "/v1/audio/speech", ask).Want(t, 200, "")
		var audio []byte
		list := chunks(r)
		for _, event := range list[:len(list)-1] {
			part, err := base64.StdEncoding.DecodeString(event.Text("audio"))
			if err != nil || event.Text("type") != "speech.audio.delta" {
				t.Errorf("got %s", event.Body)
			}
			audio = append(audio, part...)
		}
		if last := list[len(list)-1]; last.Text("type") != "speech.audio.done" || count(last, "usage.input_tokens") == 0 {
			t.Errorf("got %s", last.Body)
		}
		if !bytes.Equal(audio, file.Body) || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/event-stream") {
			t.Errorf("got %d bytes of audio in events, %d in a file", len(audio), len(file.Body))
		}
		whole, inEvents := settled(t, m.Server, m.key, file.Header.Get("X-Request-Id")), settled(t, m.Server, m.key, r.Header.Get("X-Request-Id"))
		if a, b := amount(t, whole, "credits"), amount(t, inEvents, "credits"); a != b || a == 0 {
			t.Errorf("charged %s for the file and %s for the events", a, b)
		}
		ask["stream_format"] = "mp3"
		m.ask(t, "POST", "/v1/audio/speech", ask).Want(t, 400, "invalid_parameter")
	})
}
