package openai_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/providers"
	"turnpike/internal/providers/openai"
	"turnpike/internal/providers/wire"
	"turnpike/test/fakes/upstreams"
)

const imageBody = `{"model":"ours", "prompt":"a lighthouse",  "n":2, "size":"1024x1024"}`

func media(m upstreams.OpenAIMedia) upstreams.OpenAIReply {
	return upstreams.OpenAIReply{Media: m}
}

func TestImagesAreGenerated(t *testing.T) {
	t.Parallel()
	for model, c := range map[string]struct {
		media upstreams.OpenAIMedia
		usage providers.Usage
	}{
		"gpt-image-1":          {upstreams.OpenAIMedia{Prompt: "a tall lighthouse"}, providers.Usage{InputTokens: 50, OutputTokens: 200, ImageInput: 40, Images: 2}},
		"chatgpt-image-latest": {upstreams.OpenAIMedia{}, providers.Usage{InputTokens: 50, OutputTokens: 200, ImageInput: 40, Images: 2}},
		"dall-e-2":             {upstreams.OpenAIMedia{Prompt: "a lighthouse in oil"}, providers.Usage{Images: 2}},
		"flux-dev":             {upstreams.OpenAIMedia{AsURL: true}, providers.Usage{Images: 2}},
	} {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			upstream, p := start(t)
			upstream.Queue(media(c.media))
			result, err := p.Images(t.Context(), &providers.ImageRequest{Model: model, Body: []byte(imageBody)})
			if err != nil {
				t.Fatal(err)
			}
			if result.Usage != c.usage || len(result.Images) != 2 {
				t.Errorf("got %d images with usage %+v", len(result.Images), result.Usage)
			}
			for _, image := range result.Images {
				if _, err := png.Decode(bytes.NewReader(image.Data)); err != nil || image.ContentType != "image/png" || image.RevisedPrompt != c.media.Prompt {
					t.Errorf("%s of %q: %v", image.ContentType, image.RevisedPrompt, err)
				}
			}
		})
	}
}

func TestImageRequestChangesOnlyItsFields(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ model, body, want string }{
		"newer":       {"gpt-image-1", `{"prompt":"x", "response_format":"url","background":"transparent","stream":true, "partial_images":2,"models":["a"]}`, `{"prompt":"x","background":"transparent","model":"gpt-image-1"}`},
		"with a path": {"openai/gpt-image-1", `{"prompt":"x","response_format":"b64_json"}`, `{"prompt":"x","model":"openai/gpt-image-1"}`},
		"older":       {"dall-e-3", `{"model":"ours","response_format":"url", "prompt":"x"}`, `{"model":"dall-e-3","response_format":"b64_json","prompt":"x"}`},
		"compatible":  {"flux", `{"prompt":"x","seed":7}`, `{"prompt":"x","seed":7,"model":"flux","response_format":"b64_json"}`},
	} {
		upstream, p := start(t)
		upstream.Queue(upstreams.OpenAIReply{Body: `{"data":[{"b64_json":"` + base64.StdEncoding.EncodeToString(upstreams.PNG()) + `"}]}`})
		if _, err := p.Images(t.Context(), &providers.ImageRequest{Model: c.model, Body: []byte(c.body)}); err != nil {
			t.Fatal(err)
		}
		if req := upstream.Requests()[0]; string(req.Body) != c.want || req.Path != "/images/generations" || req.Header.Get("Authorization") != "Bearer "+key {
			t.Errorf("%s: %s got  %s\nwant %s", name, req.Path, req.Body, c.want)
		}
	}
}

