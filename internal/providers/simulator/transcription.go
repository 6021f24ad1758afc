package simulator

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

var _ providers.Transcriber = (*Simulator)(nil)

// spoken is what every recording says, over and over.
const spoken = "This is a simulated transcript. The simulator does not listen to the file, but it knows how long it plays."

const (
	wordsPerSecond  = 2.5
	wordsPerSegment = 10
	// maxWords is what people say in four hours. A small file can claim to play for years.
	maxWords = 36_000
)

// transcript has the formats of OpenAI's transcripts.
type transcript struct {
	words   []string
	seconds float64
	usage   map[string]any
}

// Transcribe returns a text that fits the duration of the file.
func (s *Simulator) Transcribe(ctx context.Context, req *providers.TranscriptionRequest) (*providers.Response, error) {
	if _, err := obeyMagic(ctx, "prompt", req.Field("prompt")); err != nil {
		return nil, err
	}
	t := newTranscript(req)
	u := providers.Usage{OutputTokens: int64(len(t.words)) * 4 / 3}
	if strings.Contains(req.Model, "whisper") {
		u.Milliseconds = int64(math.Ceil(t.seconds)) * 1000
		t.usage = map[string]any{"type": "duration", "seconds": u.Milliseconds / 1000}
	} else {
		u.InputTokens = max(1, int64(t.seconds*10))
		t.usage = map[string]any{"type": "tokens", "input_tokens": u.InputTokens, "input_token_details": map[string]any{"text_tokens": 0, "audio_tokens": u.InputTokens},
			"output_tokens": u.OutputTokens, "total_tokens": u.InputTokens + u.OutputTokens}
	}
	// As OpenAI's, whisper doesn't stream.
	if req.Stream && !strings.Contains(req.Model, "whisper") && !req.Translate {
		return &providers.Response{Stream: &transcriptStream{ctx: ctx, transcript: t, usage: u, beforeWait: req.BeforeWait}}, nil
	}
	body, contentType, err := t.render(req)
	if err != nil {
		return nil, err
	}
	return &providers.Response{Body: body, ContentType: contentType, Usage: u}, nil
}

func newTranscript(req *providers.TranscriptionRequest) *transcript {
	t := &transcript{seconds: math.Max(0.4, float64(req.Milliseconds)/1000)}
	all := strings.Fields(spoken)
	for i := range int(min(math.Ceil(t.seconds*wordsPerSecond), maxWords)) {
		t.words = append(t.words, all[i%len(all)])
	}
	return t
}

func (t *transcript) text() string { return strings.Join(t.words, " ") }

// at returns when a word begins, in milliseconds.
func (t *transcript) at(word int) int64 {
	return int64(math.Round(1000 * t.seconds * float64(word) / float64(len(t.words))))
}

type transcriptSegment struct {
	start, end int64 // milliseconds
	text       string
}

func (t *transcript) segments() (out []transcriptSegment) {
	at := 0
	for words := range slices.Chunk(t.words, wordsPerSegment) {
		out = append(out, transcriptSegment{t.at(at), t.at(at + len(words)), strings.Join(words, " ")})
		at += len(words)
	}
	return out
}

func (t *transcript) render(req *providers.TranscriptionRequest) (body []byte, contentType string, err error) {
	const plain = "text/plain; charset=utf-8"
	switch req.Format {
	case "json":
		body, err = json.Marshal(map[string]any{"text": t.text(), "usage": t.usage}, json.Deterministic(true))
	case "text":
		return []byte(t.text() + "\n"), plain, nil
	case "srt":
		return t.subtitles("", ","), plain, nil
	case "vtt":
		return t.subtitles("WEBVTT\n\n", "."), plain, nil
	case "verbose_json":
		body, err = json.Marshal(t.verbose(req), json.Deterministic(true))
	case "diarized_json":
		body, err = json.Marshal(t.diarized(), json.Deterministic(true))
	default:
		return nil, "", fault.Invalid("response_format", "response_format must be json, text, srt, vtt, verbose_json or diarized_json.")
	}
	return body, "application/json", err
}

