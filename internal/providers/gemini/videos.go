package gemini

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

const maxName = 512

type veoParameters struct {
	AspectRatio     string `json:"aspectRatio,omitempty"`
	Resolution      string `json:"resolution,omitempty"`
	DurationSeconds int    `json:"durationSeconds,omitzero"`
	SampleCount     int    `json:"sampleCount,omitzero"`
}

// operation is the state of a render. Its error has a code of google.rpc, not of HTTP.
type operation struct {
	Name     string    `json:"name"`
	Done     bool      `json:"done"`
	Error    *apiError `json:"error"`
	Response struct {
		GenerateVideoResponse struct {
			GeneratedSamples []struct {
				Video struct {
					URI string `json:"uri"`
				} `json:"video"`
			} `json:"generatedSamples"`
			RaiMediaFilteredReasons []string `json:"raiMediaFilteredReasons"`
		} `json:"generateVideoResponse"`
	} `json:"response"`
}

// StartVideo starts a render. Its ID is the name of the operation. Gemini has no idempotency keys.
func (p *Provider) StartVideo(ctx context.Context, req *providers.VideoRequest) (string, error) {
	s, err := parseSize(req.Size)
	if err != nil {
		return "", err
	}
	parameters := veoParameters{AspectRatio: s.aspectRatio(veoRatios), DurationSeconds: max(0, req.Seconds)}
	if strings.HasPrefix(strings.TrimPrefix(req.Model, "models/"), "veo-2") {
		parameters.SampleCount = 1 // it may make two by default, and has one resolution
	} else {
		parameters.Resolution = s.resolution()
	}
	instance := predictInstance{Prompt: req.Prompt}
	if req.Source != nil {
		source := inline(req.Source)
		instance.Image = &predictImage{Data: source.Data, MimeType: source.MimeType}
	}
	var op operation
	if err := p.post(ctx, p.url(req.Model, "predictLongRunning"), predictRequest{[]predictInstance{instance}, parameters}, &op, explainMedia); err != nil {
		return "", err
	}
	if op.Error != nil && op.Name == "" {
		return "", op.failure(p)
	}
	if _, err := operationPath(op.Name); err != nil {
		return "", err
	}
	return op.Name, nil
}

// PollVideo returns whether a render has ended. Gemini doesn't report progress.
func (p *Provider) PollVideo(ctx context.Context, id string) (*providers.VideoState, error) {
	op, err := p.operation(ctx, id)
	if err != nil {
		return nil, err
	}
	return op.state(p), nil
}

func (op *operation) state(p *Provider) *providers.VideoState {
	if !op.Done {
		return &providers.VideoState{}
	}
	if _, failure := op.result(p); failure != nil {
		return &providers.VideoState{Done: true, Failure: failure}
	}
	return &providers.VideoState{Done: true, Progress: 100}
}

func (p *Provider) operation(ctx context.Context, id string) (*operation, error) {
	path, err := operationPath(id)
	if err != nil {
		return nil, err
	}
	resp, err := p.client.Do(ctx, wire.Call{Method: http.MethodGet, URL: p.base + path, Explain: explainMedia})
	if err != nil {
		return nil, err
	}
	op := new(operation)
	if err := wire.ReadJSON(resp, wire.MaxMedia, op, p.client.Secrets()...); err != nil {
		return nil, err
	}
	return op, op.check(p)
}

// check rejects a response that isn't an operation.
func (op *operation) check(p *Provider) error {
	switch {
	case op.Name != "" || op.Done:
		return nil
	case op.Error != nil:
		return op.Error.mediaFailure(p.client.Secrets())
	}
	return wire.ProtocolFailure("an operation without a name")
}

// result returns the URL of a finished operation's video, or why there is none.
func (op *operation) result(p *Provider) (uri string, failure *providers.Failure) {
	if op.Error != nil {
		return "", op.failure(p)
	}
	r := &op.Response.GenerateVideoResponse
	if len(r.GeneratedSamples) > 0 && r.GeneratedSamples[0].Video.URI != "" {
		return r.GeneratedSamples[0].Video.URI, nil
	}
	if len(r.RaiMediaFilteredReasons) > 0 {
		reason := strings.Join(r.RaiMediaFilteredReasons, " ")
		return "", p.blocked(filterKind(reason), reason)
	}
	return "", wire.ProtocolFailure("a render that ended without a video")
}

var rpcCodes = []string{"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
	"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"}

func (op *operation) failure(p *Provider) *providers.Failure {
	e := *op.Error
	if e.Code >= 0 && e.Code < len(rpcCodes) {
		e.Status, e.Code = rpcCodes[e.Code], 0
	}
	return e.mediaFailure(p.client.Secrets())
}

// FetchVideo returns the video of a finished render. There are no other variants.
func (p *Provider) FetchVideo(ctx context.Context, id, variant string) (*providers.Content, error) {
	if variant != "video" {
		return nil, &providers.Failure{Kind: providers.KindInvalid, Param: "variant", Err: errors.New("variant must be video: this provider has no thumbnails or spritesheets")}
	}
	op, err := p.operation(ctx, id)
	if err != nil {
		return nil, err
	}
	if !op.Done {
		return nil, &providers.Failure{Kind: providers.KindServer, Err: errors.New("the render hasn't ended")}
	}
	uri, failure := op.result(p)
	if failure != nil {
		return nil, failure
	}
	resp, err := p.clientFor(uri).Download(ctx, uri, nil, explainMedia)
	if err != nil {
		return nil, err
	}
	return wire.ReadFile(resp, wire.FileOptions{Type: "video/mp4", Secrets: p.client.Secrets()})
}

// clientFor returns the client that sends the key if the URL is on the provider's own
// server. No one else may get it.
func (p *Provider) clientFor(address string) *wire.Client {
	own, err1 := url.Parse(p.base)
	to, err2 := url.Parse(address)
	if err1 != nil || err2 != nil || own.Scheme != to.Scheme || own.Host != to.Host {
		return p.client.WithCredential(nil)
	}
	return p.client
}

// DeleteVideo does nothing: Gemini can't stop a render, and deletes files itself after two days.
func (p *Provider) DeleteVideo(context.Context, string) error { return nil }

// operationPath returns the path of an operation, such as
// models/veo-3.1-generate-preview/operations/abc.
func operationPath(name string) (string, error) {
	var path strings.Builder
	for segment := range strings.SplitSeq(name, "/") {
		if strings.Trim(segment, ".") == "" || len(name) > maxName { // dots would lead elsewhere
			return "", wire.ProtocolFailure("the operation has an invalid name")
		}
		path.WriteString("/" + url.PathEscape(segment))
	}
	return path.String(), nil
}
