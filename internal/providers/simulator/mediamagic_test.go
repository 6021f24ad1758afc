package simulator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"turnpike/internal/budget"
	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

// makers request an image, audio and a video with the same prompt, and name the
// field of the prompt.
var makers = map[string]struct {
	param string
	make  func(ctx context.Context, words string) error
}{
	"picture": {"prompt", func(ctx context.Context, words string) error {
		_, err := newSimulator().Images(ctx, &providers.ImageRequest{Body: fmt.Appendf(nil, `{"prompt":%q,"size":"64x64"}`, words)})
		return err
	}},
	"sound": {"input", func(ctx context.Context, words string) error {
		c, err := newSimulator().Speech(ctx, &providers.SpeechRequest{Input: words, Format: "pcm"})
		if err == nil {
			c.Body.Close()
		}
		return err
	}},
	"video": {"prompt", func(ctx context.Context, words string) error {
		_, err := newSimulator().StartVideo(ctx, &providers.VideoRequest{Prompt: words, Seconds: 1, Size: "64x64"})
		return err
	}},
}

var failureKinds = map[string]providers.Kind{
	"moderation_blocked_input": "blocked_input", "moderation_blocked_output": "blocked_output", "invalid_input": "invalid",
	"upstream_error": "server_error", "upstream_timeout": "timeout", "capacity": "overloaded",
}

func TestMagicFailFailsMedia(t *testing.T) {
	t.Parallel()
	for code, kind := range failureKinds {
		words := "please [[sim:fail=" + code + "]]"
		for name, maker := range makers {
			err := maker.make(t.Context(), words)
			if name == "video" { // fails later, like other jobs
				s := newSimulator()
				id, startErr := s.StartVideo(t.Context(), &providers.VideoRequest{Prompt: words, Seconds: 1, Size: "64x64"})
				state, pollErr := s.PollVideo(t.Context(), id)
				if err != nil || startErr != nil || pollErr != nil || state.Done || state.Failure == nil {
					t.Errorf("%s of a video: %+v, %v", code, state, errors.Join(err, startErr, pollErr))
					continue
				}
				err = state.Failure
			}
			var f *providers.Failure
			if !errors.As(err, &f) || f.Kind != kind || (f.Param == maker.param) != (kind == "invalid") {
				t.Errorf("%s of a %s: %v", code, name, err)
			}
		}
	}
	if len(failureKinds) != len(failures) || len(failureCodes) != len(failures) {
		t.Error("there are failures that have no test or no number")
	}
}

func TestMagicErrorFailsMedia(t *testing.T) {
	t.Parallel()
	for name, maker := range makers {
		for status, code := range errorCodes {
			err := maker.make(t.Context(), fmt.Sprintf("[[sim:error=%d]] x", status))
			if f, ok := fault.As(err); !ok || f.Code != code || status == 400 && f.Param != maker.param {
				t.Errorf("%d of a %s: %v", status, name, err)
			}
		}
	}
}

func TestInvalidMediaMagicInputIsRejectedWithHelp(t *testing.T) {
	t.Parallel()
	for name, maker := range makers {
		for _, words := range []string{"[[sim:fail=cancelled]]", "[[sim:fail]]", "[[sim:length=5]]", "[[sim:text=a]]", "[[sim:cut=1]]", "[[sim:delay=61s]]", "[[sim:", "[[sim:x]]"} {
			f, ok := fault.As(maker.make(t.Context(), words))
			if !ok || f.Code != fault.InvalidParameter || f.Param != maker.param {
				t.Errorf("%s for a %s: %v", words, name, f)
				continue
			}
			for _, known := range mediaMagic {
				if !strings.Contains(f.Message, "[[sim:"+known) {
					t.Errorf("the help does not list %s: %s", known, f.Message)
				}
			}
			for code := range failures {
				if !strings.Contains(f.Message, string(code)) {
					t.Errorf("the help does not list %s", code)
				}
			}
		}
	}
	if f, ok := fault.As(askFor(say("[[sim:fail=capacity]]"))); !ok || f.Param != "messages" {
		t.Errorf("a chat took a medium's magic: %v", f)
	}
}

func TestMagicDelayDelaysMedia(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := budget.New(1 << 30).With(t.Context()) // the bubble can't use the shared one
		for _, name := range []string{"picture", "sound"} {
			for words, failed := range map[string]bool{"[[sim:delay=3s]]": false, "[[sim:delay=3s]] [[sim:fail=capacity]]": true} {
				start := time.Now()
				if err := makers[name].make(ctx, words); (err != nil) != failed || time.Since(start) != 3*time.Second {
					t.Errorf("%s, %s: %v after %v", name, words, err, time.Since(start))
				}
			}
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			if err := makers[name].make(ctx, "[[sim:delay=3s]]"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
		}
	})
}
