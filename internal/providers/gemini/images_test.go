package gemini

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"image/png"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
	"turnpike/test/fakes/upstreams"
)

const (
	nano      = "gemini-2.5-flash-image"
	nanoPro   = "gemini-3-pro-image"
	oldImages = "imagen-4.0-generate-001"
)

func makeMedia(m upstreams.GeminiMedia) upstreams.GeminiReply {
	return upstreams.GeminiReply{Media: m}
}

func TestImagesAreGenerated(t *testing.T) {
	t.Parallel()
	for model, c := range map[string]struct {
		n     int
		calls int
		usage providers.Usage
	}{
		nano:                  {3, 3, providers.Usage{InputTokens: 24, OutputTokens: 3870, Images: 3}},
		nanoPro:               {1, 1, providers.Usage{InputTokens: 8, OutputTokens: 1290, Images: 1}},
		oldImages:             {6, 2, providers.Usage{Images: 6}},
		"models/" + oldImages: {1, 1, providers.Usage{Images: 1}},
	} {
		p, server := start(t)
		answer, err := p.Images(t.Context(), &providers.ImageRequest{Model: model, Body: fmt.Appendf(nil, `{"prompt":"a lighthouse","n":%d,"quality":"high"}`, c.n)})
		if err != nil {
			t.Fatalf("%s: %v", model, err)
		}
		if answer.Usage != c.usage || len(answer.Images) != c.n || len(server.Requests()) != c.calls {
			t.Errorf("%s: %d pictures by %d calls for %+v", model, len(answer.Images), len(server.Requests()), answer.Usage)
		}
		for _, picture := range answer.Images {
			if _, err := png.Decode(bytes.NewReader(picture.Data)); err != nil || picture.ContentType != "image/png" {
				t.Errorf("%s: %s, %v", model, picture.ContentType, err)
			}
		}
	}
}

func TestImageRequestIsTranslated(t *testing.T) {
	t.Parallel()
	source := providers.Upload{Name: "a.png", ContentType: "application/octet-stream", Data: upstreams.PNG()}
	inlined := `{"inlineData":{"mimeType":"image/png","data":"` + base64.StdEncoding.EncodeToString(source.Data) + `"}}`
	for _, c := range []struct {
		model, body string
		sources     []providers.Upload
		want        string
	}{
		{nano, `{"prompt":"x","size":"auto"}`, nil, `{"contents":[{"role":"user","parts":[{"text":"x"}]}],"generationConfig":{"responseModalities":["IMAGE"]}}`},
		{nano, `{"prompt":"x","size":"4096x4096"}`, nil, `{"contents":[{"role":"user","parts":[{"text":"x"}]}],"generationConfig":{"responseModalities":["IMAGE"],"imageConfig":{"aspectRatio":"1:1"}}}`},
		{nanoPro, `{"prompt":"x","size":"1536x1024"}`, []providers.Upload{source, source}, `{"contents":[{"role":"user","parts":[{"text":"x"},` + inlined + `,` + inlined + `]}],"generationConfig":{"responseModalities":["IMAGE"],"imageConfig":{"aspectRatio":"3:2"}}}`},
		{nanoPro, `{"prompt":"x","size":"3840x2160"}`, nil, `{"contents":[{"role":"user","parts":[{"text":"x"}]}],"generationConfig":{"responseModalities":["IMAGE"],"imageConfig":{"aspectRatio":"16:9","imageSize":"4K"}}}`},
		{nanoPro, `{"prompt":"x","size":"2048x2048"}`, nil, `{"contents":[{"role":"user","parts":[{"text":"x"}]}],"generationConfig":{"responseModalities":["IMAGE"],"imageConfig":{"aspectRatio":"1:1","imageSize":"2K"}}}`},
		{oldImages, `{"prompt":"x","n":2,"size":"1024x1792","output_format":"jpeg"}`, nil, `{"instances":[{"prompt":"x"}],"parameters":{"sampleCount":2,"aspectRatio":"9:16","includeRaiReason":true,"outputOptions":{"mimeType":"image/jpeg"}}}`},
		{oldImages, `{"prompt":"x","size":"2048x2048"}`, nil, `{"instances":[{"prompt":"x"}],"parameters":{"sampleCount":1,"aspectRatio":"1:1","sampleImageSize":"2K","includeRaiReason":true}}`},
		{"imagen-4.0-fast-generate-001", `{"prompt":"x","size":"2048x2048"}`, nil, `{"instances":[{"prompt":"x"}],"parameters":{"sampleCount":1,"aspectRatio":"1:1","includeRaiReason":true}}`},
	} {
		p, server := start(t)
		if _, err := p.Images(t.Context(), &providers.ImageRequest{Model: c.model, Body: []byte(c.body), Sources: c.sources}); err != nil {
			t.Errorf("%s: %v", c.body, err)
		}
		if got := string(server.Requests()[0].Body); got != c.want {
			t.Errorf("%s: got  %s\nwant %s", c.model, got, c.want)
		}
	}
}

