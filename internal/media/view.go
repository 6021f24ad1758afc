package media

import (
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"strconv"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audio"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/files"
)

const linkTTL = 24 * time.Hour

// linker returns the URL of a file and its expiry, if the file still exists.
type linker func(f outputFile, name string) (url string, expiresAt int64, exists bool)

// reference is the linker for events, whose links are created at delivery.
func reference(f outputFile, name string) (string, int64, bool) {
	return events.FileRef(f.SHA256, name), 0, true
}

// links returns a linker for the API. Links expire with their files.
func (s *Service) links(j *Job) linker {
	now := s.Now()
	return func(f outputFile, name string) (string, int64, bool) {
		until := now.Add(linkTTL).Unix()
		if f.ExpiresAt > 0 {
			until = min(until, f.ExpiresAt)
		} else if end := s.expires(j); end != nil {
			until = min(until, *end)
		}
		return s.Files.URL(j.Tenant, f.file(), name, time.Unix(until, 0)), until, until > now.Unix()
	}
}

// payload returns a job as its event carries it.
func (s *Service) payload(ctx context.Context, q db.Querier, j *Job) (events.Payload, error) {
	switch j.Kind {
	case Images:
		b, err := s.batch(ctx, q, j, reference)
		if err != nil {
			return nil, err
		}
		truncate(b)
		return *b, nil
	case Video:
		return s.videoObject(j, reference)
	case Transcript:
		return s.transcriptObject(j, reference)
	}
	return s.voiceObject(j, reference)
}

// Show returns a job as the API shows it. A list has the brief form.
func (s *Service) Show(ctx context.Context, q db.Querier, j *Job, brief bool) (any, error) {
	switch j.Kind {
	case Images:
		if brief {
			return s.batchObject(j), nil
		}
		return s.batch(ctx, q, j, s.links(j))
	case Video:
		return s.videoObject(j, s.links(j))
	case Transcript:
		return s.transcriptObject(j, s.links(j))
	}
	return s.voiceObject(j, s.links(j))
}

func (s *Service) batchObject(j *Job) *events.ImageBatch {
	return &events.ImageBatch{ID: j.ID, Object: "image.batch", Status: string(j.Status), Model: j.Model, Progress: j.Progress,
		RequestCounts: events.ImageCounts{Total: j.Total, Completed: j.Completed, Failed: j.Failed}, Cost: j.Charged(), Metadata: j.Metadata, Error: j.Error,
		CreatedAt: j.CreatedAt.Unix(), StartedAt: events.Unix(j.StartedAt), CompletedAt: events.Unix(j.CompletedAt), ExpiresAt: s.expires(j)}
}

// batch returns a batch with the results of its requests.
func (s *Service) batch(ctx context.Context, q db.Querier, j *Job, link linker) (*events.ImageBatch, error) {
	tasks, err := tasksOf(ctx, q, j.ID)
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	b := s.batchObject(j)
	b.Results = make([]events.ImageResult, len(tasks))
	for i, t := range tasks {
		r := events.ImageResult{CustomID: t.Name, Status: t.Status, Images: []events.Image{}, Error: t.Error}
		if t.Status == taskWaiting {
			r.Status = string(Queued)
		}
		m, err := readOutput(t.Output)
		if err != nil {
			return nil, fmt.Errorf("read results: %w", err)
		}
		for n, f := range m.Files {
			if url, until, exists := link(f, fileName(j, t, n, f)); exists {
				r.Images = append(r.Images, events.Image{URL: url, URLExpiresAt: until, ContentType: f.ContentType, Bytes: f.Bytes, SHA256: f.SHA256})
			}
		}
		b.Results[i] = r
	}
	return b, nil
}

// An event has at most a megabyte. These are the maximum sizes of a result and of an
// image in it, without the custom ID.
const (
	maxResultBytes = 900 << 10
	resultSize     = 320
	imageSize      = 640
)

// truncate leaves out results that do not fit in an event. The API has them all.
func truncate(b *events.ImageBatch) {
	left := maxResultBytes
	for i, r := range b.Results {
		// JSON takes at most six bytes for a character.
		if left -= resultSize + 6*len(r.CustomID) + imageSize*len(r.Images); left < 0 {
			b.Results, b.ResultsTruncated = b.Results[:i], true
			return
		}
	}
}

