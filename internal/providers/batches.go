package providers

import (
	"context"
	"net/http"
	"time"
)

// BatchMaker is a provider with an API for batches of requests.
type BatchMaker interface {
	// HasBatches reports whether the server has the API.
	HasBatches() bool
	// OneModelPerBatch reports whether all requests of a batch must have the same model.
	OneModelPerBatch() bool
	// SubmitBatch creates a batch and returns its ID. FindBatch finds it if the response is lost.
	SubmitBatch(ctx context.Context, b *BatchSubmission) (id string, err error)
	// FindBatch returns the ID of a batch that SubmitBatch may have created, or an empty one. undecided
	// means that it can't be known yet.
	FindBatch(ctx context.Context, b *BatchSubmission) (id string, undecided bool, err error)
	// GetBatch returns how far a batch has come.
	GetBatch(ctx context.Context, id string) (*BatchState, error)
	// CancelBatch asks the provider to stop a batch.
	CancelBatch(ctx context.Context, id string) error
	// ReadBatch calls use for each result of a batch that has ended.
	ReadBatch(ctx context.Context, s *BatchState, use func(BatchResult) error) error
}

// BatchSubmission is a batch for a provider.
type BatchSubmission struct {
	Marker    string    // identifies it at the provider; the IDs of its requests begin with it
	StartedAt time.Time // when it was submitted first
	Count     int       // of its requests
	Known     []string  // batches at the provider that are others
	Requests  []BatchRequest
}

// BatchRequest is a request of a batch.
type BatchRequest struct {
	ID string
	*RawRequest
}

// RawRequest is a request as the provider gets it.
type RawRequest struct {
	Path   string // with the version: /v1/chat/completions
	Header http.Header
	Body   []byte
}

// RawResponse is a response as the provider sends it.
type RawResponse struct {
	Status int
	Body   []byte
}

// BatchState is how far a batch at a provider has come.
type BatchState struct {
	ID      string
	Ended   bool
	Default BatchOutcome // of requests without a result, when it has ended
	Problem string       // why the provider rejected the whole batch
	Results []string     // where its results are
}

// BatchOutcome is how a request of a batch ended.
type BatchOutcome string

// The outcomes.
const (
	BatchAnswered BatchOutcome = "" // by a response, which may be an error
	BatchCanceled BatchOutcome = "canceled"
	BatchExpired  BatchOutcome = "expired"
	BatchFailed   BatchOutcome = "failed"
)

// BatchResult is the result of a request.
type BatchResult struct {
	ID       string
	Outcome  BatchOutcome
	Response *RawResponse // if it was answered
}

type transportKey struct{}

// WithTransport returns a context whose requests to providers use the transport instead of the network.
func WithTransport(ctx context.Context, t http.RoundTripper) context.Context {
	return context.WithValue(ctx, transportKey{}, t)
}

// TransportOf returns the transport of WithTransport, or nil.
func TransportOf(ctx context.Context) http.RoundTripper {
	t, _ := ctx.Value(transportKey{}).(http.RoundTripper)
	return t
}
