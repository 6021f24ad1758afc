// Package espeak reads text aloud with espeak-ng, a small speech engine that
// many systems have. Nothing leaves the machine.
package espeak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"turnpike/internal/audio"
	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/internal/safehttp"
)

const (
	// wordsPerMinute is the default of espeak-ng and corresponds to speed 1.
	wordsPerMinute = 175
	// minWordsPerMinute is the minimum of espeak-ng.
	minWordsPerMinute = 80
)

// Name is the name of the provider and of its only model.
const Name = "espeak"

// Espeak is a provider of speech.
type Espeak struct {
	path   string
	voices voices
}

var (
	_ providers.Provider        = (*Espeak)(nil)
	_ providers.SpeechGenerator = (*Espeak)(nil)
)

// Find looks for espeak-ng on the PATH.
func Find() (path string, ok bool) {
	path, err := exec.LookPath("espeak-ng")
	return path, err == nil
}

// New returns a provider that runs the program at a path.
func New(path string) *Espeak { return &Espeak{path: path} }

// Name returns the name of the provider.
func (e *Espeak) Name() string { return Name }

// Speech reads a text aloud.
func (e *Espeak) Speech(ctx context.Context, req *providers.SpeechRequest) (*providers.Content, error) {
	contentType, err := req.ContentType()
	if err != nil {
		return nil, err
	}
	speed, err := req.ReadSpeed()
	if err != nil {
		return nil, err
	}
	text := plain(req.Input)
	if strings.TrimSpace(text) == "" {
		return nil, fault.Missing("input", "input is required: the text to read aloud.")
	}
	voice, err := e.voice(ctx, req.Voice)
	if err != nil {
		return nil, err
	}
	// The text is passed on standard input, because every user of the machine can
	// see arguments. Without -m, markup is read as text.
	spoken, err := audio.Program(ctx, strings.NewReader(text), e.path, "--stdin", "--stdout", "-b", "1", "-v", voice, "-s", strconv.Itoa(max(minWordsPerMinute, int(speed*wordsPerMinute))))
	if err != nil {
		return nil, failure(err)
	}
	body, size, err := convert(ctx, spoken, req.Format)
	if err != nil {
		spoken.Close()
		return nil, err
	}
	return &providers.Content{ContentType: contentType, Body: body, Size: size}, nil
}

// plain removes what espeak-ng would interpret instead of reading it: phonemes in
// double brackets, and commands after control characters.
func plain(text string) string {
	text = strings.Map(func(c rune) rune {
		if c < ' ' && c != '\n' && c != '\t' || 0x7F <= c && c < 0xA0 {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, " "))
	// Twice, because three brackets are two pairs.
	text = strings.ReplaceAll(text, "[[", "[ [")
	return strings.ReplaceAll(text, "[[", "[ [")
}

// convert converts the WAV of espeak-ng. It returns after the first audio, so
// that a failure is an error and not an empty file.
func convert(ctx context.Context, spoken io.ReadCloser, format string) (io.ReadCloser, int64, error) {
	pcm, samples, err := audio.ReadWAV(spoken)
	if err != nil {
		return nil, 0, failure(errors.Join(err, drain(spoken)))
	}
	var source io.ReadCloser = struct {
		io.Reader
		io.Closer
	}{samples, spoken}
	size := int64(-1)
	if format == "wav" {
		if source, size, err = buffer(samples, spoken); err != nil {
			return nil, 0, err
		}
	}
	out, size, err := audio.Content(ctx, pcm, source, size, format)
	if err != nil {
		return nil, 0, failure(err)
	}
	return &body{out, out}, size, nil
}

// drain returns the error of the program, if any, which explains invalid WAV.
func drain(spoken io.Reader) error {
	_, err := io.Copy(io.Discard, spoken)
	return err
}

// buffer stores the audio until its size is known, because many players need it in the header of a
// WAV file. Generating takes a hundredth of the playing time.
func buffer(samples io.Reader, spoken io.Closer) (io.ReadCloser, int64, error) {
	file, err := os.CreateTemp("", "turnpike-speech-*.pcm")
	if err != nil {
		return nil, 0, failure(err)
	}
	temp := &tempFile{file}
	size, err := io.Copy(file, samples)
	_, rewindErr := file.Seek(0, io.SeekStart)
	if err = errors.Join(err, spoken.Close(), rewindErr); err != nil {
		temp.Close()
		return nil, 0, failure(err)
	}
	return temp, size, nil
}

type tempFile struct{ *os.File }

func (f *tempFile) Close() error {
	return errors.Join(f.File.Close(), os.Remove(f.Name()))
}

// body turns the errors of a stream into failures of the provider.
type body struct {
	io.Reader
	io.Closer
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = failure(err)
	}
	return n, err
}

func failure(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("espeak: %w", err)
	}
	kind := providers.KindServer
	if safehttp.Exhausted(err) {
		kind = providers.KindLocal
	}
	return &providers.Failure{Kind: kind, Err: fmt.Errorf("espeak: %w", err)}
}
