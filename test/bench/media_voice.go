package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// The text that is read aloud, and by whom: at 8 kHz.
const (
	voiceCharacters = 1_000_000
	voiceName       = "alloy-8k"
	voicePoll       = 50 * time.Millisecond
)

// voiceSample is one long text.
type voiceSample struct {
	engine string
	took   time.Duration
	bytes  int64
	idle   float64 // memory before, in MB
	peak   float64 // the highest until it was done
}

// voice measures the memory of a server that reads a long text.
func (b *mediaBench) voice(ctx context.Context, m *media) error {
	body, err := json.Marshal(map[string]any{"model": "tts-1", "voice": voiceName, "input": longText(voiceCharacters)})
	if err != nil {
		return err
	}
	for _, e := range b.engines {
		s, err := b.read(ctx, e, body)
		if err != nil {
			return fmt.Errorf("a long text, %s: %w", e.name, err)
		}
		m.voice = append(m.voice, s)
		say("a text of %d characters, %s: %s, a file of %.0f MB, memory %s at most", voiceCharacters, e.name, seconds(s.took), float64(s.bytes)/1e6, megabytes(s.peak))
	}
	return nil
}

func (b *mediaBench) read(ctx context.Context, e *engine, body []byte) (s voiceSample, err error) {
	s.engine = e.name
	at, remove, err := e.fresh(ctx)
	if err != nil {
		return s, err
	}
	defer remove()
	tenants, err := testTenants(ctx, at, 1)
	if err != nil {
		return s, err
	}
	server, err := b.serve(e, at, tenants)
	if err != nil {
		return s, err
	}
	defer server.Kill()
	if s.idle, err = settledMB(server.Pid()); err != nil {
		return s, err
	}
	if err := b.calm.wait(); err != nil {
		return s, err
	}
	made, took, err := server.done(ctx, newJob{tenants[0], "/v1/voice/renders", body}, voicePoll)
	if err != nil {
		return s, err
	}
	s.took = took
	if s.peak, err = peakMB(server.Pid()); err != nil {
		return s, err
	}
	res, err := http.Head(made.URL)
	if err != nil {
		return s, err
	}
	res.Body.Close()
	s.bytes = res.ContentLength
	if res.StatusCode != http.StatusOK || s.bytes < voiceCharacters {
		err = fmt.Errorf("the file is answered with %s and %d bytes", res.Status, s.bytes)
	}
	return s, err
}

// longText is prose of exactly that many characters, in sentences.
func longText(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "This is sentence number %d of a story that goes on for a very long time. ", i)
	}
	return b.String()[:n]
}
