package media

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"turnpike/internal/budget"
	"turnpike/internal/catalog"
	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/gateway"
	"turnpike/internal/lanes"
	"turnpike/internal/providers"
)

// VideoRequest is the body of a request to create a video.
type VideoRequest struct {
	Model    string
	Prompt   string
	Seconds  string
	Size     string
	Metadata map[string]string
	// Source is an image or a video to start from, or nil.
	Source *providers.Upload
	// Extra are fields that Turnpike doesn't know.
	Extra map[string]json.RawMessage
}

const (
	defaultSeconds = 4
	maxSeconds     = 60
	defaultSize    = "720x1280"
	maxVideoPrompt = 32_000
	// maxVideo is more than a minute takes in the best quality on offer.
	maxVideo = 2 << 30
	// firstPoll is the delay of the first poll. Each further delay is twice as long,
	// up to the server's setting.
	firstPoll = 100 * time.Millisecond
	// extraTries is how often a thumbnail or spritesheet is requested.
	extraTries = 3
	// variants are the files of a render, the video first.
	variantVideo, variantThumbnail, variantSpritesheet = "video", "thumbnail", "spritesheet"
)

// VideoVariants lists the files of a video.
var VideoVariants = []string{variantVideo, variantThumbnail, variantSpritesheet}

var videoSize = regexp.MustCompile(`^[1-9][0-9]{1,3}x[1-9][0-9]{1,3}$`)

// videoInput is the stored part of the request.
type videoInput struct {
	Prompt  string `json:"prompt"`
	Seconds int    `json:"seconds"`
	Size    string `json:"size"`
	// Source is the file to start from.
	Source     *outputFile `json:"source,omitzero"`
	SourceName string      `json:"source_name,omitzero"`
	// Extra are fields for the provider.
	Extra map[string]json.RawMessage `json:"extra,omitempty"`
	// RemixOf is the video that this one is a new version of, and Remixed where its provider has it.
	RemixOf string               `json:"remix_of,omitzero"`
	Remixed *gateway.VideoSource `json:"remixed,omitzero"`
}

// RemixRequest is the body of a request for a new version of a video.
type RemixRequest struct {
	ID     string // of the video
	Prompt string
	// Metadata and Extra are those of VideoRequest.
	Metadata map[string]string
	Extra    map[string]json.RawMessage
}

// DraftRemix validates a request for a new version of a video. It has the model, the duration and the
// size of the video, and only the video's provider can render it.
func (s *Service) DraftRemix(ctx context.Context, from Caller, in RemixRequest) (*Draft, error) {
	if err := checkPrompt(in.Prompt); err != nil {
		return nil, err
	}
	j, err := s.Get(ctx, s.DB, from.Principal, Video, in.ID)
	if err != nil {
		return nil, err
	}
	if j.Status != Completed {
		return nil, fault.New(fault.InvalidState, "Only a completed video can be remixed. This one is %s.", j.Status)
	}
	var v videoInput
	if err := json.Unmarshal(j.Input, &v); err != nil {
		return nil, fmt.Errorf("read video: %w", err)
	}
	tasks, err := tasksOf(ctx, s.DB, j.ID)
	if err != nil || len(tasks) != 1 {
		return nil, errors.Join(err, fmt.Errorf("video %s has %d tasks", j.ID, len(tasks)))
	}
	render, err := readOutput(tasks[0].Output)
	if err != nil {
		return nil, err
	}
	maker, err := s.Gateway.VideoProvider(j.Environment, render.Provider)
	if err != nil {
		return nil, err
	}
	if _, ok := maker.(providers.VideoRemixer); !ok {
		return nil, fault.Invalid("id", "The provider of this video cannot remix it. Create a new video with POST /v1/videos.")
	}
	v = videoInput{Prompt: in.Prompt, Seconds: v.Seconds, Size: v.Size, Extra: in.Extra, RemixOf: j.ID,
		Remixed: &gateway.VideoSource{Provider: render.Provider, Model: j.Model, ID: render.Upstream}}
	return s.draftVideo(ctx, from, j.Model, v, in.Metadata)
}

