package audio

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// tone is two seconds to be heard.
func tone() []byte {
	out := Header(mono, 32000)
	for i := range 16000 {
		out = append(out, pcm(int16(i%40*500-10000))...)
	}
	return out
}

// lasts is how long ffprobe finds a file to be.
func lasts(t *testing.T, path string) time.Duration {
	t.Helper()
	out, err := exec.Command("ffprobe", "-v", "error", "-show_entries", "format=duration", "-of", "csv=p=0", path).CombinedOutput()
	if err != nil {
		t.Fatalf("ffprobe: %v: %s", err, out)
	}
	d, err := time.ParseDuration(strings.TrimSpace(string(out)) + "s")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestEveryFormatIsMade(t *testing.T) {
	t.Parallel()
	if !CanTranscode() {
		t.Fatal("the tests need ffmpeg: run scripts/setup.sh")
	}
	dir := t.TempDir()
	in := filepath.Join(dir, "in.wav")
	if err := os.WriteFile(in, tone(), 0o600); err != nil {
		t.Fatal(err)
	}
	for format := range Types {
		kbps := 0
		if format == "mp3" {
			kbps = 64
		}
		out := filepath.Join(dir, "out."+format)
		if err := Transcode(t.Context(), in, out, format, kbps); err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		streamed, err := Encode(t.Context(), io.NopCloser(bytes.NewReader(tone())), format)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(streamed)
		streamed.Close()
		if err != nil || len(data) == 0 {
			t.Errorf("%s as a stream: %d bytes, %v", format, len(data), err)
		}
		if format == "pcm" {
			if raw, _ := os.ReadFile(out); !bytes.Equal(raw, tone()[streamHeaderSize:]) || !bytes.Equal(data, raw) {
				t.Errorf("the samples changed")
			}
			continue
		}
		if d := lasts(t, out); (d - 2*time.Second).Abs() > 200*time.Millisecond {
			t.Errorf("%s lasts %v", format, d)
		}
	}
}

func TestWhatIsNotSoundIsNotTranscoded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.wav"), filepath.Join(dir, "out.mp3")
	// A list of files: ffmpeg would open them if it guessed what this is.
	for path, data := range map[string]string{in: "ffconcat version 1.0\nfile other.wav\n", filepath.Join(dir, "other.wav"): string(tone()), out: "older"} {
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Transcode(t.Context(), in, out, "exe", 0); err == nil {
		t.Error("an unknown format was made")
	}
	if err := Transcode(t.Context(), in, out, "mp3", 0); err == nil {
		t.Error("a list of files was transcoded")
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something is left of it: %v", err)
	}
}

// counted is a source that says when it was closed.
type counted struct {
	io.Reader
	closed atomic.Bool
}

func (c *counted) Close() error { c.closed.Store(true); return nil }

func TestASourceThatBreaksOffIsAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("the source is gone")
	source := &counted{Reader: io.MultiReader(bytes.NewReader(tone()[:20_000]), errReader{broken})}
	out, err := Encode(t.Context(), source, "flac")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(out); !errors.Is(err, broken) {
		t.Errorf("read to %v", err)
	}
	out.Close()
	if !source.closed.Load() {
		t.Error("the source was not closed")
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// gone waits until a process has left no trace: a zombie would still be there.
func gone(t *testing.T, pid string) {
	t.Helper()
	if _, err := os.Stat("/proc/self"); err != nil {
		return // not on this system
	}
	if _, err := os.Stat(filepath.Join("/proc", pid)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("process %s is still there: %v", pid, err)
	}
}

func TestAProgramEndsWithItsReader(t *testing.T) {
	before := runtime.NumGoroutine()
	for name, stop := range map[string]func(cancel func(), out io.ReadCloser){
		"closed": func(_ func(), out io.ReadCloser) { out.Close() },
		"cancelled": func(cancel func(), out io.ReadCloser) {
			cancel()
			if _, err := io.ReadAll(out); !errors.Is(err, context.Canceled) {
				t.Errorf("read to %v", err)
			}
			out.Close()
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		out, err := Program(ctx, nil, "/bin/sh", "-c", "echo $$; exec sleep 600")
		if err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 32)
		n, err := out.Read(line)
		if err != nil {
			t.Fatal(err)
		}
		pid := strings.TrimSpace(string(line[:n]))
		stop(cancel, out)
		cancel()
		gone(t, pid)
		if err := out.Close(); err != nil {
			t.Errorf("%s: closed again: %v", name, err)
		}
	}
	// Those of os/exec end a moment after the program.
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%d goroutines became %d", before, runtime.NumGoroutine())
}

func TestAProgramThatFailsSaysWhy(t *testing.T) {
	t.Setenv("TURNPIKE_MASTER_KEY", "hidden")
	out, err := Program(t.Context(), strings.NewReader("in"), "/bin/sh", "-c", "cat; echo oh dear >&2; env | grep hidden; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	got, err := io.ReadAll(out)
	if err == nil || !strings.Contains(err.Error(), "oh dear") || string(got) != "in" {
		t.Errorf("%q and %v", got, err)
	}
	if _, err := Program(t.Context(), nil, "/does/not/exist"); err == nil {
		t.Error("a program that does not exist was started")
	}
}