func TestNearestAspectRatioIsUsed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1024x1024": "1:1 1:1 16:9", "1536x1024": "3:2 4:3 16:9", "1024x1536": "2:3 3:4 9:16", "1792x1024": "16:9 16:9 16:9",
		"1024x1792": "9:16 9:16 9:16", "2560x1080": "21:9 16:9 16:9", "1280x1024": "5:4 4:3 16:9", "1x16384": "9:16 9:16 9:16",
	} {
		s, err := parseSize(text)
		if got := s.aspectRatio(geminiRatios) + " " + s.aspectRatio(imagenRatios) + " " + s.aspectRatio(veoRatios); got != want || err != nil {
			t.Errorf("%s is %s, want %s: %v", text, got, want, err)
		}
	}
}

func TestInvalidImageRequestsAreRejected(t *testing.T) {
	t.Parallel()
	file := providers.Upload{Data: upstreams.PNG()}
	for _, c := range []struct {
		req   providers.ImageRequest
		param string
	}{
		{providers.ImageRequest{Model: nano, Body: []byte(`{}`)}, "prompt"},
		{providers.ImageRequest{Model: nano, Body: []byte(`{"prompt":" "}`)}, "prompt"},
		{providers.ImageRequest{Model: nano, Body: []byte(`{"prompt":7}`)}, "prompt"},
		{providers.ImageRequest{Model: nano, Body: []byte(`{"prompt":"x","n":0}`)}, "n"},
		{providers.ImageRequest{Model: nano, Body: []byte(`{"prompt":"x","n":11}`)}, "n"},
		{providers.ImageRequest{Model: nano, Body: []byte(`{"prompt":"x","size":"large"}`)}, "size"},
		{providers.ImageRequest{Model: nano, Body: []byte(`{"prompt":"x","size":"0x9"}`)}, "size"},
		{providers.ImageRequest{Model: nano, Body: []byte(`{"prompt":"x","size":"99999x9"}`)}, "size"},
		{providers.ImageRequest{Model: nano, Body: []byte(`{"prompt":"x"}`), Sources: []providers.Upload{file}, Mask: &file}, "mask"},
		{providers.ImageRequest{Model: oldImages, Body: []byte(`{"prompt":"x"}`), Sources: []providers.Upload{file}}, "image"},
	} {
		p, server := start(t)
		_, err := p.Images(t.Context(), &c.req)
		if f, ok := fault.As(err); !ok || f.Param != c.param || len(server.Requests()) != 0 {
			t.Errorf("%s: %v, want %s", c.req.Body, err, c.param)
		}
	}
}

func TestImageRequestsRunConcurrentlyUpToALimit(t *testing.T) {
	t.Parallel()
	p, server := start(t)
	for range 10 {
		server.Queue(makeMedia(upstreams.GeminiMedia{Together: 4}))
	}
	answer, err := p.Images(t.Context(), &providers.ImageRequest{Model: nano, Body: []byte(`{"prompt":"x","n":10}`)})
	if err != nil || len(answer.Images) != 10 || server.MaxConcurrent() != 4 {
		t.Errorf("%d at once, %v", server.MaxConcurrent(), err)
	}
}

