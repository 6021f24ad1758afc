package simulator

import (
	"bytes"
	"errors"
	"image"
	"image/png"
	"io"
	"strings"
	"testing"
	"time"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/internal/providers/simulator/mp4"
)

func start(t *testing.T, s *Simulator, req providers.VideoRequest) string {
	t.Helper()
	if req.Seconds == 0 {
		req.Seconds = 2
	}
	if req.Size == "" {
		req.Size = "320x240"
	}
	id, err := s.StartVideo(t.Context(), &req)
	if err != nil {
		t.Fatalf("%+v: %v", req, err)
	}
	return id
}

func fetch(t *testing.T, s *Simulator, id, variant string) (contentType string, data []byte) {
	t.Helper()
	c, err := s.FetchVideo(t.Context(), id, variant)
	if err != nil {
		t.Fatal(err)
	}
	data, err = io.ReadAll(c.Body)
	if err != nil || c.Size != int64(len(data)) {
		t.Errorf("%d bytes of %d, %v", len(data), c.Size, err)
	}
	c.Body.Close()
	return c.ContentType, data
}

func TestVideoHasRequestedSizeAndLength(t *testing.T) {
	t.Parallel()
	id := start(t, newSimulator(), providers.VideoRequest{Prompt: "waves", Size: "1280x720", Seconds: 8})
	// Another process serves the same file for the ID.
	contentType, file := fetch(t, newSimulator(), id, "video")
	if want := mp4.Encode(1280, 720, 8); contentType != "video/mp4" || !bytes.Equal(file, want) {
		t.Errorf("got %d bytes of %s, want the %d bytes of 1280x720 and 8 seconds", len(file), contentType, len(want))
	}
}

func TestThumbnailFollowsFromTheRequest(t *testing.T) {
	t.Parallel()
	photo := &providers.Upload{Data: encoded(func(b *bytes.Buffer) error { return png.Encode(b, red(8, 8)) })}
	s := newSimulator()
	seen := map[string]int{}
	for i, req := range []providers.VideoRequest{{Prompt: "waves"}, {Prompt: "waves[[sim:delay=0s]]"}, {Prompt: "woods"}, {Prompt: "waves", Source: photo}} {
		_, file := fetch(t, s, start(t, s, req), "thumbnail")
		if other, ok := seen[string(file)]; ok != (i == 1) {
			t.Errorf("request %d: got the thumbnail of request %d: %t, want %t", i, other, ok, i == 1)
		}
		seen[string(file)] = i
	}
}

func TestThumbnailAndSpriteSheetHaveExpectedSize(t *testing.T) {
	t.Parallel()
	s := newSimulator()
	for _, c := range []struct {
		size         string
		seconds      int
		thumb, sheet image.Point
	}{
		{"320x240", 6, image.Pt(320, 240), image.Pt(640, 240)},
		{"64x2048", 60, image.Pt(64, 2048), image.Pt(20, 2400)},
	} {
		id := start(t, s, providers.VideoRequest{Prompt: "waves", Size: c.size, Seconds: c.seconds})
		for variant, want := range map[string]image.Point{"thumbnail": c.thumb, "spritesheet": c.sheet} {
			contentType, file := fetch(t, s, id, variant)
			m, kind, err := image.Decode(bytes.NewReader(file))
			if err != nil || contentType != "image/jpeg" || kind != "jpeg" || m.Bounds().Size() != want {
				t.Errorf("%s: %s %v, %v", variant, contentType, m.Bounds(), err)
			}
		}
	}
	_, err := s.FetchVideo(t.Context(), start(t, s, providers.VideoRequest{Prompt: "waves"}), "sound")
	if f, ok := fault.As(err); !ok || f.Param != "variant" {
		t.Errorf("another variant: %v", err)
	}
}

func TestMagicDelayDelaysVideos(t *testing.T) {
	t.Parallel()
	now := time.Unix(created, 0)
	clock := func() time.Time { return now }
	s := New(Options{Now: clock})
	done := start(t, s, providers.VideoRequest{Prompt: "waves [[sim:delay=10s]]"})
	failed := start(t, s, providers.VideoRequest{Prompt: "waves [[sim:delay=10s]] [[sim:fail=capacity]]"})
	s = New(Options{Now: clock}) // a new process without state
	for _, c := range []struct {
		after    time.Duration
		progress int
		ended    bool
	}{{-time.Second, 0, false}, {0, 0, false}, {2500 * time.Millisecond, 25, false}, {9999 * time.Millisecond, 99, false}, {10 * time.Second, 100, true}, {time.Hour, 100, true}} {
		now = time.Unix(created, 0).Add(c.after)
		state, err := s.PollVideo(t.Context(), done)
		if err != nil || state.Failure != nil || state.Done != c.ended || state.Progress != c.progress {
			t.Errorf("after %v: %+v, %v", c.after, state, err)
		}
		bad, err := s.PollVideo(t.Context(), failed)
		if err != nil || bad.Done || (bad.Failure != nil) != c.ended {
			t.Errorf("after %v: %+v, %v", c.after, bad, err)
		}
		if _, err := s.FetchVideo(t.Context(), done, "video"); (err == nil) != c.ended {
			t.Errorf("fetched after %v: %v", c.after, err)
		}
		if _, err := s.FetchVideo(t.Context(), failed, "video"); err == nil {
			t.Errorf("a failed video was fetched after %v", c.after)
		}
	}
}

func TestInvalidVideoIDIsNotFound(t *testing.T) {
	t.Parallel()
	s := newSimulator()
	id := start(t, s, providers.VideoRequest{Prompt: "my secret plan"})
	if err := s.DeleteVideo(t.Context(), id); err != nil || len(id) > 100 || strings.Contains(id, "secret") {
		t.Errorf("%s: %v", id, err)
	}
	other := []byte(id)
	if other[20]++; other[20] != 'b' {
		other[20] = 'a'
	}
	for _, wrong := range []string{"", "video_123", id[:len(id)-1], id + "A", string(other), videoIDPrefix, videoIDPrefix + "!"} {
		_, pollErr := s.PollVideo(t.Context(), wrong)
		_, fetchErr := s.FetchVideo(t.Context(), wrong, "video")
		for _, err := range []error{pollErr, fetchErr, s.DeleteVideo(t.Context(), wrong)} {
			var f *providers.Failure
			if !errors.As(err, &f) || f.Status != 404 {
				t.Errorf("%q: %v", wrong, err)
			}
		}
	}
}

func TestInvalidVideoRequestIsRejected(t *testing.T) {
	t.Parallel()
	for param, requests := range map[string][]providers.VideoRequest{
		"seconds":         {{Prompt: "a", Size: "64x64"}, {Prompt: "a", Size: "64x64", Seconds: 61}, {Prompt: "a", Size: "64x64", Seconds: -1}},
		"size":            {{Prompt: "a", Seconds: 1}, {Prompt: "a", Seconds: 1, Size: "65x64"}, {Prompt: "a", Seconds: 1, Size: "64x4096"}, {Prompt: "a", Seconds: 1, Size: "16x16"}},
		"input_reference": {{Prompt: "a", Seconds: 1, Size: "64x64", Source: &providers.Upload{Data: []byte("hello")}}},
	} {
		for _, req := range requests {
			_, err := newSimulator().StartVideo(t.Context(), &req)
			if f, ok := fault.As(err); !ok || f.Param != param {
				t.Errorf("%+v: %v", req, err)
			}
		}
	}
}