func TestImagesAreEdited(t *testing.T) {
	t.Parallel()
	source := providers.Upload{Name: `my "cat".png`, ContentType: "image/png", Data: upstreams.PNG()}
	nameless := providers.Upload{ContentType: "broken\r\nX-Evil: 1", Data: upstreams.PNG()}
	mask := providers.Upload{Name: "mask.png", ContentType: "image/png", Data: upstreams.PNG()}
	for name, c := range map[string]struct {
		sources []providers.Upload
		mask    *providers.Upload
		files   []string
	}{
		"one":     {[]providers.Upload{source}, nil, []string{`image my "cat".png (image/png)`}},
		"several": {[]providers.Upload{source, nameless}, &mask, []string{`image[] my "cat".png (image/png)`, "image[] image-2 (image/png)", "mask mask.png (image/png)"}},
	} {
		upstream, p := start(t)
		result, err := p.Images(t.Context(), &providers.ImageRequest{
			Model: "gpt-image-1", Sources: c.sources, Mask: c.mask,
			Body: []byte(`{"prompt":"two\nlines","n":2,"user":null,"stream":true,"response_format":"url","image":"x","input_fidelity":"high"}`),
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		req := upstream.Requests()[0]
		values, files := upstreams.FormOf(req.Header, req.Body)
		if got := fmt.Sprint(values); len(result.Images) != 2 || req.Path != "/images/edits" || got != "map[input_fidelity:high model:gpt-image-1 n:2 prompt:two\nlines]" {
			t.Errorf("%s: %s got %s and returned %d images, want 2", name, req.Path, got, len(result.Images))
		}
		if len(files) != len(c.files) {
			t.Errorf("%s: got the files %q", name, files)
		}
		for _, file := range c.files {
			if files[file] != string(upstreams.PNG()) {
				t.Errorf("%s: file %s is missing", name, file)
			}
		}
		if strings.Contains(string(req.Body), "X-Evil") {
			t.Errorf("%s: a content type added a header", name)
		}
	}
}

func TestLargeImagesAreForwarded(t *testing.T) {
	t.Parallel()
	upstream, p := start(t)
	large := upstreams.PNGOf(1700, 1700)
	if len(large) < 10<<20 {
		t.Fatalf("the image has only %d bytes", len(large))
	}
	upstream.Queue(media(upstreams.OpenAIMedia{File: large}))
	result, err := p.Images(t.Context(), &providers.ImageRequest{Model: "gpt-image-1", Body: []byte(`{"prompt":"x"}`)})
	if err != nil || !bytes.Equal(result.Images[0].Data, large) {
		t.Errorf("got %v", err)
	}
}

func TestImageResponseIsReadInEveryFormat(t *testing.T) {
	t.Parallel()
	data := base64.StdEncoding.EncodeToString(upstreams.PNG())
	for name, item := range map[string]string{
		"data URL":        `{"b64_json":"data:image/png;base64,` + data + `"}`,
		"no padding":      `{"b64_json":"` + strings.TrimRight(data, "=") + `"}`,
		"escaped":         `{"b64_json":"` + strings.ReplaceAll(data, "/", `\/`) + `"}`,
		"both":            `{"b64_json":"` + data + `","url":"http://nowhere.invalid"}`,
		"more than asked": `{"b64_json":"` + data + `","url":null,"extra":[1]}`,
	} {
		upstream, p := start(t)
		upstream.Queue(upstreams.OpenAIReply{Body: `{"created":1,"error":null,"data":[` + item + `],"usage":{"input_tokens":-1,"output_tokens":"x"}}`})
		result, err := p.Images(t.Context(), &providers.ImageRequest{Model: "m", Body: []byte(`{"prompt":"x"}`)})
		if err != nil || !bytes.Equal(result.Images[0].Data, upstreams.PNG()) || result.Usage != (providers.Usage{Images: 1}) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestImageFailureHasItsKind(t *testing.T) {
	t.Parallel()
	item := func(s string) upstreams.OpenAIReply {
		return upstreams.OpenAIReply{Body: `{"created":1,"data":[` + s + `]}`}
	}
	azure := `{"error":{"code":"contentFilter","message":"Your task failed as a result of our safety system."}}`
	inner := `{"error":{"code":"BadRequest","message":"no","inner_error":{"code":"ResponsibleAIPolicyViolation"}}}`
	filtered := `{"error":{"code":"content_filter","message":"Generated image was filtered as a result of our safety system."}}`
	for name, c := range map[string]struct {
		reply upstreams.OpenAIReply
		want  providers.Failure
		says  string
	}{
		"blocked":           {upstreams.OpenAIBlocked("moderation_blocked", ""), providers.Failure{Kind: providers.KindBlockedInput, Status: 400}, "moderation_blocked"},
		"blocked input":     {upstreams.OpenAIBlocked("moderation_blocked", "input"), providers.Failure{Kind: providers.KindBlockedInput, Status: 400}, ""},
		"blocked output":    {upstreams.OpenAIBlocked("moderation_blocked", "output"), providers.Failure{Kind: providers.KindBlockedOutput, Status: 400}, ""},
		"policy":            {upstreams.OpenAIBlocked("content_policy_violation", ""), providers.Failure{Kind: providers.KindBlockedInput, Status: 400}, ""},
		"Azure":             {upstreams.OpenAIReply{Status: 400, Body: azure}, providers.Failure{Kind: providers.KindBlockedInput, Status: 400}, ""},
		"Azure's inner":     {upstreams.OpenAIReply{Status: 400, Body: inner}, providers.Failure{Kind: providers.KindBlockedInput, Status: 400}, ""},
		"Azure's output":    {upstreams.OpenAIReply{Status: 400, Body: filtered}, providers.Failure{Kind: providers.KindBlockedOutput, Status: 400}, ""},
		"blocked in a 200":  {upstreams.OpenAIReply{Body: azure}, providers.Failure{Kind: providers.KindBlockedInput, Status: 200}, ""},
		"invalid":           {upstreams.OpenAIReply{Status: 400, Param: "size", Code: "invalid_value"}, providers.Failure{Kind: providers.KindInvalid, Status: 400, Param: "size"}, ""},
		"rate limit":        {upstreams.OpenAIReply{Status: 429, Header: http.Header{"Retry-After": {"20"}}}, providers.Failure{Kind: providers.KindRateLimited, Status: 429, RetryAfter: 20 * time.Second}, ""},
		"server":            {upstreams.OpenAIReply{Status: 500}, providers.Failure{Kind: providers.KindServer, Status: 500}, ""},
		"HTML":              {upstreams.OpenAIReply{Body: upstreams.HTML}, providers.Failure{Kind: providers.KindProtocol}, "text/html"},
		"nothing":           {upstreams.OpenAIReply{Empty: true}, providers.Failure{Kind: providers.KindProtocol}, ""},
		"half JSON":         {upstreams.OpenAIReply{Body: `{"data":[{"b64_json":"iVBO`}, providers.Failure{Kind: providers.KindProtocol}, ""},
		"more than JSON":    {upstreams.OpenAIReply{Body: `{"data":[]} x`}, providers.Failure{Kind: providers.KindProtocol}, ""},
		"an array":          {upstreams.OpenAIReply{Body: `[]`}, providers.Failure{Kind: providers.KindProtocol}, ""},
		"no images":         {item(""), providers.Failure{Kind: providers.KindProtocol}, "without images"},
		"no base64":         {item(`{"b64_json":"!!!!"}`), providers.Failure{Kind: providers.KindProtocol}, "isn't valid base64"},
		"half base64":       {item(`{"b64_json":"iVBOR"}`), providers.Failure{Kind: providers.KindProtocol}, "isn't valid base64"},
		"a number":          {item(`{"b64_json":7}`), providers.Failure{Kind: providers.KindProtocol}, "b64"},
		"not an image":      {item(`{"b64_json":"aGVsbG8gdGhlcmU="}`), providers.Failure{Kind: providers.KindProtocol}, "instead of an image"},
		"nothing in it":     {item(`{"b64_json":""}`), providers.Failure{Kind: providers.KindProtocol}, "neither"},
		"a file's URL":      {item(`{"url":"file:///etc/passwd"}`), providers.Failure{Kind: providers.KindProtocol}, "isn't an http or https URL"},
		"a URL to nowhere":  {item(`{"url":"http://nowhere.invalid/a.png"}`), providers.Failure{Kind: providers.KindCut}, ""},
		"error in a 200":    {upstreams.OpenAIReply{Body: `{"error":{"message":"strange"}}`}, providers.Failure{Kind: providers.KindProtocol, Status: 200}, "strange"},
		"hung up":           {upstreams.OpenAIReply{Cut: -1}, providers.Failure{Kind: providers.KindConnect}, ""},
		"cut":               {upstreams.OpenAIReply{Cut: 40}, providers.Failure{Kind: providers.KindCut}, ""},
		"hangs":             {upstreams.OpenAIReply{Stall: -1}, providers.Failure{Kind: providers.KindTimeout}, ""},
		"hangs in the body": {upstreams.OpenAIReply{Stall: 40}, providers.Failure{Kind: providers.KindTimeout}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream := upstreams.NewOpenAI(t, key)
			timeouts := wire.Timeouts{}
			if c.want.Kind == providers.KindTimeout {
				timeouts = wire.Timeouts{FirstByte: 150 * time.Millisecond, Idle: 150 * time.Millisecond}
			}
			upstream.Queue(c.reply)
			_, err := newProvider(upstream.BaseURL(), timeouts).Images(t.Context(), &providers.ImageRequest{Model: "gpt-image-1", Body: []byte(`{"prompt":"x"}`)})
			got := failure(err)
			if got.Kind != c.want.Kind || got.Status != c.want.Status || got.Param != c.want.Param || got.RetryAfter != c.want.RetryAfter || !strings.Contains(got.Error(), c.says) {
				t.Errorf("got  %#v: %v\nwant %#v with %q", got, got, c.want, c.says)
			}
		})
	}
}

// The file server is another host: it must not get the key, and its errors are not
// the client's fault.
func TestImageIsDownloadedWithoutTheKey(t *testing.T) {
	t.Parallel()
	var keys, asked atomic.Int32
	var store *httptest.Server
	store = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.Header.Get("Openai-Project") != "" {
			keys.Add(1)
		}
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, strings.Replace(store.URL, "127.0.0.1", "localhost", 1)+"/a.png", http.StatusFound)
		case "/later":
			if asked.Add(1) == 1 {
				http.Error(w, "not yet", http.StatusServiceUnavailable)
				return
			}
			_, _ = w.Write(upstreams.PNG())
		case "/gone":
			http.Error(w, "expired", http.StatusForbidden)
		case "/endless":
			for {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		default:
			_, _ = w.Write(upstreams.PNG())
		}
	}))
	defer store.Close()
	for path, want := range map[string]providers.Kind{"/a.png": "", "/moved": "", "/later": "", "/gone": providers.KindCut, "/endless": providers.KindProtocol} {
		upstream, p := start(t)
		upstream.Queue(media(upstreams.OpenAIMedia{AsURL: true, URL: store.URL + path}))
		result, err := p.Images(t.Context(), &providers.ImageRequest{Model: "dall-e-2", Body: []byte(`{"prompt":"x"}`)})
		if want == "" && (err != nil || result.Images[0].ContentType != "image/png") || want != "" && failure(err).Kind != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	if keys.Load() != 0 {
		t.Errorf("the file server got a key %d times, want none", keys.Load())
	}
}