func (s *Service) videoObject(j *Job, link linker) (*events.VideoRender, error) {
	var in videoInput
	if err := json.Unmarshal(j.Input, &in); err != nil {
		return nil, fmt.Errorf("read video: %w", err)
	}
	v := &events.VideoRender{ID: j.ID, Object: "video", Status: string(j.Status), Model: j.Model, Progress: j.Progress, Prompt: in.Prompt,
		Seconds: strconv.Itoa(in.Seconds), Size: in.Size, Error: j.Error, Cost: j.Charged(), Metadata: j.Metadata,
		CreatedAt: j.CreatedAt.Unix(), CompletedAt: events.Unix(j.CompletedAt), ExpiresAt: s.expires(j)}
	if in.RemixOf != "" {
		v.RemixedFrom = &in.RemixOf
	}
	if j.Error != nil {
		v.FailureReason = &j.Error.Code
	}
	f, found, err := j.output(variantVideo)
	if found {
		if url, until, exists := link(f, j.ID+Extension(f.ContentType)); exists {
			v.URL, v.URLExpiresAt = &url, &until
		}
	}
	return v, err
}

func (s *Service) voiceObject(j *Job, link linker) (*events.VoiceRender, error) {
	var in voiceInput
	if err := json.Unmarshal(j.Input, &in); err != nil {
		return nil, fmt.Errorf("read voice render: %w", err)
	}
	v := &events.VoiceRender{ID: j.ID, Object: "voice.render", Status: string(j.Status), Model: j.Model, Voice: in.Voice, Progress: j.Progress,
		Segments: events.VoiceSegments{Total: j.Total, Completed: j.Completed}, Characters: in.Characters, ContentType: audio.Types[in.Format],
		Cost: j.Charged(), Metadata: j.Metadata, Error: j.Error, CreatedAt: j.CreatedAt.Unix(), StartedAt: events.Unix(j.StartedAt),
		CompletedAt: events.Unix(j.CompletedAt), ExpiresAt: s.expires(j)}
	m, err := readOutput(j.Output)
	if err != nil {
		return nil, fmt.Errorf("read voice render: %w", err)
	}
	v.DurationSeconds = float64(m.Milliseconds) / 1000
	f, found, err := j.output("")
	if found {
		if url, until, exists := link(f, j.ID+"."+in.Format); exists {
			v.URL, v.URLExpiresAt = &url, &until
		}
	}
	return v, err
}

// output returns a file of the whole job.
func (j *Job) output(variant string) (f outputFile, found bool, err error) {
	m, err := readOutput(j.Output)
	if err != nil {
		return f, false, fmt.Errorf("read output: %w", err)
	}
	for _, f := range m.Files {
		if f.Variant == variant {
			return f, true, nil
		}
	}
	return f, false, nil
}

// Charged returns the cost for the owner. Test jobs are free, and the request log has
// their simulated cost.
func (j *Job) Charged() credits.Micro {
	if j.Environment == accounts.Test {
		return 0
	}
	return j.Cost
}

// expires returns when the job's files expire, which may be before the job does.
func (s *Service) expires(j *Job) *int64 {
	if j.CompletedAt == nil {
		return nil
	}
	at := j.CompletedAt.Add(min(retention, s.Files.Retention())).Unix()
	return &at
}

var extensions = map[string]string{"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp", "video/mp4": ".mp4"}

// Extension returns the usual file extension of a content type.
func Extension(contentType string) string {
	kind, _, _ := mime.ParseMediaType(contentType)
	return extensions[kind]
}

// Content returns a file of a finished video and its name.
func (s *Service) Content(j *Job, variant string) (files.File, string, error) {
	if !j.Status.Ended() {
		return files.File{}, "", fault.New(fault.InvalidState, "The video is %s. Download it when it is completed.", j.Status)
	}
	f, found, err := j.output(variant)
	if err != nil {
		return files.File{}, "", err
	}
	if !found {
		return files.File{}, "", fault.New(fault.NotFound, "This video has no %s.", variant)
	}
	return f.file(), j.ID + Extension(f.ContentType), nil
}