func (s *Service) draftVideo(ctx context.Context, from Caller, model string, v videoInput, metadata map[string]string) (*Draft, error) {
	o, err := s.newDraft(ctx, from, draftParams{kind: Video, model: model, of: catalog.Video, most: catalog.Units{Milliseconds: int64(v.Seconds) * 1000}, input: v, text: v.Prompt, metadata: metadata})
	if err != nil {
		return nil, err
	}
	o.Job.Total = 1
	return o, o.addTask("", struct{}{})
}

func checkPrompt(prompt string) error {
	switch {
	case strings.TrimSpace(prompt) == "":
		return fault.Missing("prompt", "prompt is required. Describe what the video shows.")
	case utf8.RuneCountInString(prompt) > maxVideoPrompt:
		return fault.Invalid("prompt", "prompt must have at most %d characters.", maxVideoPrompt)
	}
	return nil
}

// DraftVideo validates a request for a video.
func (s *Service) DraftVideo(ctx context.Context, from Caller, in VideoRequest) (*Draft, error) {
	v := videoInput{Prompt: in.Prompt, Seconds: defaultSeconds, Size: defaultSize, Extra: in.Extra}
	if err := checkPrompt(in.Prompt); err != nil {
		return nil, err
	}
	if in.Size != "" && !videoSize.MatchString(in.Size) {
		return nil, fault.Invalid("size", "size must be a width and a height, such as 720x1280 or 1280x720.")
	}
	v.Size = cmp.Or(in.Size, v.Size)
	if in.Seconds != "" {
		n, err := strconv.Atoi(in.Seconds)
		if err != nil || n < 1 || n > maxSeconds {
			return nil, fault.Invalid("seconds", "seconds must be an integer from 1 to %d, such as 4, 8 or 12.", maxSeconds)
		}
		v.Seconds = n
	}
	o, err := s.draftVideo(ctx, from, in.Model, v, in.Metadata)
	if err != nil {
		return nil, err
	}
	if in.Source != nil {
		o.size = int64(len(in.Source.Data))
		o.store = func(ctx context.Context) error {
			f, err := s.Files.PutBytes(ctx, o.Job.Tenant, o.Job.ID, in.Source.ContentType, in.Source.Data)
			if err != nil {
				return err
			}
			stored := newOutputFile(f)
			v.Source, v.SourceName = &stored, in.Source.Name
			o.Job.Input, err = json.Marshal(v)
			return err
		}
	}
	return o, nil
}

// workVideo starts the render, or polls the one that was started. Its ID at the
// provider is stored in between.
func (s *Service) workVideo(ctx context.Context, o gateway.Owner, j *Job, t *task) *result {
	m, err := readOutput(t.Output)
	if err != nil {
		return failedResult(t, err)
	}
	if m.Upstream == "" {
		return s.startVideo(ctx, o, j, t)
	}
	return s.pollVideo(ctx, j, t, m)
}

func (s *Service) startVideo(ctx context.Context, o gateway.Owner, j *Job, t *task) *result {
	var in videoInput
	if err := json.Unmarshal(j.Input, &in); err != nil {
		return failedResult(t, err)
	}
	req := providers.VideoRequest{Prompt: in.Prompt, Seconds: in.Seconds, Size: in.Size, Extra: in.Extra, Key: j.ID}
	if in.Source != nil {
		data, err := s.readSource(ctx, j, in.Source)
		if err != nil {
			return failedResult(t, err)
		}
		req.Source = &providers.Upload{Name: in.SourceName, ContentType: in.Source.ContentType, Data: data}
	}
	var id string
	var by gateway.Generated
	var err error
	if in.Remixed != nil {
		id, by, err = s.Gateway.RemixVideo(ctx, o, *in.Remixed, req)
	} else {
		id, by, err = s.Gateway.StartVideo(ctx, o, j.Models, req)
	}
	if err != nil {
		return failedResult(t, err)
	}
	due := s.Now().Add(firstPoll)
	return &result{task: t, status: taskWaiting, due: &due, output: taskOutput{Upstream: id, Provider: by.Provider, Cost: int64(by.Cost)},
		model: by.Model, provider: by.Provider}
}

