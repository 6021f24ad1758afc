package openai_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
	"turnpike/test/fakes/upstreams"
)

func TestOtherFieldsOfVideosAreForwarded(t *testing.T) {
	t.Parallel()
	upstream, p := start(t)
	_, _ = p.StartVideo(t.Context(), &providers.VideoRequest{Model: "sora-2", Prompt: "x", Extra: map[string]json.RawMessage{"style": json.RawMessage(`{"a":1}`)}}) // the fake rejects it
	if got := string(upstream.Requests()[0].Body); got != `{"model":"sora-2","prompt":"x","style":{"a":1}}` {
		t.Errorf("got %s", got)
	}
}

func TestVideoIsRendered(t *testing.T) {
	t.Parallel()
	upstream, p := start(t)
	upstream.Queue(media(upstreams.OpenAIMedia{Polls: 3}))
	id, err := p.StartVideo(t.Context(), &providers.VideoRequest{Model: "sora-2", Prompt: "a \"cat\"", Seconds: 8, Size: "1280x720", Key: "video_0123"})
	if err != nil {
		t.Fatal(err)
	}
	req := upstream.Requests()[0]
	if want := `{"model":"sora-2","prompt":"a \"cat\"","seconds":"8","size":"1280x720"}`; string(req.Body) != want || req.Path != "/videos" || req.Header.Get("Idempotency-Key") != "video_0123" || req.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s got %s with %v", req.Path, req.Body, req.Header)
	}
	for i, want := range []providers.VideoState{{Progress: 33}, {Progress: 66}, {Done: true, Progress: 100}} {
		state, err := p.PollVideo(t.Context(), id)
		if err != nil || *state != want {
			t.Errorf("poll %d: got %+v, %v", i, state, err)
		}
	}
	for variant, kind := range map[string]string{"video": "video/mp4", "thumbnail": "image/webp", "spritesheet": "image/jpeg"} {
		for _, header := range []string{"", "none", "application/octet-stream"} {
			upstream.Queue(media(upstreams.OpenAIMedia{Type: header}))
			content, err := p.FetchVideo(t.Context(), id, variant)
			if err != nil {
				t.Fatalf("%s: %v", variant, err)
			}
			file, err := readContent(content)
			if err != nil || content.ContentType != kind || content.Size != -1 && content.Size != int64(len(file)) || variant == "video" && !bytes.Equal(file, upstreams.MP4()) {
				t.Errorf("%s: %d bytes of %d of %s, %v", variant, len(file), content.Size, content.ContentType, err)
			}
		}
	}
	for range 2 { // the second time it no longer exists
		if err := p.DeleteVideo(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if requests := upstream.Requests(); requests[len(requests)-1].Method != http.MethodDelete {
		t.Errorf("got method %s, want DELETE", requests[len(requests)-1].Method)
	}
	if _, err := p.PollVideo(t.Context(), id); failure(err).Status != 404 {
		t.Errorf("after the deletion: got %v, want a failure", err)
	}
}

func TestVideoStartsWithAnImage(t *testing.T) {
	t.Parallel()
	upstream, p := start(t)
	_, err := p.StartVideo(t.Context(), &providers.VideoRequest{
		Model: "sora-2", Prompt: "x", Seconds: 4, Size: "720x1280", Key: "k",
		Source: &providers.Upload{Name: "a.png", ContentType: "image/png", Data: upstreams.PNG()},
	})
	if err != nil {
		t.Fatal(err)
	}
	req := upstream.Requests()[0]
	values, files := upstreams.FormOf(req.Header, req.Body)
	if got := fmt.Sprint(values); got != "map[model:sora-2 prompt:x seconds:4 size:720x1280]" || files["input_reference a.png (image/png)"] != string(upstreams.PNG()) || req.Header.Get("Idempotency-Key") != "k" {
		t.Errorf("got %s and %d files with %v", got, len(files), req.Header)
	}
}

func TestFailedRenderHasItsKind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		said string
		want providers.Kind
	}{
		"blocked":        {upstreams.OpenAIBlockedError("moderation_blocked", ""), providers.KindBlockedInput},
		"blocked output": {upstreams.OpenAIBlockedError("moderation_blocked", "output"), providers.KindBlockedOutput},
		"generated":      {`{"code":"content_policy_violation","message":"The generated video was blocked."}`, providers.KindBlockedOutput},
		"invalid":        {`{"code":"invalid_prompt","message":"m"}`, providers.KindInvalid},
		"server":         {`{"code":"server_error","message":"m"}`, providers.KindServer},
		"rate limit":     {`{"code":"rate_limit_exceeded","message":"m"}`, providers.KindRateLimited},
		"unknown":        {`{"code":"video_generation_failed","message":"m"}`, providers.KindServer},
		"no message":     {`null`, providers.KindServer},
	} {
		upstream, p := start(t)
		upstream.Queue(media(upstreams.OpenAIMedia{Polls: 1, Status: "failed", Error: c.said}))
		id, err := p.StartVideo(t.Context(), &providers.VideoRequest{Model: "sora-2", Prompt: "x"})
		if err != nil {
			t.Fatal(err)
		}
		state, err := p.PollVideo(t.Context(), id)
		if err != nil || !state.Done || state.Failure == nil || state.Failure.Kind != c.want || state.Failure.Status != 0 {
			t.Errorf("%s: got %+v, %v, want %s", name, state, err, c.want)
		}
	}
}