func TestImageFailureHasItsKind(t *testing.T) {
	t.Parallel()
	text := func(body string) upstreams.GeminiReply { return upstreams.GeminiReply{Body: body} }
	said := func(code int, status, message string) upstreams.GeminiReply {
		return upstreams.GeminiReply{Status: code, Body: upstreams.GeminiError(code, status, message, "")}
	}
	data := func(s string) upstreams.GeminiReply {
		return text(`{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"image/png","data":"` + s + `"}}]}}]}`)
	}
	const words = "Image generation failed with the following error: The prompt could not be submitted. This prompt contains sensitive words that violate Google's Responsible AI practices."
	for name, c := range map[string]struct {
		model string
		reply upstreams.GeminiReply
		want  providers.Kind
		param string
	}{
		"blocked prompt":   {nano, makeMedia(upstreams.GeminiMedia{Block: "PROHIBITED_CONTENT"}), providers.KindBlockedInput, ""},
		"image safety":     {nano, makeMedia(upstreams.GeminiMedia{Finish: "IMAGE_SAFETY"}), providers.KindBlockedOutput, ""},
		"safety":           {nano, makeMedia(upstreams.GeminiMedia{Finish: "SAFETY"}), providers.KindBlockedOutput, ""},
		"prohibited":       {nano, makeMedia(upstreams.GeminiMedia{Finish: "IMAGE_PROHIBITED_CONTENT"}), providers.KindBlockedOutput, ""},
		"words only":       {nano, makeMedia(upstreams.GeminiMedia{Finish: "NO_IMAGE"}), providers.KindProtocol, ""},
		"Imagen's filter":  {oldImages, makeMedia(upstreams.GeminiMedia{Filtered: "Unable to show generated images. All images were filtered out."}), providers.KindBlockedOutput, ""},
		"Imagen's prompt":  {oldImages, makeMedia(upstreams.GeminiMedia{Filtered: "The prompt violated the policies."}), providers.KindBlockedInput, ""},
		"refused prompt":   {oldImages, said(400, "INVALID_ARGUMENT", words), providers.KindBlockedInput, ""},
		"refused response": {oldImages, said(400, "INVALID_ARGUMENT", "The response is blocked, as it may violate our policies."), providers.KindBlockedOutput, ""},
		"inside":           {oldImages, text(upstreams.GeminiError(400, "INVALID_ARGUMENT", words, "")), providers.KindBlockedInput, ""},
		"invalid":          {nano, said(400, "INVALID_ARGUMENT", "image_config.aspect_ratio is wrong"), providers.KindInvalid, "size"},
		"quota":            {nano, said(429, "RESOURCE_EXHAUSTED", "quota for prompt"), providers.KindRateLimited, ""},
		"key":              {nano, said(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."), providers.KindAuth, ""},
		"no model":         {oldImages, said(404, "NOT_FOUND", "models/x is not found"), providers.KindNoModel, ""},
		"HTML":             {nano, text(upstreams.HTML), providers.KindProtocol, ""},
		"half":             {nano, text(`{"candidates":[{"content"`), providers.KindProtocol, ""},
		"nothing":          {oldImages, text(`{}`), providers.KindProtocol, ""},
		"no candidates":    {nano, text(`{}`), providers.KindProtocol, ""},
		"no base64":        {nano, data("!!!!"), providers.KindProtocol, ""},
		"no picture":       {nano, data("aGVsbG8="), providers.KindProtocol, ""},
		"Imagen's base64":  {oldImages, text(`{"predictions":[{"bytesBase64Encoded":"!"}]}`), providers.KindProtocol, ""},
		"cut":              {nano, upstreams.GeminiReply{Cut: true}, providers.KindCut, ""},
		"hangs":            {nano, upstreams.GeminiReply{Stall: true}, providers.KindTimeout, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, server := start(t)
			if c.want == providers.KindTimeout {
				p = New(Options{BaseURL: server.BaseURL(), Key: testKey, Client: wire.NewClient(wire.Timeouts{Idle: 150 * time.Millisecond})})
			}
			server.Queue(c.reply)
			_, err := p.Images(t.Context(), &providers.ImageRequest{Model: c.model, Body: []byte(`{"prompt":"x"}`)})
			if f := failureOf(t, err); f.Kind != c.want || f.Param != c.param {
				t.Errorf("got %#v: %v, want %s", f, f, c.want)
			}
		})
	}
}

func TestBlockedImagesAreMissing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		model string
		reply upstreams.GeminiMedia
	}{{nano, upstreams.GeminiMedia{Finish: "IMAGE_SAFETY"}}, {oldImages, upstreams.GeminiMedia{Filtered: "filtered"}}} {
		p, server := start(t)
		server.Queue(makeMedia(c.reply))
		answer, err := p.Images(t.Context(), &providers.ImageRequest{Model: c.model, Body: []byte(`{"prompt":"x","n":3}`)})
		if err != nil || len(answer.Images) != 2 || answer.Usage.Images != 2 {
			t.Errorf("%s: %+v, %v", c.model, answer, err)
		}
	}
}

