package openai

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

const maxID = 512

// maxVideoResponse limits the description of a render, which contains the prompt.
const maxVideoResponse = 1 << 20

type videoObject struct {
	ID       string         `json:"id"`
	Status   string         `json:"status"`
	Progress jsontext.Value `json:"progress"`
	Error    jsontext.Value `json:"error"`
}

// StartVideo starts a render.
func (p *Provider) StartVideo(ctx context.Context, req *providers.VideoRequest) (string, error) {
	return p.startRender(ctx, p.videosURL(), startCall(req))
}

// RemixVideo starts a render that changes a finished one.
func (p *Provider) RemixVideo(ctx context.Context, id string, req *providers.VideoRequest) (string, error) {
	at, err := p.videoURL(id)
	if err != nil {
		return "", err
	}
	return p.startRender(ctx, at+"/remix", startCall(&providers.VideoRequest{Prompt: req.Prompt, Extra: req.Extra, Key: req.Key}))
}

func (p *Provider) startRender(ctx context.Context, at string, call wire.Call) (string, error) {
	call.URL = at
	resp, err := p.doMedia(ctx, call)
	if err != nil {
		return "", err
	}
	video, err := p.readVideo(resp)
	if err != nil {
		return "", err
	}
	if !isID(video.ID) {
		return "", wire.ProtocolFailure("the render has an invalid ID")
	}
	return video.ID, nil
}

// startCall returns a form if the video starts with an image.
func startCall(req *providers.VideoRequest) wire.Call {
	call := wire.Call{Method: http.MethodPost, Header: http.Header{}}
	if req.Key != "" {
		call.Header.Set("Idempotency-Key", req.Key)
	}
	var o object
	form := wire.NewForm()
	set := func(name, value string) {
		o.setString(name, value)
		form.Field(name, value)
	}
	if req.Model != "" {
		set("model", req.Model)
	}
	set("prompt", req.Prompt)
	if req.Seconds > 0 {
		set("seconds", strconv.Itoa(req.Seconds)) // a string in OpenAI's API
	}
	if req.Size != "" {
		set("size", req.Size)
	}
	for _, name := range slices.Sorted(maps.Keys(req.Extra)) {
		o.set(name, string(req.Extra[name]))
		form.Field(name, text(jsontext.Value(req.Extra[name])))
	}
	if req.Source == nil {
		call.Body = o.bytes()
		return call
	}
	form.File("input_reference", "reference", req.Source)
	var kind string
	call.Body, kind = form.Close()
	call.Header.Set("Content-Type", kind)
	return call
}

// PollVideo returns the state of a render.
func (p *Provider) PollVideo(ctx context.Context, id string) (*providers.VideoState, error) {
	at, err := p.videoURL(id)
	if err != nil {
		return nil, err
	}
	resp, err := p.doMedia(ctx, wire.Call{Method: http.MethodGet, URL: at})
	if err != nil {
		return nil, err
	}
	video, err := p.readVideo(resp)
	if err != nil {
		return nil, err
	}
	switch video.Status {
	case "":
		return nil, wire.ProtocolFailure("a render without a status")
	case "completed":
		return &providers.VideoState{Done: true, Progress: 100}, nil
	case "failed":
		return &providers.VideoState{Done: true, Progress: percent(video.Progress), Failure: p.renderFailure(video.Error)}, nil
	}
	return &providers.VideoState{Progress: percent(video.Progress)}, nil
}

// readVideo reads the description of a render, which has an error if the render failed.
func (p *Provider) readVideo(resp *http.Response) (*videoObject, error) {
	video := new(videoObject)
	if err := wire.ReadJSON(resp, maxVideoResponse, video, p.secrets()...); err != nil {
		return nil, err
	}
	if video.Status != "" {
		return video, nil
	}
	if err := p.mediaFailure(resp.StatusCode, video.Error); err != nil {
		return nil, err
	}
	return video, nil
}

// renderFailure returns why a render failed. Unknown errors are the provider's.
func (p *Provider) renderFailure(value jsontext.Value) *providers.Failure {
	var f *providers.Failure
	if !errors.As(p.mediaFailure(0, value), &f) {
		return &providers.Failure{Kind: providers.KindServer, Err: errors.New("the render failed without a message")}
	}
	if f.Kind == providers.KindProtocol {
		f.Kind = providers.KindServer
	}
	return f
}

func percent(value jsontext.Value) int {
	n, err := strconv.ParseFloat(text(value), 64)
	if err != nil || !(n > 0) {
		return 0
	}
	return int(min(n, 100))
}

// videoTypes are the media types of the variants, as OpenAI documents them.
var videoTypes = map[string]string{
	"video":       "video/mp4",
	"thumbnail":   "image/webp",
	"spritesheet": "image/jpeg",
}

// FetchVideo returns a file of a finished render.
func (p *Provider) FetchVideo(ctx context.Context, id, variant string) (*providers.Content, error) {
	kind, ok := videoTypes[variant]
	if !ok {
		return nil, &providers.Failure{Kind: providers.KindInvalid, Param: "variant", Err: errors.New("variant must be video, thumbnail or spritesheet")}
	}
	at, err := p.videoURL(id)
	if err != nil {
		return nil, err
	}
	resp, err := p.client.Download(ctx, at+"/content?variant="+variant, p.header, explainMedia)
	if err != nil {
		return nil, err
	}
	return p.readFile(resp, kind, false)
}

// DeleteVideo deletes a render, which also stops it. A render that no longer exists isn't an error.
func (p *Provider) DeleteVideo(ctx context.Context, id string) error {
	at, err := p.videoURL(id)
	if err != nil {
		return err
	}
	resp, err := p.doMedia(ctx, wire.Call{Method: http.MethodDelete, URL: at})
	var f *providers.Failure
	if errors.As(err, &f) && (f.Status == http.StatusNotFound || f.Status == http.StatusGone) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = wire.ReadAtMost(resp, maxVideoResponse)
	return err
}

// videosURL returns the URL of all renders. Azure has them only in its undated API.
func (p *Provider) videosURL() string {
	if p.apiVersion != "" {
		return p.base + "/v1/videos"
	}
	return p.base + "/videos"
}

func (p *Provider) videoURL(id string) (string, error) {
	if !isID(id) {
		return "", wire.ProtocolFailure("the render has an invalid ID")
	}
	return p.videosURL() + "/" + url.PathEscape(id), nil
}

// isID reports whether an ID can be a segment of a path. Dots alone can't.
func isID(id string) bool {
	return id != "" && len(id) <= maxID && strings.Trim(id, ".") != ""
}
