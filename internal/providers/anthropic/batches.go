package anthropic

import (
	"context"
	"errors"
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
	// clockSkew is how much the clocks of this server and the provider may differ.
	clockSkew = 5 * time.Minute
	batchPage = 100
)

// HasBatches reports that the API is part of the Messages API, except on clouds.
func (p *Provider) HasBatches() bool { return p.platform == Direct }

// OneModelPerBatch reports that requests may name different models.
func (p *Provider) OneModelPerBatch() bool { return false }

// batchObject is a message batch.
type batchObject struct {
	ID         string `json:"id"`
	Status     string `json:"processing_status"`
	CreatedAt  string `json:"created_at"`
	ResultsURL string `json:"results_url"`
	Counts     struct {
		Processing int `json:"processing"`
		Succeeded  int `json:"succeeded"`
		Errored    int `json:"errored"`
		Canceled   int `json:"canceled"`
		Expired    int `json:"expired"`
	} `json:"request_counts"`
}

func (b *batchObject) total() int {
	return b.Counts.Processing + b.Counts.Succeeded + b.Counts.Errored + b.Counts.Canceled + b.Counts.Expired
}

const endedStatus = "ended"

// SubmitBatch creates a message batch.
func (p *Provider) SubmitBatch(ctx context.Context, b *providers.BatchSubmission) (string, error) {
	type request struct {
		CustomID string         `json:"custom_id"`
		Params   jsontext.Value `json:"params"`
	}
	var in struct {
		Requests []request `json:"requests"`
	}
	header := p.header()
	for _, r := range b.Requests {
		in.Requests = append(in.Requests, request{r.ID, r.Body})
		for _, name := range []string{"Anthropic-Version", "Anthropic-Beta"} {
			if given := r.Header[name]; given != nil {
				header[name] = given
			}
		}
	}
	body, err := json.Marshal(in, wire.Lenient)
	if err != nil {
		return "", err
	}
	var made batchObject
	err = p.exchange(ctx, wire.Call{Method: http.MethodPost, URL: p.url + "/batches", Header: header, Body: body}, &made)
	if err == nil && made.ID == "" {
		err = p.protocolFailure("the new batch has no ID")
	}
	return made.ID, err
}

func (p *Provider) exchange(ctx context.Context, call wire.Call, to any) error {
	if call.Header == nil {
		call.Header = p.header()
	}
	call.Explain = explain
	resp, err := p.client.Do(ctx, call)
	if err != nil {
		return err
	}
	body, err := wire.ReadAll(resp)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, to, wire.Lenient); err != nil {
		return p.protocolFailure("not a JSON object: %w", err)
	}
	return nil
}

// FindBatch looks for a batch by its requests, because the API has no metadata. The IDs of the requests
// are in the results, so a batch with the right number of requests must end first.
func (p *Provider) FindBatch(ctx context.Context, b *providers.BatchSubmission) (id string, undecided bool, err error) {
	for after := ""; ; {
		address := p.url + "/batches?limit=" + strconv.Itoa(batchPage)
		if after != "" {
			address += "&after_id=" + url.QueryEscape(after)
		}
		var list struct {
			Data    []batchObject `json:"data"`
			HasMore bool          `json:"has_more"`
		}
		if err := p.exchange(ctx, wire.Call{Method: http.MethodGet, URL: address}, &list); err != nil {
			return "", false, err
		}
		for i := range list.Data {
			found := &list.Data[i]
			if at, err := time.Parse(time.RFC3339, found.CreatedAt); err == nil && at.Before(b.StartedAt.Add(-clockSkew)) {
				return "", undecided, nil
			}
			if found.total() != b.Count || slices.Contains(b.Known, found.ID) {
				continue
			}
			if found.Status != endedStatus {
				undecided = true
				continue
			}
			is, err := p.hasMarker(ctx, found, b.Marker)
			if err != nil || is {
				return found.ID, false, err
			}
		}
		n := len(list.Data)
		if n == 0 || !list.HasMore {
			return "", undecided, nil
		}
		after = list.Data[n-1].ID
	}
}

var errFound = errors.New("found")

// hasMarker reports whether the requests of a batch that has ended begin with the marker.
func (p *Provider) hasMarker(ctx context.Context, b *batchObject, marker string) (is bool, err error) {
	err = p.ReadBatch(ctx, &providers.BatchState{ID: b.ID}, func(r providers.BatchResult) error {
		is = strings.HasPrefix(r.ID, marker)
		return errFound
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return is, err
}

// GetBatch returns the state of a batch.
func (p *Provider) GetBatch(ctx context.Context, id string) (*providers.BatchState, error) {
	var b batchObject
	if err := p.exchange(ctx, wire.Call{Method: http.MethodGet, URL: p.url + "/batches/" + url.PathEscape(id)}, &b); err != nil {
		return nil, err
	}
	return &providers.BatchState{ID: id, Ended: b.Status == endedStatus, Default: providers.BatchFailed}, nil
}

// CancelBatch cancels a batch.
func (p *Provider) CancelBatch(ctx context.Context, id string) error {
	return p.exchange(ctx, wire.Call{Method: http.MethodPost, URL: p.url + "/batches/" + url.PathEscape(id) + "/cancel"}, &struct{}{})
}

// ReadBatch reads the results of a batch. Its own URL isn't used: only this server gets the key.
func (p *Provider) ReadBatch(ctx context.Context, s *providers.BatchState, use func(providers.BatchResult) error) error {
	resp, err := p.client.Download(ctx, p.url+"/batches/"+url.PathEscape(s.ID)+"/results", p.header(), explain)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return wire.EachLine(resp.Body, func(text []byte) error {
		var l struct {
			CustomID string `json:"custom_id"`
			Result   struct {
				Type    string         `json:"type"`
				Message jsontext.Value `json:"message"`
				Error   jsontext.Value `json:"error"`
			} `json:"result"`
		}
		if err := json.Unmarshal(text, &l, wire.Lenient); err != nil {
			return p.protocolFailure("a result isn't a JSON object: %w", err)
		}
		r := providers.BatchResult{ID: l.CustomID, Outcome: providers.BatchFailed}
		switch l.Result.Type {
		case "succeeded":
			r.Outcome, r.Response = providers.BatchAnswered, &providers.RawResponse{Status: http.StatusOK, Body: l.Result.Message}
		case "errored":
			r.Outcome, r.Response = providers.BatchAnswered, &providers.RawResponse{Status: errorStatus(l.Result.Error), Body: l.Result.Error}
		case "canceled":
			r.Outcome = providers.BatchCanceled
		case "expired":
			r.Outcome = providers.BatchExpired
		}
		return use(r)
	})
}

// errorStatuses are the statuses of errors. Results have only their types.
var errorStatuses = map[string]int{
	"invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403, "not_found_error": 404,
	"request_too_large": 413, "rate_limit_error": 429, "api_error": 500, "timeout_error": 504, "overloaded_error": 529,
}

func errorStatus(body []byte) int {
	e := readError(body)
	if status := errorStatuses[e.Error.Type]; status != 0 {
		return status
	}
	return http.StatusInternalServerError
}