func (t *transcript) subtitles(head, point string) []byte {
	stamp := func(ms int64) string {
		return fmt.Sprintf("%02d:%02d:%02d%s%03d", ms/3_600_000, ms/60_000%60, ms/1000%60, point, ms%1000)
	}
	out := []byte(head)
	for i, s := range t.segments() {
		if head == "" {
			out = fmt.Appendf(out, "%d\n", i+1)
		}
		out = fmt.Appendf(out, "%s --> %s\n%s\n\n", stamp(s.start), stamp(s.end), s.text)
	}
	return out
}

func (t *transcript) verbose(req *providers.TranscriptionRequest) map[string]any {
	task, language := "transcribe", req.Field("language")
	if req.Translate {
		task = "translate"
	}
	if language == "" || req.Translate {
		language = "english"
	}
	out := map[string]any{"task": task, "language": language, "duration": t.seconds, "text": t.text(), "usage": t.usage}
	var granularities []string
	for _, f := range req.Fields {
		if strings.TrimSuffix(f.Name, "[]") == "timestamp_granularities" {
			granularities = append(granularities, f.Value)
		}
	}
	seconds := func(ms int64) float64 { return float64(ms) / 1000 }
	if len(granularities) == 0 || slices.Contains(granularities, "segment") {
		list := []any{}
		for i, s := range t.segments() {
			list = append(list, map[string]any{"id": i, "seek": 0, "start": seconds(s.start), "end": seconds(s.end), "text": " " + s.text, "tokens": []int{},
				"temperature": 0, "avg_logprob": -0.2, "compression_ratio": 1.2, "no_speech_prob": 0.01})
		}
		out["segments"] = list
	}
	if slices.Contains(granularities, "word") {
		list := []any{}
		for i, word := range t.words {
			list = append(list, map[string]any{"word": word, "start": seconds(t.at(i)), "end": seconds(t.at(i + 1))})
		}
		out["words"] = list
	}
	return out
}

// diarized has two speakers, who take turns.
func (t *transcript) diarized() map[string]any {
	list := []any{}
	for i, s := range t.segments() {
		list = append(list, map[string]any{"type": "transcript.text.segment", "id": fmt.Sprintf("seg_%03d", i+1), "start": float64(s.start) / 1000, "end": float64(s.end) / 1000,
			"text": s.text, "speaker": string(rune('A' + i%2))})
	}
	return map[string]any{"task": "transcribe", "duration": t.seconds, "text": t.text(), "segments": list, "usage": t.usage}
}

// transcriptStream sends a word per event, and the whole text at the end.
type transcriptStream struct {
	ctx        context.Context
	transcript *transcript
	usage      providers.Usage
	beforeWait func() error
	sent       int // words
	done       bool
}

func (s *transcriptStream) Next() (providers.Chunk, error) {
	if err := s.ctx.Err(); err != nil {
		return providers.Chunk{}, err
	}
	if s.done {
		return providers.Chunk{}, io.EOF
	}
	if s.sent < len(s.transcript.words) {
		delta := s.transcript.words[s.sent]
		if s.sent++; s.sent > 1 {
			delta = " " + delta
		}
		data, err := json.Marshal(map[string]any{"type": "transcript.text.delta", "delta": delta}, json.Deterministic(true))
		return providers.Chunk{Data: data}, err
	}
	if s.beforeWait != nil {
		if err := s.beforeWait(); err != nil {
			return providers.Chunk{}, err
		}
	}
	s.done = true
	data, err := json.Marshal(map[string]any{"type": "transcript.text.done", "text": s.transcript.text(), "usage": s.transcript.usage}, json.Deterministic(true))
	return providers.Chunk{Data: data, Usage: &s.usage}, err
}

func (s *transcriptStream) SoFar() providers.Usage {
	return providers.Usage{OutputTokens: int64(s.sent) * 4 / 3}
}

func (s *transcriptStream) Close() error { return nil }
