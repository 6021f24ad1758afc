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
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
	"turnpike/internal/safehttp"
)

const (
	// wordsPerMinute is the default of espeak-ng and corresponds to speed 1.
	wordsPerMinute = 175
	// minWordsPerMinute is the minimum of espeak-ng.
	minWordsPerMinute = 80
)

// rawPCM is the format of "pcm", which has no header, at OpenAI.
var rawPCM = audio.Format{Rate: 24_000, Channels: 1}

// Name is the name of the provider and of its only model.
const Name = "espeak"

// Espeak is a provider of speech.
type Espeak struct {
	path   string
	voices voices
}

var (
	_ providers.Provider    = (*Espeak)(nil)
	_ providers.SpeechMaker = (*Espeak)(nil)
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
	contentType, ok := audio.Types[req.Format]
	if !ok {
		return nil, fault.Invalid("response_format", "response_format must be wav, mp3, opus, aac, flac or pcm.")
	}
	if req.Format != "wav" && req.Format != "pcm" && !audio.CanTranscode() {
		return nil, fault.Invalid("response_format", "response_format must be wav or pcm. For %s the server needs ffmpeg, which is not installed.", req.Format)
	}
	speed, err := readSpeed(req.Body)
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
	spoken, err := audio.Program(ctx, strings.NewReader(text), e.path, "--stdin", "--stdout", "-b", "1", "-v", voice, "-s", strconv.Itoa(speed))
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

// speechFields holds the fields that this provider reads.
type speechFields struct {
	Speed *float64 `json:"speed"`
}

// readSpeed returns the requested speed in words per minute.
func readSpeed(body []byte) (int, error) {
	var in speechFields
	if len(body) > 0 {
		if err := jsonbody.DecodeLenient(body, &in); err != nil {
			return 0, err
		}
	}
	if in.Speed == nil {
		return wordsPerMinute, nil
	}
	if !(*in.Speed >= 0.25 && *in.Speed <= 4) {
		return 0, fault.Invalid("speed", "speed must be from 0.25 to 4.")
	}
	return max(minWordsPerMinute, int(*in.Speed*wordsPerMinute)), nil
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
	pcm, sound, err := audio.ReadWAV(spoken)
	if err != nil {
		return nil, 0, failure(errors.Join(err, drain(spoken)))
	}
	switch format {
	case "pcm":
		return &body{audio.Convert(rawPCM, pcm, sound), spoken}, -1, nil
	case "wav":
		return bufferWAV(pcm, sound, spoken)
	}
	wav := &body{io.MultiReader(strings.NewReader(string(audio.Header(pcm, -1))), sound), spoken}
	out, err := audio.Encode(ctx, wav, format)
	if err != nil {
		return nil, 0, failure(err)
	}
	return &body{out, out}, -1, nil
}

// drain returns the error of the program, if any, which explains invalid WAV.
func drain(spoken io.Reader) error {
	_, err := io.Copy(io.Discard, spoken)
	return err
}

// bufferWAV stores the audio until its size is known, because many players need
// the size in the header. Generating takes a hundredth of the playing time.
func bufferWAV(pcm audio.Format, sound io.Reader, spoken io.Closer) (io.ReadCloser, int64, error) {
	file, err := os.CreateTemp("", "turnpike-speech-*.pcm")
	if err != nil {
		return nil, 0, failure(err)
	}
	temp := &tempFile{file}
	size, err := io.Copy(file, sound)
	_, rewindErr := file.Seek(0, io.SeekStart)
	if err = errors.Join(err, spoken.Close(), rewindErr); err != nil {
		temp.Close()
		return nil, 0, failure(err)
	}
	header := string(audio.Header(pcm, size))
	return &body{io.MultiReader(strings.NewReader(header), file), temp}, int64(len(header)) + size, nil
}

// tempFile is removed when it is closed.
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

// failure wraps an error for the gateway.
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
