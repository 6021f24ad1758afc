package openai

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// maxID is much longer than any id of a render that is in use.
const maxID = 512

// maxVideoAnswer bounds a render's description, which has its prompt in it.
const maxVideoAnswer = 1 << 20

// videoObject is OpenAI's description of a render.
type videoObject struct {
	ID       string         `json:"id"`
	Status   string         `json:"status"`
	Progress jsontext.Value `json:"progress"`
	Error    jsontext.Value `json:"error"`
}

// StartVideo begins a render.
func (p *Provider) StartVideo(ctx context.Context, req *providers.VideoRequest) (string, error) {
	call, err := startCall(req)
	if err != nil {
		return "", err
	}
	call.URL = p.videosAddress()
	resp, err := p.do(ctx, call)
	if err != nil {
		return "", err
	}
	video, err := p.readVideo(resp)
	if err != nil {
		return "", err
	}
	if !isID(video.ID) {
		return "", protocol("a render whose id cannot be used")
	}
	return video.ID, nil
}

// startCall is a form if there is a picture to begin with.
func startCall(req *providers.VideoRequest) (call wire.Call, err error) {
	call = wire.Call{Method: http.MethodPost, Header: http.Header{}}
	if req.Key != "" {
		call.Header.Set("Idempotency-Key", req.Key)
	}
	in := struct {
		Model   string `json:"model"`
		Prompt  string `json:"prompt"`
		Seconds string `json:"seconds,omitempty"` // the API's number is a string
		Size    string `json:"size,omitempty"`
	}{Model: req.Model, Prompt: req.Prompt, Size: req.Size}
	if req.Seconds > 0 {
		in.Seconds = strconv.Itoa(req.Seconds)
	}
	if req.Source == nil {
		body, err := json.Marshal(in, jsontext.AllowInvalidUTF8(true))
		call.Body = [][]byte{body}
		return call, err
	}
	form := wire.NewForm()
	form.Field("model", in.Model)
	form.Field("prompt", in.Prompt)
	if in.Seconds != "" {
		form.Field("seconds", in.Seconds)
	}
	if in.Size != "" {
		form.Field("size", in.Size)
	}
	form.File("input_reference", "reference", req.Source)
	var kind string
	call.Body, kind = form.Close()
	call.Header.Set("Content-Type", kind)
	return call, nil
}

// PollVideo tells how far a render has come.
func (p *Provider) PollVideo(ctx context.Context, id string) (*providers.VideoState, error) {
	at, err := p.videoAddress(id)
	if err != nil {
		return nil, err
	}
	resp, err := p.do(ctx, wire.Call{Method: http.MethodGet, URL: at})
	if err != nil {
		return nil, err
	}
	video, err := p.readVideo(resp)
	if err != nil {
		return nil, err
	}
	switch video.Status {
	case "":
		return nil, protocol("a render without a status")
	case "completed":
		return &providers.VideoState{Done: true, Progress: 100}, nil
	case "failed":
		return &providers.VideoState{Done: true, Progress: percent(video.Progress), Failure: p.renderFailure(video.Error)}, nil
	}
	return &providers.VideoState{Progress: percent(video.Progress)}, nil
}

// readVideo reads a render's description. The error of a render that failed is
// part of it, and not of the call.
func (p *Provider) readVideo(resp *http.Response) (*videoObject, error) {
	video := new(videoObject)
	if err := wire.ReadJSON(resp, maxVideoAnswer, video, p.secrets...); err != nil {
		return nil, err
	}
	if video.Status != "" {
		return video, nil
	}
	if err := p.complaintFailure(resp.StatusCode, video.Error); err != nil {
		return nil, err
	}
	return video, nil
}

// renderFailure is why a render failed. An error that we do not know is the
// provider's own.
func (p *Provider) renderFailure(value jsontext.Value) *providers.Failure {
	var f *providers.Failure
	if !errors.As(p.complaintFailure(0, value), &f) {
		return &providers.Failure{Kind: providers.KindServer, Err: errors.New("the render failed without a word")}
	}
	if f.Kind == providers.KindProtocol {
		f.Kind = providers.KindServer
	}
	return f
}

// percent is a whole number from 0 to 100, whatever came.
func percent(value jsontext.Value) int {
	n, err := strconv.ParseFloat(text(value), 64)
	if err != nil || !(n > 0) {
		return 0
	}
	return int(min(n, 100))
}

// videoTypes are the types of the variants, as OpenAI documents them.
var videoTypes = map[string]string{
	"video":       "video/mp4",
	"thumbnail":   "image/webp",
	"spritesheet": "image/jpeg",
}

// FetchVideo gets a finished render's file.
func (p *Provider) FetchVideo(ctx context.Context, id, variant string) (*providers.Content, error) {
	kind, ok := videoTypes[variant]
	if !ok {
		return nil, &providers.Failure{Kind: providers.KindInvalid, Param: "variant", Err: errors.New("variant must be video, thumbnail or spritesheet")}
	}
	at, err := p.videoAddress(id)
	if err != nil {
		return nil, err
	}
	var verdict providers.Kind
	resp, err := p.client.Download(ctx, at+"/content?variant="+variant, p.header, explainVerdict(&verdict))
	if err != nil {
		return nil, judged(err, verdict)
	}
	return p.content(resp, kind, false)
}

// DropVideo removes a render, which also ends one that runs. One that is not
// there any more is fine.
func (p *Provider) DropVideo(ctx context.Context, id string) error {
	at, err := p.videoAddress(id)
	if err != nil {
		return err
	}
	resp, err := p.do(ctx, wire.Call{Method: http.MethodDelete, URL: at})
	var f *providers.Failure
	if errors.As(err, &f) && (f.Status == http.StatusNotFound || f.Status == http.StatusGone) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = wire.ReadAtMost(resp, maxVideoAnswer)
	return err
}

// videosAddress is where renders are. Azure has them in its undated API only.
func (p *Provider) videosAddress() string {
	if p.apiVersion != "" {
		return p.base + "/v1/videos"
	}
	return p.base + "/videos"
}

func (p *Provider) videoAddress(id string) (string, error) {
	if !isID(id) {
		return "", protocol("the render's id cannot be used")
	}
	return p.videosAddress() + "/" + url.PathEscape(id), nil
}

// isID reports whether an id can be a segment of a path. Dots would be
// another one.
func isID(id string) bool {
	return id != "" && len(id) <= maxID && strings.Trim(id, ".") != ""
}