// readSource reads the source of a render, which is no larger than a request body.
func (s *Service) readSource(ctx context.Context, j *Job, f *outputFile) ([]byte, error) {
	file, err := s.Files.Read(ctx, j.Tenant, f.SHA256)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return budget.Of(ctx).ReadAll(budget.Source{From: file, Limit: f.Bytes, Expected: f.Bytes})
}

func (s *Service) pollVideo(ctx context.Context, j *Job, t *task, m taskOutput) *result {
	maker, err := s.Gateway.VideoProvider(j.Environment, m.Provider)
	if err != nil {
		return failedResult(t, err).withOutput(m)
	}
	state, err := maker.PollVideo(ctx, m.Upstream)
	switch {
	case err != nil:
		return failedResult(t, err).withOutput(m)
	case state.Failure != nil:
		return &result{task: t, status: taskFailed, err: state.Failure, tries: t.Tries, output: m, final: true}
	case !state.Done:
		m.Polls++
		due := s.Now().Add(min(s.PollEvery, firstPoll<<min(m.Polls, 20)))
		return &result{task: t, status: taskWaiting, due: &due, output: m, progress: int64(min(max(state.Progress, 0), 99))}
	}
	m.Files = nil // of an earlier, incomplete attempt
	began := s.Now()
	for _, variant := range VideoVariants {
		f, err := s.fetchWithRetries(ctx, j, maker, m.Upstream, variant)
		var refused *providers.Failure
		if err != nil && variant != variantVideo && (errors.As(err, &refused) || fault.Is(err, fault.InvalidParameter)) {
			continue // not every provider has it
		}
		if err != nil {
			return failedResult(t, err).withOutput(m)
		}
		stored := s.withExpiry(f, began)
		stored.Variant = variant
		m.Files = append(m.Files, stored)
	}
	return &result{task: t, status: taskCompleted, output: m, cost: m.cost()}
}

// fetchWithRetries retries the thumbnail and the spritesheet a few times, so that they
// don't delay the video. The video itself has the retries of its task.
func (s *Service) fetchWithRetries(ctx context.Context, j *Job, maker providers.VideoGenerator, id, variant string) (f files.File, err error) {
	for try := range extraTries {
		if f, err = s.fetchVideo(ctx, j, maker, id, variant); variant == variantVideo || !isTransient(err) {
			break
		}
		slog.Warn("failed to fetch a file of a video", "job", j.ID, "variant", variant, "retrying", try+1 < extraTries, "error", err)
		lanes.Backoff(ctx)
	}
	return f, err
}

func isTransient(err error) bool {
	var f *providers.Failure
	return errors.As(err, &f) && (f.Transient() || f.Kind == providers.KindLocal)
}

func (s *Service) fetchVideo(ctx context.Context, j *Job, maker providers.VideoGenerator, id, variant string) (files.File, error) {
	content, err := maker.FetchVideo(ctx, id, variant)
	if err != nil {
		return files.File{}, err
	}
	defer content.Body.Close()
	return s.Files.Put(ctx, j.Tenant, j.ID, content.ContentType, &limitedReader{content.Body, maxVideo})
}

// cancelRender cancels a task's render at its provider, and returns r. If that fails, the
// render continues there and its result is ignored. If the server stops, the result is nil,
// and the next node does it.
func (s *Service) cancelRender(ctx context.Context, j *Job, m taskOutput, r *result) *result {
	if m.Upstream == "" {
		return r
	}
	maker, err := s.Gateway.VideoProvider(j.Environment, m.Provider)
	if err == nil {
		err = maker.DeleteVideo(ctx, m.Upstream)
	}
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		slog.Warn("could not stop a render at its provider", "video", j.ID, "error", err)
	}
	return r
}

// limitedReader fails if a provider's file has more than the allowed bytes, so that it
// can't fill the disk.
type limitedReader struct {
	from io.Reader
	left int64
}

func (b *limitedReader) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1] // one more, to detect a longer file
	}
	n, err := b.from.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, &providers.Failure{Kind: providers.KindProtocol, Err: errors.New("the file is larger than allowed")}
	}
	return n, err
}