// One failure of several is that of the call, and not of those that it ended.
func TestOneFailureCancelsTheOthers(t *testing.T) {
	t.Parallel()
	p, server := start(t)
	server.Queue(upstreams.GeminiReply{Stall: true}, upstreams.GeminiReply{Stall: true}, upstreams.GeminiReply{Status: 503, Body: upstreams.GeminiError(503, "UNAVAILABLE", "busy", "")})
	_, err := p.Images(t.Context(), &providers.ImageRequest{Model: nano, Body: []byte(`{"prompt":"x","n":3}`)})
	if f := failureOf(t, err); f.Kind != providers.KindOverloaded {
		t.Errorf("got %v", f)
	}
}

func TestLastImageIsUsed(t *testing.T) {
	t.Parallel()
	p, server := start(t)
	finished := upstreams.PNGOf(3, 3)
	server.Queue(makeMedia(upstreams.GeminiMedia{File: finished, Thought: upstreams.PNG()}))
	answer, err := p.Images(t.Context(), &providers.ImageRequest{Model: nanoPro, Body: []byte(`{"prompt":"x"}`)})
	if err != nil || len(answer.Images) != 1 || !bytes.Equal(answer.Images[0].Data, finished) {
		t.Errorf("got %v", err)
	}
}

func TestLargeImagesAreReturned(t *testing.T) {
	t.Parallel()
	large := upstreams.PNGOf(1700, 1700)
	for _, model := range []string{nano, oldImages} {
		p, server := start(t)
		server.Queue(makeMedia(upstreams.GeminiMedia{File: large}))
		answer, err := p.Images(t.Context(), &providers.ImageRequest{Model: model, Body: []byte(`{"prompt":"x"}`)})
		if err != nil || len(large) < 10<<20 || !bytes.Equal(answer.Images[0].Data, large) {
			t.Errorf("%s: %v", model, err)
		}
	}
}

func TestCanceledRequestCancelsTheMediaRequest(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(context.Context, *Provider) error{
		"images": func(ctx context.Context, p *Provider) error {
			_, err := p.Images(ctx, &providers.ImageRequest{Model: nano, Body: []byte(`{"prompt":"x"}`)})
			return err
		},
		"speech": func(ctx context.Context, p *Provider) error {
			_, err := p.Speech(ctx, &providers.SpeechRequest{Model: tts, Input: "x", Format: "wav"})
			return err
		},
		"video": func(ctx context.Context, p *Provider) error {
			_, err := p.StartVideo(ctx, &providers.VideoRequest{Model: veo, Prompt: "x"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, server := start(t)
			server.Queue(upstreams.GeminiReply{Stall: true})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				server.Wait(1)
				cancel()
			}()
			if err := call(ctx, p); err != context.Canceled {
				t.Errorf("got %v", err)
			}
			<-server.Requests()[0].Gone
		})
	}
}

