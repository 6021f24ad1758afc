package openai

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

var _ providers.BatchMaker = (*Provider)(nil)

const (
	// markerField is the metadata that identifies a batch.
	markerField = "turnpike_batch"
	// fileLife is how long OpenAI keeps the input: until the batch has ended, and some time to read it.
	fileLife = 3 * 24 * time.Hour
	// clockSkew is how much the clocks of this server and the provider may differ.
	clockSkew = 5 * time.Minute
	batchPage = 100
)

// HasBatches reports whether the server may have OpenAI's Batch API. Azure's dated API differs.
func (p *Provider) HasBatches() bool { return p.apiVersion == "" }

// OneModelPerBatch reports that OpenAI rejects batches of several models.
func (p *Provider) OneModelPerBatch() bool { return true }

// batchObject is a batch of OpenAI's API.
type batchObject struct {
	ID        string            `json:"id"`
	Status    string            `json:"status"`
	CreatedAt int64             `json:"created_at"`
	Output    string            `json:"output_file_id"`
	Failed    string            `json:"error_file_id"`
	Metadata  map[string]string `json:"metadata"`
	Errors    struct {
		Data []struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"data"`
	} `json:"errors"`
}

// SubmitBatch uploads the requests and creates a batch.
func (p *Provider) SubmitBatch(ctx context.Context, b *providers.BatchSubmission) (string, error) {
	var input bytes.Buffer
	form := multipart.NewWriter(&input)
	if err := writeBatchInput(form, b); err != nil {
		return "", err
	}
	var file struct {
		ID string `json:"id"`
	}
	if err := p.exchange(ctx, wire.Call{Method: http.MethodPost, URL: p.base + "/files", Header: http.Header{"Content-Type": {form.FormDataContentType()}}, Body: input.Bytes()}, &file); err != nil {
		return "", err
	}
	body, err := json.Marshal(map[string]any{"input_file_id": file.ID, "endpoint": b.Requests[0].Path, "completion_window": "24h", "metadata": map[string]string{markerField: b.Marker}}, json.Deterministic(true))
	if err != nil {
		return "", err
	}
	var made batchObject
	err = p.exchange(ctx, wire.Call{Method: http.MethodPost, URL: p.base + "/batches", Body: body}, &made)
	if err == nil && made.ID == "" {
		err = wire.ProtocolFailure("the new batch has no ID")
	}
	return made.ID, err
}

// writeBatchInput writes the form of an upload, with a line for each request.
func writeBatchInput(form *multipart.Writer, b *providers.BatchSubmission) error {
	err := errors.Join(form.WriteField("purpose", "batch"), form.WriteField("expires_after[anchor]", "created_at"),
		form.WriteField("expires_after[seconds]", strconv.Itoa(int(fileLife/time.Second))))
	if err != nil {
		return err
	}
	file, err := form.CreateFormFile("file", b.Marker+".jsonl")
	if err != nil {
		return err
	}
	for _, r := range b.Requests {
		line, err := json.Marshal(struct {
			CustomID string         `json:"custom_id"`
			Method   string         `json:"method"`
			URL      string         `json:"url"`
			Body     jsontext.Value `json:"body"`
		}{r.ID, http.MethodPost, r.Path, r.Body}, wire.Lenient)
		if err != nil {
			return err
		}
		if _, err := file.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return form.Close()
}

// exchange makes a request and decodes the response.
func (p *Provider) exchange(ctx context.Context, call wire.Call, to any) error {
	resp, err := p.doMedia(ctx, call)
	if err != nil {
		return err
	}
	body, err := wire.ReadAll(resp)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, to, wire.Lenient); err != nil {
		return wire.ProtocolFailure("the response isn't a JSON object: %w", err)
	}
	return nil
}

// FindBatch looks for a batch with the marker.
func (p *Provider) FindBatch(ctx context.Context, b *providers.BatchSubmission) (string, bool, error) {
	for after := ""; ; {
		address := p.base + "/batches?limit=" + strconv.Itoa(batchPage)
		if after != "" {
			address += "&after=" + url.QueryEscape(after)
		}
		var list struct {
			Data    []batchObject `json:"data"`
			HasMore bool          `json:"has_more"`
		}
		if err := p.exchange(ctx, wire.Call{Method: http.MethodGet, URL: address}, &list); err != nil {
			return "", false, err
		}
		for _, found := range list.Data {
			if found.Metadata[markerField] == b.Marker {
				return found.ID, false, nil
			}
		}
		n := len(list.Data)
		if n == 0 || !list.HasMore || time.Unix(list.Data[n-1].CreatedAt, 0).Before(b.StartedAt.Add(-clockSkew)) {
			return "", false, nil
		}
		after = list.Data[n-1].ID
	}
}

// GetBatch returns the state of a batch.
func (p *Provider) GetBatch(ctx context.Context, id string) (*providers.BatchState, error) {
	var b batchObject
	if err := p.exchange(ctx, wire.Call{Method: http.MethodGet, URL: p.base + "/batches/" + url.PathEscape(id)}, &b); err != nil {
		return nil, err
	}
	s := &providers.BatchState{ID: id, Ended: true, Default: providers.BatchFailed}
	switch b.Status {
	case "completed":
	case "failed":
		var problems []string
		for _, e := range b.Errors.Data {
			problems = append(problems, strings.TrimSpace(e.Code+": "+e.Message))
		}
		s.Problem = wire.Loggable(strings.Join(problems, "; "), p.secrets()...)
	case "expired":
		s.Default = providers.BatchExpired
	case "cancelled":
		s.Default = providers.BatchCanceled
	default:
		s.Ended = false
	}
	s.Results = slices.DeleteFunc([]string{b.Output, b.Failed}, func(file string) bool { return file == "" })
	return s, nil
}

// CancelBatch cancels a batch.
func (p *Provider) CancelBatch(ctx context.Context, id string) error {
	return p.exchange(ctx, wire.Call{Method: http.MethodPost, URL: p.base + "/batches/" + url.PathEscape(id) + "/cancel"}, &struct{}{})
}

// ReadBatch reads the output and error files of a batch.
func (p *Provider) ReadBatch(ctx context.Context, s *providers.BatchState, use func(providers.BatchResult) error) error {
	for _, file := range s.Results {
		resp, err := p.client.Download(ctx, p.base+"/files/"+url.PathEscape(file)+"/content", p.header, explain)
		if err != nil {
			return err
		}
		err = readResults(resp.Body, use)
		_ = resp.Body.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// readResults reads lines in OpenAI's format.
func readResults(from io.Reader, use func(providers.BatchResult) error) error {
	return wire.EachLine(from, func(text []byte) error {
		var l struct {
			CustomID string `json:"custom_id"`
			Response *struct {
				Status int            `json:"status_code"`
				Body   jsontext.Value `json:"body"`
			} `json:"response"`
			Error *struct {
				Code string `json:"code"`
			} `json:"error"`
		}
		if err := json.Unmarshal(text, &l, wire.Lenient); err != nil {
			return wire.ProtocolFailure("a result isn't a JSON object: %w", err)
		}
		r := providers.BatchResult{ID: l.CustomID, Outcome: providers.BatchFailed}
		switch {
		case l.Response != nil && l.Response.Status != 0:
			r.Outcome, r.Response = providers.BatchAnswered, &providers.RawResponse{Status: l.Response.Status, Body: l.Response.Body}
		case l.Error != nil && l.Error.Code == "batch_expired":
			r.Outcome = providers.BatchExpired
		case l.Error != nil && l.Error.Code == "batch_cancelled":
			r.Outcome = providers.BatchCanceled
		}
		return use(r)
	})
}
