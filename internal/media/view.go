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

// linkLife is for how long a link is good that was asked for.
const linkLife = 24 * time.Hour

// linker says where a file can be had, and until when, unless it is gone.
type linker func(f madeFile, name string) (url string, expiresAt int64, there bool)

// reference is for events, whose links are made when they are delivered.
func reference(f madeFile, name string) (string, int64, bool) {
	return events.FileRef(f.SHA256, name), 0, true
}

// links are good from now on, for no longer than their files are kept.
func (s *Service) links(j *Job) linker {
	now := s.now()
	return func(f madeFile, name string) (string, int64, bool) {
		until := now.Add(linkLife).Unix()
		if f.ExpiresAt > 0 {
			until = min(until, f.ExpiresAt)
		} else if end := s.expires(j); end != nil {
			until = min(until, *end)
		}
		return s.files.URL(j.Owner(), f.file(), name, time.Unix(until, 0)), until, until > now.Unix()
	}
}

// payload is a job as its event shows it.
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
	}
	return s.voiceObject(j, reference)
}

// Show is a job as its owner sees it: an object of the same form as in its
// event. In a list it is brief.
func (s *Service) Show(ctx context.Context, q db.Querier, j *Job, brief bool) (any, error) {
	switch j.Kind {
	case Images:
		if brief {
			return s.batchObject(j), nil
		}
		return s.batch(ctx, q, j, s.links(j))
	case Video:
		return s.videoObject(j, s.links(j))
	}
	return s.voiceObject(j, s.links(j))
}

func (s *Service) batchObject(j *Job) *events.ImageBatch {
	return &events.ImageBatch{ID: j.ID, Object: "image.batch", Status: string(j.Status), Model: j.Model, Progress: j.Progress,
		RequestCounts: events.ImageCounts{Total: j.Total, Completed: j.Completed, Failed: j.Failed}, Cost: j.shownCost(), Metadata: j.Metadata, Error: j.Error,
		CreatedAt: j.CreatedAt.Unix(), StartedAt: unix(j.StartedAt), CompletedAt: unix(j.CompletedAt), ExpiresAt: s.expires(j)}
}

// batch is a batch with what came of each of its requests.
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
		m, err := readMade(t.Output)
		if err != nil {
			return nil, fmt.Errorf("read results: %w", err)
		}
		for n, f := range m.Files {
			if url, until, there := link(f, fileName(j, t, n, f)); there {
				r.Images = append(r.Images, events.Image{URL: url, URLExpiresAt: until, ContentType: f.ContentType, Bytes: f.Bytes, SHA256: f.SHA256})
			}
		}
		b.Results[i] = r
	}
	return b, nil
}

// An event has at most a megabyte, with its links: what a result and a picture
// of it take at most, beside the caller's own id.
const (
	roomForResults = 900 << 10
	resultSize     = 320
	pictureSize    = 640
)

// truncate leaves out results that do not fit into an event. The batch itself
// has them all.
func truncate(b *events.ImageBatch) {
	room := roomForResults
	for i, r := range b.Results {
		// JSON writes a character in six bytes at most.
		if room -= resultSize + 6*len(r.CustomID) + pictureSize*len(r.Images); room < 0 {
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
		Seconds: strconv.Itoa(in.Seconds), Size: in.Size, Error: j.Error, Cost: j.shownCost(), Metadata: j.Metadata,
		CreatedAt: j.CreatedAt.Unix(), CompletedAt: unix(j.CompletedAt), ExpiresAt: s.expires(j)}
	if j.Error != nil {
		v.FailureReason = &j.Error.Code
	}
	f, found, err := j.output(theVideo)
	if found {
		if url, until, there := link(f, j.ID+Extension(f.ContentType)); there {
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
		Cost: j.shownCost(), Metadata: j.Metadata, Error: j.Error, CreatedAt: j.CreatedAt.Unix(), StartedAt: unix(j.StartedAt),
		CompletedAt: unix(j.CompletedAt), ExpiresAt: s.expires(j)}
	m, err := readMade(j.Output)
	if err != nil {
		return nil, fmt.Errorf("read voice render: %w", err)
	}
	v.DurationSeconds = float64(m.Milliseconds) / 1000
	f, found, err := j.output("")
	if found {
		if url, until, there := link(f, j.ID+"."+in.Format); there {
			v.URL, v.URLExpiresAt = &url, &until
		}
	}
	return v, err
}

// output is a file that the job as a whole came to.
func (j *Job) output(variant string) (f madeFile, found bool, err error) {
	m, err := readMade(j.Output)
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

// shownCost is what a job costs its owner: a test costs nothing, and what it
// would have cost is in the request log.
func (j *Job) shownCost() credits.Micro {
	if j.Environment == accounts.Test {
		return 0
	}
	return j.Cost
}

// expires is when the job's files go, which an operator may have do so sooner
// than the job itself.
func (s *Service) expires(j *Job) *int64 {
	if j.CompletedAt == nil {
		return nil
	}
	at := j.CompletedAt.Add(min(kept, s.files.Retention())).Unix()
	return &at
}

func unix(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	s := t.Unix()
	return &s
}

// Extension is what a file of the type is usually called.
func Extension(contentType string) string {
	switch kind, _, _ := mime.ParseMediaType(contentType); kind {
	case "image/png":
		return ".png"
	case "image/jpeg":
		return ".jpg"
	case "image/webp":
		return ".webp"
	case "video/mp4":
		return ".mp4"
	}
	return ""
}

// Content is a file of a finished video, and what to call it.
func (s *Service) Content(j *Job, variant string) (files.File, string, error) {
	if !j.Status.Ended() {
		return files.File{}, "", fault.New(fault.InvalidState, "the video is %s: it can be had when it is completed", j.Status)
	}
	f, found, err := j.output(variant)
	if err != nil {
		return files.File{}, "", err
	}
	if !found {
		return files.File{}, "", fault.New(fault.NotFound, "there is no %s of this video", variant)
	}
	return f.file(), j.ID + Extension(f.ContentType), nil
}
