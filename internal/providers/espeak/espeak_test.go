package espeak_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"turnpike/internal/audio"
	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/internal/providers/espeak"
)

func find(t *testing.T) *espeak.Espeak {
	t.Helper()
	path, ok := espeak.Find()
	if !ok {
		t.Fatal("the tests need espeak-ng: run scripts/setup.sh")
	}
	return espeak.New(path)
}

func speak(t *testing.T, e *espeak.Espeak, req providers.SpeechRequest) ([]byte, *providers.Content) {
	t.Helper()
	if req.Voice == "" {
		req.Voice = "alloy"
	}
	if req.Format == "" {
		req.Format = "wav"
	}
	c, err := e.Speech(t.Context(), &req)
	if err != nil {
		t.Fatalf("%+v: %v", req, err)
	}
	data, err := io.ReadAll(c.Body)
	if err = errors.Join(err, c.Body.Close()); err != nil {
		t.Fatalf("%+v: %v", req, err)
	}
	if c.ContentType != audio.Types[req.Format] || c.Size >= 0 && c.Size != int64(len(data)) {
		t.Errorf("%s is %s, and %d of %d bytes", req.Format, c.ContentType, len(data), c.Size)
	}
	return data, c
}

// length returns the playing time of a WAV file, whose header must agree.
func length(t *testing.T, wav []byte) time.Duration {
	t.Helper()
	f, sound, err := audio.ReadWAV(bytes.NewReader(wav))
	if err != nil {
		t.Fatal(err)
	}
	pcm, err := io.ReadAll(sound)
	if err != nil {
		t.Fatal(err)
	}
	if size := int64(wav[4]) | int64(wav[5])<<8 | int64(wav[6])<<16 | int64(wav[7])<<24; size != int64(len(wav)-8) {
		t.Errorf("the header says %d of %d bytes", size, len(wav)-8)
	}
	return f.Duration(int64(len(pcm)))
}

func TestEveryFormatHasAudio(t *testing.T) {
	t.Parallel()
	e := find(t)
	for format, begins := range map[string]string{"wav": "RIFF", "opus": "OggS", "flac": "fLaC", "aac": "\xff", "mp3": "", "pcm": ""} {
		data, _ := speak(t, e, providers.SpeechRequest{Input: "Hello there, how are you?", Format: format})
		if len(data) < 2000 || !bytes.HasPrefix(data, []byte(begins)) {
			t.Errorf("%s is %d bytes that begin with %q", format, len(data), data[:4])
		}
	}
	wav, _ := speak(t, e, providers.SpeechRequest{Input: "Hello there."})
	pcm, _ := speak(t, e, providers.SpeechRequest{Input: "Hello there.", Format: "pcm"})
	if a, b := length(t, wav), (audio.Format{Rate: 24_000, Channels: 1}).Duration(int64(len(pcm))); (a - b).Abs() > time.Millisecond {
		t.Errorf("wav lasts %v, pcm %v", a, b)
	}
}

func TestVoicesAndSpeedsDiffer(t *testing.T) {
	t.Parallel()
	e := find(t)
	heard := map[string]string{}
	for _, voice := range []string{"alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse", "de", "en-gb", "en", "fr+f3", "en-gb+f3"} {
		data, _ := speak(t, e, providers.SpeechRequest{Input: "Good morning to you all.", Voice: voice})
		if other, ok := heard[string(data)]; ok && voice != "en" {
			t.Errorf("%s and %s sound the same", voice, other)
		}
		heard[string(data)] = voice
	}
	say := func(body string) time.Duration {
		data, _ := speak(t, e, providers.SpeechRequest{Input: "one two three four five six seven", Body: []byte(body)})
		return length(t, data)
	}
	usual, fast, slow := say(`{}`), say(`{"speed":2}`), say(`{"speed":0.5}`)
	if fast > usual*3/4 || slow < usual*5/4 || say("") != usual {
		t.Errorf("usual %v, fast %v, slow %v", usual, fast, slow)
	}
}

func TestMarkupAndCommandsAreReadAsText(t *testing.T) {
	t.Parallel()
	e := find(t)
	same := func(a, b string) bool {
		first, _ := speak(t, e, providers.SpeechRequest{Input: a, Voice: "en"})
		second, _ := speak(t, e, providers.SpeechRequest{Input: b, Voice: "en"})
		return bytes.Equal(first, second)
	}
	marked, _ := speak(t, e, providers.SpeechRequest{Input: `<speak><break time="20s"/>hello</speak>`})
	bare, _ := speak(t, e, providers.SpeechRequest{Input: "hello"})
	if d := length(t, marked); d > 15*time.Second || d < length(t, bare)+time.Second {
		t.Errorf("markup takes %v, as if it were obeyed or left out", d)
	}
	if same("hello [[h@l'oU h@l'oU]]", "hello h@l'oU h@l'oU") || !same("[[h@l'oU]]", "[ [h@l'oU]]") || !same("[[[a", "[ [ [a") {
		t.Error("brackets are taken for phonemes")
	}
	if !same("one \x0150S two", "one  50S two") || same("one \x0150S two", "one  two") {
		t.Error("a control character is obeyed")
	}
	if !same("caf\xff", "caf ") {
		t.Error("bytes that are no text are read")
	}
	speak(t, e, providers.SpeechRequest{Input: "--version"})
	speak(t, e, providers.SpeechRequest{Input: "مرحبا بالعالم 👨‍👩‍👧‍👦", Voice: "ar"})
}

