//go:build clients

package sdk_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"

	"turnpike/internal/db/dbtest"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

// TestSDKMakesMedia creates images, speech and videos with the same client code for
// each maker, as if all were OpenAI.
func TestSDKMakesMedia(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			withMakers(t, engine, func(t *testing.T, s *harness.Server, m maker) {
				c := mediaClient{t, client(s, m.key), m}
				c.draws()
				c.edits()
				c.speaks()
				c.films()
				c.filmsFromAPicture()
				c.failsToFilm()
			})
		})
	}
}

type mediaClient struct {
	*testing.T
	openai.Client
	maker
}

// told adds the details that the SDK keeps in its error.
func told(err error) error {
	var e *openai.Error
	if errors.As(err, &e) {
		return fmt.Errorf("%w: %s", err, e.RawJSON())
	}
	return err
}

func (c mediaClient) generate(p openai.ImageGenerateParams) []openai.Image {
	c.Helper()
	p.Model, p.Prompt = c.image, "A toll house by the sea"
	r, err := c.Images.Generate(c.Context(), p)
	if err != nil {
		c.Fatal(told(err))
	}
	if r.Created == 0 || len(r.Data) == 0 {
		c.Fatalf("answer: %s", r.RawJSON())
	}
	return r.Data
}

func (c mediaClient) draws() {
	two := c.generate(openai.ImageGenerateParams{N: openai.Int(2), Size: "1024x1024"})
	if len(two) != 2 {
		c.Fatalf("%d pictures", len(two))
	}
	for _, image := range two {
		checkPNG(c.T, c.decode(image))
	}
	asked := c.generate(openai.ImageGenerateParams{ResponseFormat: openai.ImageGenerateParamsResponseFormatB64JSON, Size: "1024x1024"})
	linked := c.generate(openai.ImageGenerateParams{ResponseFormat: openai.ImageGenerateParamsResponseFormatURL, Size: "1024x1024"})
	if linked[0].B64JSON != "" || linked[0].URL == "" {
		c.Fatalf("no link: %.200s", linked[0].RawJSON())
	}
	// Every maker returns the same image for the same prompt.
	if a, b := fetch(c.T, linked[0].URL), c.decode(asked[0]); sum(a) != sum(b) {
		c.Errorf("the link has %d bytes, the answer %d others", len(a), len(b))
	}
}

func (c mediaClient) decode(image openai.Image) []byte {
	c.Helper()
	data, err := base64.StdEncoding.DecodeString(image.B64JSON)
	if err != nil || image.URL != "" {
		c.Fatalf("no picture: %v", err)
	}
	return data
}

func (c mediaClient) edits() {
	file := func(name string) io.Reader {
		return openai.File(bytes.NewReader(upstreams.PNGOf(64, 64)), name, "image/png")
	}
	one := openai.ImageEditParams{Model: c.image, Prompt: "Add a dog", Image: openai.ImageEditParamsImageUnion{OfFile: file("a.png")}, N: openai.Int(1)}
	if c.masks {
		one.Mask = file("mask.png")
	}
	two := openai.ImageEditParams{Model: c.image, Prompt: "Join them", Image: openai.ImageEditParamsImageUnion{OfFileArray: []io.Reader{file("a.png"), file("b.png")}}}
	for _, p := range []openai.ImageEditParams{one, two} {
		r, err := c.Images.Edit(c.Context(), p)
		if err != nil {
			c.Errorf("%s: %v", p.Prompt, told(err))
			continue
		}
		checkPNG(c.T, c.decode(r.Data[0]))
	}
	_, err := c.Images.Edit(c.Context(), openai.ImageEditParams{Model: c.image, Prompt: "x",
		Image: openai.ImageEditParamsImageUnion{OfFile: openai.File(strings.NewReader("no picture"), "a.png", "image/png")}})
	c.wants(err, http.StatusBadRequest, "invalid_parameter")
}

// speaks streams speech into files.
func (c mediaClient) speaks() {
	say := func(format openai.AudioSpeechNewParamsResponseFormat) ([]byte, error) {
		res, err := c.Audio.Speech.New(c.Context(), openai.AudioSpeechNewParams{Model: c.speech, Input: "The gate is open.", ResponseFormat: format,
			Voice: openai.AudioSpeechNewParamsVoiceUnion{OfString: openai.String(c.voice)}})
		if err != nil {
			return nil, err
		}
		defer res.Body.Close()
		file, err := os.Create(filepath.Join(c.TempDir(), "speech"))
		if err != nil {
			c.Fatal(err)
		}
		defer file.Close()
		if _, err := io.Copy(file, res.Body); err != nil {
			return nil, err
		}
		return os.ReadFile(file.Name())
	}
	wav, err := say(openai.AudioSpeechNewParamsResponseFormatWAV)
	if err != nil {
		c.Fatal(told(err))
	}
	checkWAV(c.T, wav)
	mp3, err := say(openai.AudioSpeechNewParamsResponseFormatMP3)
	switch {
	case c.mp3 && err != nil:
		c.Error(told(err))
	case c.mp3:
		c.checkMP3(c.T, mp3)
	default:
		c.wants(err, http.StatusBadRequest, "invalid_parameter")
	}
}

// wants checks an error as the SDK parses it.
func (c mediaClient) wants(err error, status int, code string) {
	c.Helper()
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != status || e.Code != code {
		c.Errorf("got %v, expected %d %s", told(err), status, code)
	}
}
