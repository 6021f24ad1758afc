package media

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"turnpike/internal/catalog"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/providers"
)

// ImageBatchRequest is the body of a request to create a batch.
type ImageBatchRequest struct {
	Model    string            `json:"model"`
	Requests []ImageRequest    `json:"requests"`
	Metadata map[string]string `json:"metadata"`
}

// ImageRequest is a request of a batch, with the client's own ID.
type ImageRequest struct {
	CustomID string          `json:"custom_id"`
	Body     json.RawMessage `json:"body"`
}

const (
	maxRequests = 1000
	maxCustomID = 64
)

// DraftImages validates a batch.
func (s *Service) DraftImages(ctx context.Context, from Caller, in ImageBatchRequest) (*Draft, error) {
	switch {
	case len(in.Requests) == 0:
		return nil, fault.Missing("requests", "requests must have 1 to %d entries.", maxRequests)
	case len(in.Requests) > maxRequests:
		return nil, fault.Invalid("requests", "requests must have 1 to %d entries, and has %d.", maxRequests, len(in.Requests))
	}
	var most catalog.Units
	seen := make(map[string]int, len(in.Requests))
	for i, r := range in.Requests {
		param := paramAt("requests", i)
		if strings.TrimSpace(r.CustomID) == "" || utf8.RuneCountInString(r.CustomID) > maxCustomID || strings.IndexByte(r.CustomID, 0) >= 0 { // PostgreSQL rejects NUL
			return nil, prefixParam(param, fault.Invalid("custom_id", "custom_id must be your own ID of the request, with 1 to %d characters.", maxCustomID))
		}
		if first, twice := seen[r.CustomID]; twice {
			return nil, prefixParam(param, fault.Invalid("custom_id", "custom_id duplicates requests[%d]. Each must be unique.", first))
		}
		seen[r.CustomID] = i
		if !bytes.HasPrefix(bytes.TrimSpace(r.Body), []byte("{")) {
			return nil, prefixParam(param, fault.Missing("body", "body must be an object with a prompt."))
		}
		params, err := gateway.ParseImageRequest(r.Body, 0)
		switch {
		case err != nil:
			return nil, prefixParam(param+".body", err)
		case params.Stream:
			return nil, prefixParam(param+".body", fault.Invalid("stream", "Images of a batch cannot be streamed. Omit stream."))
		case len(params.Models) > 0:
			return nil, prefixParam(param+".body", fault.Invalid("model", "The model applies to the whole batch. Set model next to requests."))
		}
		most.Images += params.MaxUnits.Images
		most.Input += params.MaxUnits.Input
		most.Output += params.MaxUnits.Output
	}
	o, err := s.newDraft(ctx, from, draftParams{kind: Images, model: in.Model, of: catalog.Image, most: most, input: struct{}{}, text: promptOf(in.Requests[0].Body), metadata: in.Metadata})
	if err != nil {
		return nil, err
	}
	for _, r := range in.Requests {
		if err := o.addTask(r.CustomID, r.Body); err != nil {
			return nil, err
		}
	}
	o.Job.Total = int64(len(o.tasks))
	return o, nil
}

func (s *Service) workImages(ctx context.Context, o gateway.Owner, j *Job, t *task) *result {
	response, by, err := s.Gateway.GenerateImages(ctx, o, j.Models, providers.ImageRequest{Body: t.Input})
	if err != nil {
		return failedResult(t, err)
	}
	var out taskOutput
	began := s.Now()
	for _, p := range response.Images {
		f, err := s.Files.PutBytes(ctx, j.Tenant, j.ID, p.ContentType, p.Data)
		if err != nil {
			return failedResult(t, err)
		}
		out.Files = append(out.Files, s.withExpiry(f, began))
	}
	return &result{task: t, status: taskCompleted, output: out, cost: by.Cost, model: by.Model, provider: by.Provider}
}

// commonFailure returns the error of a batch whose requests all failed. It has the
// requests' code if that is the same for all.
func commonFailure(ctx context.Context, tx *db.Tx, j *Job) (*events.JobError, error) {
	tasks, err := tasksOf(ctx, tx, j.ID)
	if err != nil {
		return nil, err
	}
	why := *errAllFailed
	for i, t := range tasks {
		switch {
		case t.Error == nil || i > 0 && t.Error.Code != why.Code:
			return errAllFailed, nil
		case i == 0:
			why.Code, why.Retryable = t.Error.Code, t.Error.Retryable
		}
	}
	return &why, nil
}
