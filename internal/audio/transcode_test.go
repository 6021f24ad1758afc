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

// lasts is how long a file is to be heard. What is written in one go does not
// always say so itself, so it is decoded.
func lasts(t *testing.T, path string) time.Duration {
	t.Helper()
	out, err := exec.Command("ffmpeg", "-v", "error", "-i", path, "-f", "s16le", "-ac", "1", "-ar", "8000", "pipe:1").Output()
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return mono.Duration(int64(len(out)))
}

func TestEveryFormatIsEncoded(t *testing.T) {
	t.Parallel()
	if !CanTranscode() {
		t.Fatal("the tests need ffmpeg: run scripts/setup.sh")
	}
	for format := range Types {
		data, err := encode(t, tone(), format)
		if err != nil || len(data) == 0 {
			t.Errorf("%s: %d bytes, %v", format, len(data), err)
			continue
		}
		if format == "pcm" {
			if !bytes.Equal(data, tone()[headerSize:]) {
				t.Errorf("the samples changed")
			}
			continue
		}
		out := filepath.Join(t.TempDir(), "out."+format)
		if err := os.WriteFile(out, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if format == "mp3" && len(data) < 2*64_000/8 { // the most that there is for 8 kHz
			t.Errorf("two seconds of MP3 are %d bytes: that is a bad telephone", len(data))
		}
		if d := lasts(t, out); (d - 2*time.Second).Abs() > 200*time.Millisecond {
			t.Errorf("%s lasts %v", format, d)
		}
	}
}

// encode has a file made of another.
func encode(t *testing.T, file []byte, format string) ([]byte, error) {
	t.Helper()
	out, err := Encode(t.Context(), io.NopCloser(bytes.NewReader(file)), format)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	return io.ReadAll(out)
}

func TestLargeFilesAreEncoded(t *testing.T) {
	t.Parallel()
	file := append(header(mono, 32000, 0), tone()[headerSize:]...)
	if data, err := encode(t, file, "pcm"); err != nil || !bytes.Equal(data, tone()[headerSize:]) {
		t.Errorf("%d bytes of an RF64 file, %v", len(data), err)
	}
}

func TestInvalidAudioIsNotEncoded(t *testing.T) {
	t.Parallel()
	other := filepath.Join(t.TempDir(), "other.wav")
	if err := os.WriteFile(other, tone(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := encode(t, tone(), "exe"); err == nil {
		t.Error("an unknown format was made")
	}
	// A list of files: ffmpeg would open them if it guessed what this is.
	if data, err := encode(t, []byte("ffconcat version 1.0\nfile "+other+"\n"), "mp3"); err == nil || len(data) > 0 {
		t.Errorf("a list of files was encoded, to %d bytes", len(data))
	}
}

// counted is a source that says when it was closed.
type counted struct {
	io.Reader
	closed atomic.Bool
}

func (c *counted) Close() error { c.closed.Store(true); return nil }

func TestTruncatedSourceIsAnError(t *testing.T) {
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

func TestEncoderStopsWithItsReader(t *testing.T) {
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

func TestEncoderFailureHasItsMessage(t *testing.T) {
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