func TestCanceledRequestCancelsTheMediaRequest(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(context.Context, *openai.Provider) error{
		"images": func(ctx context.Context, p *openai.Provider) error {
			_, err := p.Images(ctx, &providers.ImageRequest{Model: "gpt-image-1", Body: []byte(`{"prompt":"x"}`)})
			return err
		},
		"video": func(ctx context.Context, p *openai.Provider) error {
			_, err := p.StartVideo(ctx, &providers.VideoRequest{Model: "sora-2", Prompt: "x"})
			return err
		},
		"speech": func(ctx context.Context, p *openai.Provider) error {
			content, err := p.Speech(ctx, &providers.SpeechRequest{Model: "tts-1", Input: "x", Voice: "alloy", Format: "wav"})
			if err != nil {
				return err
			}
			_, err = readContent(content)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream, p := start(t)
			upstream.Queue(upstreams.OpenAIReply{Stall: 20})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-upstream.Wait(1).Began
				cancel()
			}()
			if err := call(ctx, p); err != context.Canceled {
				t.Errorf("got %v", err)
			}
			<-upstream.Requests()[0].Gone
		})
	}
}

func TestMediaErrorsDoNotContainTheKey(t *testing.T) {
	t.Parallel()
	echo := `{"id":"v","error":{"message":"not with ` + key + ` of proj_0123456789"}}`
	replies := []upstreams.OpenAIReply{{Body: echo}, {Status: 400, Body: echo}, {Body: upstreams.HTML, Type: "text/html; k=" + key}, {Status: 302, Header: http.Header{"Location": {"http://elsewhere.invalid/" + key}}}}
	for i, reply := range replies {
		upstream, p := start(t)
		upstream.Queue(reply, reply, reply, reply)
		_, images := p.Images(t.Context(), &providers.ImageRequest{Model: "gpt-image-1", Body: []byte(`{"prompt":"x"}`)})
		_, speech := p.Speech(t.Context(), &providers.SpeechRequest{Model: "tts-1", Input: "x", Voice: "alloy"})
		_, poll := p.PollVideo(t.Context(), "video_1")
		_, fetch := p.FetchVideo(t.Context(), "video_1", "video")
		for _, err := range []error{images, speech, poll, fetch} {
			if err == nil || strings.Contains(fmt.Sprintf("%v %+v", err, err), key) || strings.Contains(err.Error(), "proj_0123456789") {
				t.Errorf("reply %d: %v", i, err)
			}
		}
	}
}