func TestInvalidRequestIsRejected(t *testing.T) {
	t.Parallel()
	e := find(t)
	ok := providers.SpeechRequest{Input: "hello", Voice: "alloy", Format: "wav"}
	for param, change := range map[string][]func(*providers.SpeechRequest){
		"response_format": {func(r *providers.SpeechRequest) { r.Format = "exe" }, func(r *providers.SpeechRequest) { r.Format = "" }},
		"input":           {func(r *providers.SpeechRequest) { r.Input = " \n\x01" }},
		"speed": {func(r *providers.SpeechRequest) { r.Body = []byte(`{"speed":5}`) }, func(r *providers.SpeechRequest) { r.Body = []byte(`{"speed":0.1}`) },
			func(r *providers.SpeechRequest) { r.Body = []byte(`{"speed":"fast"}`) }},
		"voice": {voice(""), voice("nobody"), voice("../../etc/passwd"), voice("-x"), voice("gmw"), voice("en+nobody"), voice("en+f3+f4"), voice(strings.Repeat("a", 41)), voice("EN")},
	} {
		for i, c := range change {
			req := ok
			c(&req)
			_, err := e.Speech(t.Context(), &req)
			if f, ok := fault.As(err); !ok || f.Param != param {
				t.Errorf("%s %d: %v", param, i, err)
			}
		}
	}
}

func voice(name string) func(*providers.SpeechRequest) {
	return func(r *providers.SpeechRequest) { r.Voice = name }
}

// fake is a program in espeak-ng's place.
func fake(t *testing.T, script string) *espeak.Espeak {
	t.Helper()
	path := filepath.Join(t.TempDir(), "espeak-ng")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return espeak.New(path)
}

func TestTextIsNeverPassedAsAnArgument(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := fake(t, `echo "$@" > `+dir+`/args; cat > `+dir+`/stdin; exit 1`)
	_, err := e.Speech(t.Context(), &providers.SpeechRequest{Input: "my secret diary", Voice: "alloy", Format: "wav"})
	if err == nil {
		t.Fatal("no error")
	}
	args, _ := os.ReadFile(dir + "/args")
	stdin, _ := os.ReadFile(dir + "/stdin")
	if strings.Contains(string(args), "diary") || string(stdin) != "my secret diary" {
		t.Errorf("arguments %q, input %q", args, stdin)
	}
}

func TestFailingProgramIsAProviderFailure(t *testing.T) {
	t.Parallel()
	const half = `printf 'RIFF\044\360\377\177WAVEfmt \020\0\0\0\1\0\1\0\100\37\0\0\200\76\0\0\2\0\20\0data\0\360\377\177'; printf 'abcd'; `
	for name, script := range map[string]string{"at once": "echo oh dear >&2; exit 3", "no sound": "echo hello", "in between": half + "echo oh dear >&2; exit 3"} {
		for _, format := range []string{"wav", "pcm", "mp3"} {
			c, err := fake(t, script).Speech(t.Context(), &providers.SpeechRequest{Input: "hello", Voice: "alloy", Format: format})
			if err == nil {
				var data []byte
				data, err = io.ReadAll(c.Body)
				c.Body.Close()
				if strings.Contains(string(data), "dear") {
					t.Errorf("%s, %s: the caller got %q", name, format, data)
				}
			}
			var f *providers.Failure
			if !errors.As(err, &f) || f.Kind != providers.KindServer {
				t.Errorf("%s, %s: %v", name, format, err)
			}
		}
	}
}

func TestNoProcessOrFileRemains(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	before := runtime.NumGoroutine()
	const endless = `echo $$ > "$0.pid"; printf 'RIFF\044\360\377\177WAVEfmt \020\0\0\0\1\0\1\0\100\37\0\0\200\76\0\0\2\0\20\0data\0\360\377\177'; exec cat /dev/zero`
	for _, format := range []string{"pcm", "opus"} {
		for _, cancelled := range []bool{true, false} {
			path := filepath.Join(t.TempDir(), "espeak-ng")
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"+endless), 0o700); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			c, err := espeak.New(path).Speech(ctx, &providers.SpeechRequest{Input: "hello", Voice: "alloy", Format: format})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c.Body, make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			if cancelled {
				cancel()
				if _, err := io.Copy(io.Discard, c.Body); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: read to %v", format, err)
				}
			}
			c.Body.Close()
			cancel()
			pid, _ := os.ReadFile(path + ".pid")
			if _, err := os.Stat(filepath.Join("/proc", strings.TrimSpace(string(pid)), "stat")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: process %s is still there: %v", format, pid, err)
			}
		}
	}
	speak(t, find(t), providers.SpeechRequest{Input: "hello"})
	if left, _ := os.ReadDir(os.Getenv("TMPDIR")); len(left) > 0 {
		t.Errorf("%s is left", left[0].Name())
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%d goroutines became %d", before, runtime.NumGoroutine())
}
