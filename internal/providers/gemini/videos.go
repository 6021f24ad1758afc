package gemini

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// maxName is much longer than any operation's name that is in use.
const maxName = 512

type veoParameters struct {
	AspectRatio     string `json:"aspectRatio,omitempty"`
	Resolution      string `json:"resolution,omitempty"`
	DurationSeconds int    `json:"durationSeconds,omitzero"`
	SampleCount     int    `json:"sampleCount,omitzero"`
}

// operation is a render's state. Its error has a code of google.rpc, and not
// one of HTTP.
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

// StartVideo begins a render. Its id is the operation's name. Gemini cannot
// know a render that was started before: it takes no key.
func (p *Provider) StartVideo(ctx context.Context, req *providers.VideoRequest) (string, error) {
	s, err := parseSize(req.Size)
	if err != nil {
		return "", err
	}
	parameters := veoParameters{AspectRatio: s.aspectRatio(veoRatios), DurationSeconds: max(0, req.Seconds)}
	if strings.HasPrefix(strings.TrimPrefix(req.Model, "models/"), "veo-2") {
		parameters.SampleCount = 1 // it may make two otherwise, and knows one resolution
	} else {
		parameters.Resolution = s.resolution()
	}
	instance := predictInstance{Prompt: req.Prompt}
	if req.Source != nil {
		source := inline(req.Source)
		instance.Image = &predictImage{Data: source.Data, MimeType: source.MimeType}
	}
	var op operation
	if err := p.postMedia(ctx, req.Model, "predictLongRunning", predictRequest{[]predictInstance{instance}, parameters}, &op); err != nil {
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

// PollVideo tells whether a render has ended. Gemini does not say how far one
// has come.
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
	op := new(operation)
	if err = p.doMedia(ctx, wire.Call{Method: http.MethodGet, URL: p.base + path}, op); err != nil {
		return nil, err
	}
	return op, op.check(p)
}

// check finds an answer that is no operation.
func (op *operation) check(p *Provider) error {
	switch {
	case op.Name != "" || op.Done:
		return nil
	case op.Error != nil:
		return op.Error.mediaFailure(p.key)
	}
	return protocolFailure("an operation without a name")
}

// result is where the video of an operation that is done can be fetched, or
// why there is none.
func (op *operation) result(p *Provider) (uri string, failure *providers.Failure) {
	if op.Error != nil {
		return "", op.failure(p)
	}
	r := &op.Response.GenerateVideoResponse
	if len(r.GeneratedSamples) > 0 && r.GeneratedSamples[0].Video.URI != "" {
		return r.GeneratedSamples[0].Video.URI, nil
	}
	if len(r.RaiMediaFilteredReasons) > 0 {
		words := strings.Join(r.RaiMediaFilteredReasons, " ")
		return "", p.blocked(filterVerdict(words), words)
	}
	return "", protocolFailure("a render that ended without a video")
}

// rpcCodes are the names of google.rpc.Code, by their numbers.
var rpcCodes = []string{"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
	"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"}

// failure is why the operation failed.
func (op *operation) failure(p *Provider) *providers.Failure {
	e := *op.Error
	if e.Code >= 0 && e.Code < len(rpcCodes) {
		e.Status, e.Code = rpcCodes[e.Code], 0
	}
	return e.mediaFailure(p.key)
}

// FetchVideo gets a finished render. There is nothing but the video.
func (p *Provider) FetchVideo(ctx context.Context, id, variant string) (*providers.Content, error) {
	if variant != "video" {
		return nil, &providers.Failure{Kind: providers.KindInvalid, Param: "variant", Err: errors.New("this provider makes no thumbnails or spritesheets: variant must be video")}
	}
	op, err := p.operation(ctx, id)
	if err != nil {
		return nil, err
	}
	if !op.Done {
		return nil, &providers.Failure{Kind: providers.KindServer, Err: errors.New("the render has not ended")}
	}
	uri, failure := op.result(p)
	if failure != nil {
		return nil, failure
	}
	var said apiError
	resp, err := p.client.Download(ctx, uri, p.headerFor(uri), said.explainMedia)
	if err != nil {
		return nil, said.refineMedia(err)
	}
	return p.videoContent(resp)
}

func (p *Provider) videoContent(resp *http.Response) (*providers.Content, error) {
	kind := resp.Header.Get("Content-Type")
	switch word, _, _ := strings.Cut(kind, "/"); word {
	case "text":
		_ = resp.Body.Close()
		return nil, protocolFailure("words (%s) in place of a video", wire.Loggable(kind, p.key))
	case "video":
	default:
		if strings.Contains(kind, "json") {
			_ = resp.Body.Close()
			return nil, protocolFailure("words (%s) in place of a video", wire.Loggable(kind, p.key))
		}
		kind = "video/mp4" // the only format that there is
	}
	body := bufio.NewReader(resp.Body)
	// Its type may be wrong, and its length unknown: a video is known by its
	// first byte, which is none of a text.
	first, err := body.Peek(1)
	switch {
	case err == io.EOF:
		err = protocolFailure("a video (%s) without a byte", wire.Loggable(kind, p.key))
	case err == nil && (first[0] == '<' || first[0] == '{'):
		err = protocolFailure("words as %s in place of a video", wire.Loggable(kind, p.key))
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return &providers.Content{ContentType: kind, Body: begun{body, resp.Body}, Size: resp.ContentLength}, nil
}

// begun is a body of which some was read.
type begun struct {
	io.Reader
	io.Closer
}

// headerFor has the key if an address is the provider's own. Nobody else is to
// see it.
func (p *Provider) headerFor(address string) http.Header {
	own, err1 := url.Parse(p.base)
	to, err2 := url.Parse(address)
	if err1 != nil || err2 != nil || own.Scheme != to.Scheme || own.Host != to.Host {
		return nil
	}
	return p.header()
}

// DropVideo does nothing: the API has no way to end a render, and removes its
// files by itself after two days.
func (p *Provider) DropVideo(context.Context, string) error { return nil }

// operationPath is where an operation is, such as
// models/veo-3.1-generate-preview/operations/abc.
func operationPath(name string) (string, error) {
	if name == "" || len(name) > maxName {
		return "", protocolFailure("the operation's name cannot be used")
	}
	var path strings.Builder
	for segment := range strings.SplitSeq(name, "/") {
		if strings.Trim(segment, ".") == "" { // dots would lead elsewhere
			return "", protocolFailure("the operation's name cannot be used")
		}
		path.WriteString("/" + url.PathEscape(segment))
	}
	return path.String(), nil
}