func TestCanceledRequestGeneratesNoImages(t *testing.T) {
	t.Parallel()
	p, _ := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if answer, err := p.Images(ctx, &providers.ImageRequest{Model: nano, Body: []byte(`{"prompt":"x","n":2}`)}); err != context.Canceled || answer != nil {
		t.Errorf("got %v, %v", answer, err)
	}
}

func TestMediaErrorsDoNotContainTheKey(t *testing.T) {
	t.Parallel()
	echo := upstreams.GeminiError(400, "INVALID_ARGUMENT", "the prompt with "+testKey+" may violate", "")
	for _, reply := range []upstreams.GeminiReply{
		{Body: echo}, {Status: 400, Body: echo}, {Status: 500, Body: testKey},
		{Body: `{"candidates":[{"finishReason":"` + testKey + `"}]}`},
		{Body: `{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"` + testKey + `","data":""}}]}}]}`},
		{Body: `{"promptFeedback":{"blockReason":"` + testKey + `"}}`},
		{Body: `{"predictions":[{"raiFilteredReason":"` + testKey + `"}]}`},
	} {
		for _, model := range []string{nano, oldImages} {
			p, server := start(t)
			server.Queue(reply, reply, reply)
			_, images := p.Images(t.Context(), &providers.ImageRequest{Model: model, Body: []byte(`{"prompt":"x"}`)})
			_, speech := p.Speech(t.Context(), &providers.SpeechRequest{Model: tts, Input: "x", Format: "wav"})
			_, poll := p.PollVideo(t.Context(), "models/v/operations/o")
			for _, err := range []error{images, speech, poll} {
				if err == nil || strings.Contains(fmt.Sprintf("%v %+v", err, err), testKey) {
					t.Errorf("%s: %v", reply.Body, err)
				}
			}
		}
	}
}

// FuzzMediaResponse checks that every body results in images or a failure.
func FuzzMediaResponse(f *testing.F) {
	data := base64.StdEncoding.EncodeToString(upstreams.PNG())
	f.Add(`{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"audio/L16;rate=8000","data":"` + data + `"}}]}}],"usageMetadata":{"promptTokenCount":-1}}`)
	f.Add(`{"predictions":[{"bytesBase64Encoded":"` + data + `"},{"raiFilteredReason":"x"}]}`)
	f.Add(`{"name":"n","done":true,"error":{"code":3,"message":"violates"},"response":{"generateVideoResponse":{"generatedSamples":[{}]}}}`)
	p := New(Options{Key: testKey})
	f.Fuzz(func(t *testing.T, answer string) {
		check := func(err error) {
			var failure *providers.Failure
			if err != nil && (!errors.As(err, &failure) || failure.Kind == "" || strings.Contains(err.Error(), testKey)) {
				t.Errorf("failed with %v", err)
			}
		}
		read := func(into any) error {
			err := wire.ReadJSON(&http.Response{Body: io.NopCloser(strings.NewReader(answer))}, wire.MaxMedia, into, testKey)
			check(err)
			return err
		}
		pictures := func(got *providers.ImageResult, err error) {
			if got, err = join([]*providers.ImageResult{got}, err); err != nil {
				check(err)
				return
			}
			checkUsage(t, got.Usage)
			if len(got.Images) == 0 || got.Usage.Images != int64(len(got.Images)) {
				t.Errorf("%d pictures for %+v", len(got.Images), got.Usage)
			}
		}
		var made generateResponse
		if read(&made) == nil {
			pictures(p.readImage(&made, "x"))
			_, err := p.readSpeech(t.Context(), &made, "wav")
			check(err)
		}
		var predicted predictResponse
		if read(&predicted) == nil {
			pictures(p.readPredictions(&predicted))
		}
		var op operation
		if read(&op) == nil && op.check(p) == nil {
			if state := op.state(p); state.Failure != nil && (state.Failure.Kind == "" || !state.Done) {
				t.Errorf("%+v", state)
			}
		}
	})
}
