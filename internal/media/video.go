package media

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"turnpike/internal/catalog"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/lanes"
	"turnpike/internal/providers"
)

// VideoRequest is a video to be rendered.
type VideoRequest struct {
	Model    string
	Prompt   string
	Seconds  string
	Size     string
	Metadata map[string]string
	// Source is a picture or a video to begin with, or nil.
	Source *providers.Upload
}

const (
	defaultSeconds = 4
	mostSeconds    = 60
	defaultSize    = "720x1280"
	maxVideoPrompt = 32_000
	// maxVideo is more than a minute in the best quality that is sold takes.
	maxVideo = 2 << 30
	// firstPoll is how soon after its start a render is looked after; each
	// further time is twice as long, up to the server's setting.
	firstPoll = 100 * time.Millisecond
	// pictureTries is how often in a row what goes with a video is asked for.
	pictureTries = 3
	// variants are what is kept of a render, the video itself first.
	theVideo, theThumbnail, theSpritesheet = "video", "thumbnail", "spritesheet"
)

// VideoVariants are what there is of a video.
var VideoVariants = []string{theVideo, theThumbnail, theSpritesheet}

var videoSize = regexp.MustCompile(`^[1-9][0-9]{1,3}x[1-9][0-9]{1,3}$`)

// videoInput is what a job keeps of the request.
type videoInput struct {
	Prompt  string `json:"prompt"`
	Seconds int    `json:"seconds"`
	Size    string `json:"size"`
	// Source is the file to begin with.
	Source     *madeFile `json:"source,omitzero"`
	SourceName string    `json:"source_name,omitzero"`
}

// OrderVideo checks a render.
func (s *Service) OrderVideo(from From, in VideoRequest) (*Order, error) {
	v := videoInput{Prompt: in.Prompt, Seconds: defaultSeconds, Size: defaultSize}
	switch {
	case strings.TrimSpace(in.Prompt) == "":
		return nil, fault.Missing("prompt", "prompt must say what the video shows")
	case utf8.RuneCountInString(in.Prompt) > maxVideoPrompt:
		return nil, fault.Invalid("prompt", "prompt must have at most %d characters", maxVideoPrompt)
	case in.Size != "" && !videoSize.MatchString(in.Size):
		return nil, fault.Invalid("size", "size must be a width and a height, such as 720x1280 or 1280x720")
	}
	if in.Size != "" {
		v.Size = in.Size
	}
	if in.Seconds != "" {
		n, err := strconv.Atoi(in.Seconds)
		if err != nil || n < 1 || n > mostSeconds {
			return nil, fault.Invalid("seconds", "seconds must be a whole number from 1 to %d, such as 4, 8 or 12", mostSeconds)
		}
		v.Seconds = n
	}
	var models []string
	if in.Model != "" {
		models = []string{in.Model}
	}
	o, err := s.newOrder(from, Video, models, catalog.Video, catalog.Units{Milliseconds: int64(v.Seconds) * 1000}, v, in.Metadata)
	if err != nil {
		return nil, err
	}
	if in.Source != nil {
		o.size = int64(len(in.Source.Data))
		o.store = func(ctx context.Context) error {
			f, err := s.files.PutBytes(ctx, o.Job.Owner(), o.Job.ID, in.Source.ContentType, in.Source.Data)
			if err != nil {
				return err
			}
			kept := newMadeFile(f)
			v.Source, v.SourceName = &kept, in.Source.Name
			o.Job.Input, err = json.Marshal(v)
			return err
		}
	}
	o.Job.Total = 1
	return o, o.add("", struct{}{})
}

// workVideo starts the render, or looks after the one that was started: its
// id at the provider is written down in between.
func (s *Service) workVideo(ctx context.Context, j *Job, t *task) *result {
	m, err := readMade(t.Output)
	if err != nil {
		return failedResult(t, err)
	}
	if m.Upstream == "" {
		return s.startVideo(ctx, j, t)
	}
	return s.pollVideo(ctx, j, t, m)
}

