package media

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"turnpike/internal/catalog"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/providers"
)

// TranscriptRequest is a request to transcribe a long file.
type TranscriptRequest struct {
	gateway.TranscriptionForm
	Metadata map[string]string
}

// transcriptInput is the stored part of the request.
type transcriptInput struct {
	Translate    bool                  `json:"translate,omitzero"`
	Format       string                `json:"format"`
	Milliseconds int64                 `json:"milliseconds"`
	Fields       []providers.FormField `json:"fields"`
	Source       outputFile            `json:"source"`
	SourceName   string                `json:"source_name"`
}

// DraftTranscript validates a request for a transcription.
func (s *Service) DraftTranscript(ctx context.Context, from Caller, in *TranscriptRequest) (*Draft, error) {
	p, err := gateway.ParseTranscription(ctx, &in.TranscriptionForm)
	if err != nil {
		return nil, err
	}
	if p.Stream {
		return nil, fault.Invalid("stream", "A transcription job cannot be streamed. Omit stream, or use POST /v1/audio/transcriptions.")
	}
	if err := s.Gateway.CheckTranscription(ctx, from.owner(), p); err != nil {
		return nil, err
	}
	input := transcriptInput{Translate: in.Translate, Format: p.Format, Milliseconds: p.Milliseconds, Fields: p.Fields, SourceName: in.File.Name}
	o, err := s.newDraft(ctx, from, draftParams{kind: Transcript, models: p.Models, of: catalog.Transcription, most: p.MaxUnits, input: input, text: in.File.Name, metadata: in.Metadata})
	if err != nil {
		return nil, err
	}
	o.size = int64(len(in.File.Data))
	o.store = func(ctx context.Context) error {
		f, err := s.Files.PutBytes(ctx, o.Job.Tenant, workHolder(o.Job), in.File.ContentType, in.File.Data)
		if err != nil {
			return err
		}
		input.Source = newOutputFile(f)
		o.Job.Input, err = json.Marshal(input)
		return err
	}
	o.Job.Total = 1
	return o, o.addTask("", struct{}{})
}

func (s *Service) workTranscript(ctx context.Context, o gateway.Owner, j *Job, t *task) *result {
	var in transcriptInput
	if err := json.Unmarshal(j.Input, &in); err != nil {
		return failedResult(t, err)
	}
	data, err := s.readSource(ctx, j, &in.Source)
	if err != nil {
		return failedResult(t, err)
	}
	response, by, err := s.Gateway.GenerateTranscript(ctx, o, j.Models, providers.TranscriptionRequest{
		File:   providers.Upload{Name: in.SourceName, ContentType: in.Source.ContentType, Data: data},
		Fields: in.Fields, Translate: in.Translate, Format: in.Format, Milliseconds: in.Milliseconds})
	if err != nil {
		return failedResult(t, err)
	}
	began := s.Now()
	f, err := s.Files.PutBytes(ctx, j.Tenant, j.ID, cmp.Or(response.ContentType, "application/json"), response.Body)
	if err != nil {
		return failedResult(t, err)
	}
	return &result{task: t, status: taskCompleted, output: taskOutput{Files: []outputFile{s.withExpiry(f, began)}}, cost: by.Cost, model: by.Model, provider: by.Provider}
}

func (s *Service) transcriptObject(j *Job, link linker) (*events.VoiceTranscription, error) {
	var in transcriptInput
	if err := json.Unmarshal(j.Input, &in); err != nil {
		return nil, fmt.Errorf("read transcription: %w", err)
	}
	v := &events.VoiceTranscription{ID: j.ID, Object: "voice.transcription", Status: string(j.Status), Model: j.Model, Task: "transcribe", ResponseFormat: in.Format,
		Progress: j.Progress, DurationSeconds: float64(in.Milliseconds) / 1000, Cost: j.Charged(), Metadata: j.Metadata, Error: j.Error,
		CreatedAt: j.CreatedAt.Unix(), StartedAt: events.Unix(j.StartedAt), CompletedAt: events.Unix(j.CompletedAt), ExpiresAt: s.expires(j)}
	if in.Translate {
		v.Task = "translate"
	}
	f, found, err := j.output("")
	if found {
		v.ContentType = &f.ContentType
		if url, until, exists := link(f, transcriptName(j, in.Format)); exists {
			v.URL, v.URLExpiresAt = &url, &until
		}
	}
	return v, err
}

// transcriptName returns the name of a transcript's file.
func transcriptName(j *Job, format string) string {
	switch format {
	case "srt", "vtt":
		return j.ID + "." + format
	case "text":
		return j.ID + ".txt"
	}
	return j.ID + ".json"
}
