package gemini

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"turnpike/internal/providers"
	"turnpike/test/fakes/upstreams"
)

const veo = "veo-3.1-generate-preview"

func TestVideoIsRendered(t *testing.T) {
	t.Parallel()
	p, server := start(t)
	id, err := p.StartVideo(t.Context(), &providers.VideoRequest{Model: veo, Prompt: "a cat", Seconds: 8, Size: "1280x720", Key: "k"})
	if err != nil || id != "models/"+veo+"/operations/render1" {
		t.Fatalf("got %s, %v", id, err)
	}
	for i, want := range []providers.VideoState{{}, {Done: true, Progress: 100}} {
		if state, err := p.PollVideo(t.Context(), id); err != nil || *state != want {
			t.Errorf("poll %d: %+v, %v", i, state, err)
		}
	}
	content, err := p.FetchVideo(t.Context(), id, "video")
	if err != nil {
		t.Fatal(err)
	}
	defer content.Body.Close()
	if file, err := io.ReadAll(content.Body); !bytes.Equal(file, upstreams.MP4()) || content.ContentType != "video/mp4" || err != nil {
		t.Errorf("%d bytes of %s, %v", len(file), content.ContentType, err)
	}
	if err := p.DeleteVideo(t.Context(), id); err != nil {
		t.Error(err)
	}
	if got := server.Requests()[1]; got.Path != "/v1beta/"+id || got.Method != http.MethodGet || len(got.Body) != 0 {
		t.Errorf("polled by %s %s", got.Method, got.Path)
	}
	if f := failureOf(t, second(p.FetchVideo(t.Context(), id, "thumbnail"))); f.Kind != providers.KindInvalid || f.Param != "variant" {
		t.Errorf("a thumbnail: %v", f)
	}
}

func second(_ *providers.Content, err error) error { return err }

func TestVideoRequestIsTranslated(t *testing.T) {
	t.Parallel()
	source := &providers.Upload{Name: "a.png", ContentType: "image/png", Data: upstreams.PNG()}
	for _, c := range []struct {
		req  providers.VideoRequest
		want string
	}{
		{providers.VideoRequest{Model: veo, Prompt: "x"}, `{"instances":[{"prompt":"x"}],"parameters":{}}`},
		{providers.VideoRequest{Model: veo, Prompt: "x", Seconds: 4, Size: "720x1280"}, `{"instances":[{"prompt":"x"}],"parameters":{"aspectRatio":"9:16","resolution":"720p","durationSeconds":4}}`},
		{providers.VideoRequest{Model: veo, Prompt: "x", Seconds: 8, Size: "1792x1024"}, `{"instances":[{"prompt":"x"}],"parameters":{"aspectRatio":"16:9","resolution":"1080p","durationSeconds":8}}`},
		{providers.VideoRequest{Model: veo, Prompt: "x", Size: "3840x2160", Source: source}, `{"instances":[{"prompt":"x","image":{"bytesBase64Encoded":"` + base64.StdEncoding.EncodeToString(source.Data) + `","mimeType":"image/png"}}],"parameters":{"aspectRatio":"16:9","resolution":"4k"}}`},
		{providers.VideoRequest{Model: "veo-2.0-generate-001", Prompt: "x", Seconds: 5, Size: "1280x720"}, `{"instances":[{"prompt":"x"}],"parameters":{"aspectRatio":"16:9","durationSeconds":5,"sampleCount":1}}`},
	} {
		p, server := start(t)
		if _, err := p.StartVideo(t.Context(), &c.req); err != nil {
			t.Errorf("%s: %v", c.want, err)
		}
		if got := server.Requests()[0]; string(got.Body) != c.want || got.Path != "/v1beta/models/"+c.req.Model+":predictLongRunning" {
			t.Errorf("%s got  %s\nwant %s", got.Path, got.Body, c.want)
		}
	}
}