func TestVideoResponseFailuresHaveTheirKind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reply upstreams.OpenAIReply
		start providers.Kind // of StartVideo
		poll  providers.Kind
	}{
		"blocked":          {upstreams.OpenAIBlocked("moderation_blocked", "input"), providers.KindBlockedInput, providers.KindBlockedInput},
		"invalid":          {upstreams.OpenAIReply{Status: 400, Param: "seconds"}, providers.KindInvalid, providers.KindInvalid},
		"overloaded":       {upstreams.OpenAIReply{Status: 503}, providers.KindOverloaded, providers.KindOverloaded},
		"HTML":             {upstreams.OpenAIReply{Body: upstreams.HTML}, providers.KindProtocol, providers.KindProtocol},
		"half":             {upstreams.OpenAIReply{Body: `{"id":"vi`}, providers.KindProtocol, providers.KindProtocol},
		"cut":              {upstreams.OpenAIReply{Body: `{"id":"v","status":"queued"}`, Cut: 5}, providers.KindCut, providers.KindCut},
		"hangs":            {upstreams.OpenAIReply{Stall: -1}, providers.KindTimeout, providers.KindTimeout},
		"no id, no status": {upstreams.OpenAIReply{Body: `{}`}, providers.KindProtocol, providers.KindProtocol},
		"dots":             {upstreams.OpenAIReply{Body: `{"id":"..","status":"queued"}`}, providers.KindProtocol, ""},
		"long id":          {upstreams.OpenAIReply{Body: `{"id":"` + strings.Repeat("x", 600) + `","status":"queued"}`}, providers.KindProtocol, ""},
		"another status":   {upstreams.OpenAIReply{Body: `{"id":"v","status":"preparing","progress":"1e300"}`}, "", ""},
		"odd progress":     {upstreams.OpenAIReply{Body: `{"id":"v","status":"queued","progress":{"a":-1}}`}, "", ""},
		"error in a 200":   {upstreams.OpenAIReply{Body: `{"error":{"code":"rate_limit_exceeded"}}`}, providers.KindRateLimited, providers.KindRateLimited},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream := upstreams.NewOpenAI(t, key)
			timeouts := wire.Timeouts{}
			if c.start == providers.KindTimeout {
				timeouts.FirstByte = 150 * time.Millisecond
			}
			p := newProvider(upstream.BaseURL(), timeouts)
			upstream.Queue(c.reply, c.reply)
			if _, err := p.StartVideo(t.Context(), &providers.VideoRequest{Model: "sora-2", Prompt: "x"}); c.start == "" && err != nil || c.start != "" && failure(err).Kind != c.start {
				t.Errorf("start: got %v, want %s", err, c.start)
			}
			state, err := p.PollVideo(t.Context(), "v")
			if c.poll == "" && (err != nil || state.Done || state.Failure != nil || state.Progress < 0 || state.Progress > 100) || c.poll != "" && failure(err).Kind != c.poll {
				t.Errorf("poll: got %+v, %v, want %s", state, err, c.poll)
			}
		})
	}
}