func FuzzImageResponse(f *testing.F) {
	data := base64.StdEncoding.EncodeToString(upstreams.PNG())
	f.Add(`{"data":[{"b64_json":"` + data + `"}],"usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":9}}}`)
	f.Add(`{"data":[{"b64_json":"data:,\u0041"}],"error":{"code":"moderation_blocked","moderation_details":{"moderation_stage":"output"}}}`)
	f.Add(`{"data":[{"url":""}],"data":[]}`)
	upstream := upstreams.NewOpenAI(f, key)
	p := newProvider(upstream.BaseURL(), wire.Timeouts{})
	f.Fuzz(func(t *testing.T, result string) {
		if result == "" || strings.Contains(result, "url") && strings.Contains(result, "http") {
			return
		}
		upstream.Queue(upstreams.OpenAIReply{Body: result, Type: "application/json"})
		got, err := p.Images(t.Context(), &providers.ImageRequest{Model: "gpt-image-1", Body: []byte(`{"prompt":"x"}`)})
		if err != nil {
			if failure(err).Kind == "" {
				t.Errorf("failed with %v", err)
			}
			return
		}
		if u := got.Usage; len(got.Images) == 0 || u.Images != int64(len(got.Images)) || u.InputTokens < 0 || u.OutputTokens < 0 || u.CachedInput > u.InputTokens {
			t.Errorf("got %d images with usage %+v", len(got.Images), u)
		}
	})
}