func TestFailedRenderHasItsKind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		media upstreams.GeminiMedia
		want  providers.Kind
	}{
		"prompt":   {upstreams.GeminiMedia{Filtered: "Veo could not generate 1 videos based on the prompt provided."}, providers.KindBlockedInput},
		"audio":    {upstreams.GeminiMedia{Filtered: "We encountered an issue with the audio for your prompt."}, providers.KindBlockedOutput},
		"filtered": {upstreams.GeminiMedia{Filtered: "Support codes: 42237218"}, providers.KindBlockedOutput},
		"policy":   {upstreams.GeminiMedia{Error: `{"code":3,"message":"The prompt could not be submitted. It contains words that violate our policies."}`}, providers.KindBlockedInput},
		"invalid":  {upstreams.GeminiMedia{Error: `{"code":3,"message":"wrong"}`}, providers.KindInvalid},
		"quota":    {upstreams.GeminiMedia{Error: `{"code":8,"message":"quota"}`}, providers.KindRateLimited},
		"internal": {upstreams.GeminiMedia{Error: `{"code":13,"message":"Video generation failed due to an internal server issue."}`}, providers.KindServer},
		"busy":     {upstreams.GeminiMedia{Error: `{"code":14,"message":"high load"}`}, providers.KindOverloaded},
		"deadline": {upstreams.GeminiMedia{Error: `{"code":4}`}, providers.KindTimeout},
		"unknown":  {upstreams.GeminiMedia{Error: `{"code":99}`}, providers.KindProtocol},
		"HTTP's":   {upstreams.GeminiMedia{Error: `{"code":503}`}, providers.KindOverloaded},
		"nothing":  {upstreams.GeminiMedia{Empty: true}, providers.KindProtocol},
	} {
		p, server := start(t)
		c.media.Polls = 1
		server.Queue(makeMedia(c.media))
		id, err := p.StartVideo(t.Context(), &providers.VideoRequest{Model: veo, Prompt: "x"})
		if err != nil {
			t.Fatal(err)
		}
		state, err := p.PollVideo(t.Context(), id)
		if err != nil || !state.Done || state.Failure == nil || state.Failure.Kind != c.want {
			t.Errorf("%s: %+v, %v, want %s", name, state, err, c.want)
		}
		if f := failureOf(t, second(p.FetchVideo(t.Context(), id, "video"))); f.Kind != c.want {
			t.Errorf("%s, fetched: %v", name, f)
		}
	}
}

func TestVideoResponseFailuresHaveTheirKind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reply       upstreams.GeminiReply
		start, poll providers.Kind
	}{
		"invalid":   {upstreams.GeminiReply{Status: 400, Body: upstreams.GeminiError(400, "INVALID_ARGUMENT", "`durationSeconds` is out of bound", "")}, providers.KindInvalid, providers.KindInvalid},
		"not found": {upstreams.GeminiReply{Status: 404, Body: upstreams.GeminiError(404, "NOT_FOUND", "gone", "")}, providers.KindNoModel, providers.KindNoModel},
		"HTML":      {upstreams.GeminiReply{Body: upstreams.HTML}, providers.KindProtocol, providers.KindProtocol},
		"half":      {upstreams.GeminiReply{Body: `{"name":"mod`}, providers.KindProtocol, providers.KindProtocol},
		"cut":       {upstreams.GeminiReply{Body: `{"name":"models/v/op`, Cut: true}, providers.KindCut, providers.KindCut},
		"no name":   {upstreams.GeminiReply{Body: `{}`}, providers.KindProtocol, providers.KindProtocol},
		"an error":  {upstreams.GeminiReply{Body: upstreams.GeminiError(429, "RESOURCE_EXHAUSTED", "quota", "")}, providers.KindRateLimited, providers.KindRateLimited},
		"dots":      {upstreams.GeminiReply{Body: `{"name":"models/../x"}`}, providers.KindProtocol, ""},
		"long name": {upstreams.GeminiReply{Body: `{"name":"` + strings.Repeat("x", 600) + `"}`}, providers.KindProtocol, ""},
	} {
		p, server := start(t)
		server.Queue(c.reply, c.reply)
		if _, err := p.StartVideo(t.Context(), &providers.VideoRequest{Model: veo, Prompt: "x"}); failureOf(t, err).Kind != c.start {
			t.Errorf("%s, start: %v, want %s", name, err, c.start)
		}
		state, err := p.PollVideo(t.Context(), "models/v/operations/o")
		if c.poll == "" && (err != nil || state.Done) || c.poll != "" && failureOf(t, err).Kind != c.poll {
			t.Errorf("%s, poll: %+v, %v, want %s", name, state, err, c.poll)
		}
	}
}

func TestOperationNameCannotLeaveItsPath(t *testing.T) {
	t.Parallel()
	p, server := start(t)
	_, _ = p.PollVideo(t.Context(), "models/a?b#c/operations/d e")
	if got := server.Requests()[0]; got.Path != "/v1beta/models/a%3Fb%23c/operations/d%20e" || len(got.Query) != 0 {
		t.Errorf("called %s", got.Path)
	}
	for _, id := range []string{"", "..", "a/../b", "/a", "a//b", strings.Repeat("x", 600)} {
		_, err := p.PollVideo(t.Context(), id)
		if f := failureOf(t, err); f.Kind != providers.KindProtocol {
			t.Errorf("%.10s: %v", id, f)
		}
	}
	if n := len(server.Requests()); n != 1 {
		t.Errorf("%d calls were made", n)
	}
}