func (s *Service) startVideo(ctx context.Context, j *Job, t *task) *result {
	var in videoInput
	if err := json.Unmarshal(j.Input, &in); err != nil {
		return failedResult(t, err)
	}
	req := providers.VideoRequest{Prompt: in.Prompt, Seconds: in.Seconds, Size: in.Size, Key: j.ID}
	if in.Source != nil {
		data, err := s.readSource(ctx, j, in.Source)
		if err != nil {
			return failedResult(t, err)
		}
		req.Source = &providers.Upload{Name: in.SourceName, ContentType: in.Source.ContentType, Data: data}
	}
	id, by, err := s.gateway.StartVideo(ctx, j.Environment, j.Models, req)
	if err != nil {
		return failedResult(t, err)
	}
	due := s.now().Add(firstPoll)
	return &result{task: t, status: taskWaiting, due: &due, output: made{Upstream: id, Provider: by.Provider, Cost: int64(by.Cost)},
		model: by.Model, provider: by.Provider}
}

// readSource reads what a render begins with, which came in the body of a
// request and is no larger than that.
func (s *Service) readSource(ctx context.Context, j *Job, f *madeFile) ([]byte, error) {
	file, err := s.files.Read(ctx, j.Owner(), f.SHA256)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}

func (s *Service) pollVideo(ctx context.Context, j *Job, t *task, m made) *result {
	maker, err := s.gateway.VideoProvider(j.Environment, m.Provider)
	if err != nil {
		return failedResult(t, err).keeping(m)
	}
	state, err := maker.PollVideo(ctx, m.Upstream)
	switch {
	case err != nil:
		return failedResult(t, err).keeping(m)
	case state.Failure != nil:
		r := failedResult(t, state.Failure).keeping(m)
		r.final = true // asking again does not mend it
		return r
	case !state.Done:
		m.Polls++
		due := s.now().Add(min(s.pollEvery, firstPoll<<min(m.Polls, 20)))
		return &result{task: t, status: taskWaiting, due: &due, output: m, progress: int64(min(max(state.Progress, 0), 99))}
	}
	m.Files = nil // of an earlier try that did not get to all of them
	began := s.now()
	for _, variant := range VideoVariants {
		f, err := s.fetchPatiently(ctx, j, maker, m.Upstream, variant)
		var refused *providers.Failure
		if err != nil && variant != theVideo && (errors.As(err, &refused) || fault.Is(err, fault.InvalidParameter)) {
			continue // not every provider has them
		}
		if err != nil {
			return failedResult(t, err).keeping(m)
		}
		kept := s.keptSince(f, began)
		kept.Variant = variant
		m.Files = append(m.Files, kept)
	}
	return &result{task: t, status: taskCompleted, output: m, cost: m.cost()}
}

// fetchPatiently asks again for what goes with a video: what is not there then is
// never asked for again, as nobody should wait for a video because of it. The
// video itself has the tries of its task.
func (s *Service) fetchPatiently(ctx context.Context, j *Job, maker providers.VideoMaker, id, variant string) (f files.File, err error) {
	for try := range pictureTries {
		if f, err = s.fetchVideo(ctx, j, maker, id, variant); variant == theVideo || !momentary(err) {
			break
		}
		slog.Warn("cannot fetch what goes with a video", "job", j.ID, "variant", variant, "again", try+1 < pictureTries, "error", err)
		lanes.Backoff(ctx)
	}
	return f, err
}

func momentary(err error) bool {
	var f *providers.Failure
	return errors.As(err, &f) && (f.Momentary() || f.Kind == providers.KindLocal)
}

func (s *Service) fetchVideo(ctx context.Context, j *Job, maker providers.VideoMaker, id, variant string) (files.File, error) {
	content, err := maker.FetchVideo(ctx, id, variant)
	if err != nil {
		return files.File{}, err
	}
	defer content.Body.Close()
	return s.files.Put(ctx, j.Owner(), j.ID, content.ContentType, &bounded{content.Body, maxVideo})
}

// advanceVideo follows from the render's end.
func (s *Service) advanceVideo(done bool, why *events.JobError) (ended Status, failure *events.JobError) {
	switch {
	case why != nil:
		return Failed, why
	case done:
		return Completed, nil
	}
	return "", nil
}

// stopVideo lets a provider forget a render that nobody wants any more. One
// that cannot be told goes on there, and nobody hears of it.
func (s *Service) stopVideo(ctx context.Context, j *Job, m made) {
	maker, err := s.gateway.VideoProvider(j.Environment, m.Provider)
	if err == nil {
		err = maker.DropVideo(ctx, m.Upstream)
	}
	if err != nil {
		slog.Warn("could not stop a render at its provider", "video", j.ID, "error", err)
	}
}