func TestVideoIDIsOnePathSegment(t *testing.T) {
	t.Parallel()
	upstream, p := start(t)
	_, _ = p.PollVideo(t.Context(), "a/../b?c#d")
	_ = p.DeleteVideo(t.Context(), "a/../b?c#d")
	_, _ = p.FetchVideo(t.Context(), "a/../b?c#d", "video")
	for i, want := range []string{"/v1/videos/a%2F..%2Fb%3Fc%23d", "/v1/videos/a%2F..%2Fb%3Fc%23d", "/v1/videos/a%2F..%2Fb%3Fc%23d/content"} {
		if got := upstream.Requests()[i].Escaped; got != want {
			t.Errorf("got URL %s, want %s", got, want)
		}
	}
	for _, id := range []string{"", ".", "..", strings.Repeat("x", 600)} {
		_, poll := p.PollVideo(t.Context(), id)
		_, fetch := p.FetchVideo(t.Context(), id, "video")
		for _, err := range []error{poll, fetch, p.DeleteVideo(t.Context(), id)} {
			if failure(err).Kind != providers.KindProtocol {
				t.Errorf("%.10s: %v", id, err)
			}
		}
	}
	if n := len(upstream.Requests()); n != 3 {
		t.Errorf("got %d requests, want none", n)
	}
	if _, err := p.FetchVideo(t.Context(), "v", "poster"); failure(err).Kind != providers.KindInvalid {
		t.Errorf("another variant: got %v, want an invalid failure", err)
	}
}

// A provider stores its videos on another server. The download follows the redirect
// without the key.
func TestRedirectedVideoDownloadDoesNotSendTheKey(t *testing.T) {
	t.Parallel()
	var got atomic.Value
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.Header.Get("Authorization") + r.Header.Get("Openai-Project"))
		_, _ = w.Write(upstreams.MP4())
	}))
	defer store.Close()
	upstream, p := start(t)
	upstream.Queue(upstreams.OpenAIReply{Status: 302, Header: http.Header{"Location": {store.URL + "/v.mp4"}}})
	content, err := p.FetchVideo(t.Context(), "v", "video")
	if err != nil {
		t.Fatal(err)
	}
	if file, err := readContent(content); !bytes.Equal(file, upstreams.MP4()) || err != nil {
		t.Errorf("%d bytes, %v", len(file), err)
	}
	if got.Load() != "" {
		t.Errorf("the file server got the key %q, want none", got.Load())
	}
	if upstream.Requests()[0].Header.Get("Authorization") != "Bearer "+key {
		t.Error("the provider got no key")
	}
}

func TestVideoDownloadFailureHasItsKind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reply upstreams.OpenAIReply
		want  providers.Kind
	}{
		"gone":  {upstreams.OpenAIReply{Status: 404}, providers.KindNoModel},
		"HTML":  {upstreams.OpenAIReply{Body: upstreams.HTML}, providers.KindProtocol},
		"error": {upstreams.OpenAIReply{Body: `{"error":{"type":"server_error"}}`}, providers.KindServer},
		"cut":   {upstreams.OpenAIReply{Cut: 100}, providers.KindCut},
	} {
		upstream, p := start(t)
		upstream.Queue(media(upstreams.OpenAIMedia{Polls: 1}))
		id, err := p.StartVideo(t.Context(), &providers.VideoRequest{Model: "sora-2", Prompt: "x"})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = p.PollVideo(t.Context(), id)
		upstream.Queue(c.reply)
		content, err := p.FetchVideo(t.Context(), id, "video")
		if err == nil {
			_, err = readContent(content)
		}
		if failure(err).Kind != c.want {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}