func TestUnfinishedVideoCannotBeFetched(t *testing.T) {
	t.Parallel()
	p, _ := start(t)
	id, err := p.StartVideo(t.Context(), &providers.VideoRequest{Model: veo, Prompt: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if f := failureOf(t, second(p.FetchVideo(t.Context(), id, "video"))); f.Kind != providers.KindServer {
		t.Errorf("got %v", f)
	}
}

// The video's address is the provider's word. The key goes to its own host
// alone, also when that redirects.
func TestRedirectedVideoDownloadDoesNotSendTheKey(t *testing.T) {
	t.Parallel()
	var calls, keys atomic.Int32
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if r.Header.Get("X-Goog-Api-Key") != "" {
			keys.Add(1)
		}
		_, _ = w.Write(upstreams.MP4())
	}))
	defer store.Close()
	for _, redirect := range []bool{false, true} {
		p, server := start(t)
		made := upstreams.GeminiMedia{Polls: 1}
		if !redirect {
			made.URI = store.URL + "/v.mp4"
		}
		server.Queue(makeMedia(made))
		id, err := p.StartVideo(t.Context(), &providers.VideoRequest{Model: veo, Prompt: "x"})
		if err != nil {
			t.Fatal(err)
		}
		if redirect { // the operation's answer is the usual one
			server.Queue(upstreams.GeminiReply{}, upstreams.GeminiReply{Status: 302, Header: http.Header{"Location": {store.URL}}})
		}
		content, err := p.FetchVideo(t.Context(), id, "video")
		if err != nil {
			t.Fatal(err)
		}
		_ = content.Body.Close()
	}
	if calls.Load() != 2 || keys.Load() != 0 {
		t.Errorf("%d calls with %d keys", calls.Load(), keys.Load())
	}
}

// A video has at least one byte and doesn't begin like text, regardless of its
// content type.
func TestTextInsteadOfVideoIsAFailure(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"empty": "", "HTML": upstreams.HTML, "words": `{"error":{"code":500}}`} {
		for _, kind := range []string{"video/mp4", "application/octet-stream"} {
			store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", kind)
				_, _ = io.WriteString(w, body)
			}))
			p, server := start(t)
			server.Queue(makeMedia(upstreams.GeminiMedia{Polls: 1, URI: store.URL + "/v.mp4"}))
			id, err := p.StartVideo(t.Context(), &providers.VideoRequest{Model: veo, Prompt: "x"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = p.FetchVideo(t.Context(), id, "video"); err == nil || failureOf(t, err).Kind != providers.KindProtocol {
				t.Errorf("%s as %s: %v", name, kind, err)
			}
			store.Close()
		}
	}
}

func TestVideoDownloadFailureHasItsKind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reply upstreams.GeminiReply
		want  providers.Kind
	}{
		"gone":  {upstreams.GeminiReply{Status: 404, Body: upstreams.GeminiError(404, "NOT_FOUND", "gone", "")}, providers.KindNoModel},
		"HTML":  {upstreams.GeminiReply{Body: upstreams.HTML, Header: http.Header{"Content-Type": {"text/html"}}}, providers.KindProtocol},
		"words": {upstreams.GeminiReply{Body: `{}`}, providers.KindProtocol},
		"cut":   {upstreams.GeminiReply{Status: 200, Body: "half", Header: http.Header{"Content-Type": {"video/mp4"}}, Cut: true}, providers.KindCut},
	} {
		p, server := start(t)
		server.Queue(makeMedia(upstreams.GeminiMedia{Polls: 1}))
		id, err := p.StartVideo(t.Context(), &providers.VideoRequest{Model: veo, Prompt: "x"})
		if err != nil {
			t.Fatal(err)
		}
		server.Queue(upstreams.GeminiReply{}, c.reply)
		content, err := p.FetchVideo(t.Context(), id, "video")
		if err == nil {
			_, err = io.ReadAll(content.Body)
			_ = content.Body.Close()
		}
		if f := failureOf(t, err); f.Kind != c.want {
			t.Errorf("%s: %v, want %s", name, f, c.want)
		}
	}
}
