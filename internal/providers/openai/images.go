package openai

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

const maxImage = 64 << 20

// Images generates or edits images.
func (p *Provider) Images(ctx context.Context, req *providers.ImageRequest) (*providers.ImageResult, error) {
	var o object
	if err := o.parseBody(jsonbody.NewIndex(req.Body), req.Model); err != nil {
		return nil, err
	}
	requestFiles(&o, req)
	call := wire.Call{Method: http.MethodPost}
	if len(req.Sources) == 0 {
		call.URL = p.url(req.Model, "/images/generations")
		call.Body = o.bytes()
	} else {
		var kind string
		call.Body, kind = editForm(&o, req).Close()
		call.Header = http.Header{"Content-Type": {kind}}
		call.URL = p.url(req.Model, "/images/edits")
	}
	resp, err := p.doMedia(ctx, call)
	if err != nil {
		return nil, err
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); req.Partial != nil && media == "text/event-stream" {
		return p.readImageEvents(resp, req.Partial)
	}
	return p.readImages(ctx, resp)
}

// requestFiles requests a response that has the files in it: the gateway decides how the client gets
// them. OpenAI's newer models always return them so, and reject the field. The response is a stream
// only if there is use for partial images.
func requestFiles(o *object, req *providers.ImageRequest) {
	o.drop("stream")
	o.drop("partial_images")
	if req.Partial != nil {
		o.set("stream", "true")
		o.set("partial_images", strconv.Itoa(req.PartialImages))
	}
	model := req.Model[strings.LastIndexByte(req.Model, '/')+1:]
	if strings.HasPrefix(model, "gpt-image") || strings.HasPrefix(model, "chatgpt-image") {
		o.drop("response_format")
	} else {
		o.set("response_format", `"b64_json"`)
	}
}

func editForm(o *object, req *providers.ImageRequest) *wire.Form {
	form := wire.NewForm()
	for _, m := range o.members {
		switch name := string(m.name); name {
		case "image", "image[]", "mask": // the files are next to the body
		default:
			if m.value.Kind() != 'n' {
				form.Field(name, text(m.value))
			}
		}
	}
	field := "image"
	if len(req.Sources) > 1 {
		field = "image[]"
	}
	for i := range req.Sources {
		form.File(field, fmt.Sprintf("image-%d", i+1), &req.Sources[i])
	}
	if req.Mask != nil {
		form.File("mask", "mask", req.Mask)
	}
	for _, name := range slices.Sorted(maps.Keys(req.Files)) {
		list, field := req.Files[name], name
		if len(list) > 1 {
			field += "[]"
		}
		for i := range list {
			form.File(field, fmt.Sprintf("%s-%d", name, i+1), &list[i])
		}
	}
	return form
}

// imagesResponse is OpenAI's response. An image has its data or a URL.
type imagesResponse struct {
	Data []struct {
		B64JSON       wire.Base64 `json:"b64_json"`
		URL           string      `json:"url"`
		RevisedPrompt string      `json:"revised_prompt"`
	} `json:"data"`
	Usage jsontext.Value `json:"usage"`
	Error jsontext.Value `json:"error"`
}

func (p *Provider) readImages(ctx context.Context, resp *http.Response) (*providers.ImageResult, error) {
	var in imagesResponse
	if err := wire.ReadJSON(resp, wire.MaxMedia, &in, p.secrets()...); err != nil {
		return nil, err
	}
	if err := p.mediaFailure(resp.StatusCode, in.Error); err != nil {
		return nil, err
	}
	if len(in.Data) == 0 {
		return nil, wire.ProtocolFailure("a response without images")
	}
	result := &providers.ImageResult{Usage: readImageUsage(in.Usage)}
	remaining := int64(wire.MaxMedia) // bytes for all files of the response
	for i := range in.Data {
		file := []byte(in.Data[i].B64JSON)
		if len(file) == 0 {
			var err error
			if file, err = p.fetchImage(ctx, in.Data[i].URL, min(remaining, maxImage)); err != nil {
				return nil, err
			}
			remaining -= int64(len(file))
		}
		image, err := wire.NewImage(file, in.Data[i].RevisedPrompt)
		if err != nil {
			return nil, err
		}
		result.Images = append(result.Images, image)
	}
	result.Usage.Images = int64(len(result.Images))
	return result, nil
}

// readImageEvents reads a stream of partial images and the image.
func (p *Provider) readImageEvents(resp *http.Response, partial func(index int, image providers.Image) error) (*providers.ImageResult, error) {
	events := wire.NewEvents(resp, nil)
	defer events.Close()
	events.Limit(maxImage)
	for {
		name, data, err := events.Next()
		if err == io.EOF {
			return nil, &providers.Failure{Kind: providers.KindCut, Err: errors.New("the stream ended before the image")}
		}
		if err != nil {
			return nil, err
		}
		var in struct {
			Type  string         `json:"type"`
			Index int            `json:"partial_image_index"`
			Data  wire.Base64    `json:"b64_json"`
			Usage jsontext.Value `json:"usage"`
			Error jsontext.Value `json:"error"`
		}
		if err := json.Unmarshal(data, &in, wire.Lenient); err != nil {
			return nil, wire.ProtocolFailure("an event of an image isn't JSON: %w", err)
		}
		if err := p.mediaFailure(0, in.Error); err != nil {
			return nil, err
		}
		kind := cmp.Or(in.Type, name)
		if kind == "error" {
			return nil, &providers.Failure{Kind: providers.KindServer, Err: errors.New("the stream failed without a message")}
		}
		isPartial := strings.HasSuffix(kind, ".partial_image")
		if !isPartial && !strings.HasSuffix(kind, ".completed") {
			continue
		}
		image, err := wire.NewImage(in.Data, "")
		if err != nil {
			return nil, err
		}
		if !isPartial {
			out := &providers.ImageResult{Images: []providers.Image{image}, Usage: readImageUsage(in.Usage)}
			out.Usage.Images = 1
			return out, nil
		}
		if err := partial(in.Index, image); err != nil {
			return nil, err
		}
	}
}

// downloadRetries are the delays before a download is retried. The images are
// paid for: retrying the whole request would cost the same again.
var downloadRetries = []time.Duration{250 * time.Millisecond, time.Second}

// fetchImage downloads an image without the key: it is usually on another server,
// and such URLs need none.
func (p *Provider) fetchImage(ctx context.Context, from string, limit int64) ([]byte, error) {
	if from == "" {
		return nil, wire.ProtocolFailure("an image with neither data nor a URL")
	}
	for attempt := 0; ; attempt++ {
		var file []byte
		resp, err := p.client.WithCredential(nil).Download(ctx, from, nil, nil)
		if err == nil {
			file, err = wire.ReadAtMost(resp, limit)
		}
		var f *providers.Failure
		if !errors.As(err, &f) || f.Kind == providers.KindLocal || f.Kind == providers.KindProtocol {
			return file, err
		}
		if !f.Transient() || attempt == len(downloadRetries) {
			// A missing file is neither the client's fault nor about the model.
			return nil, &providers.Failure{Kind: providers.KindCut, Status: f.Status, Err: f.Err}
		}
		select {
		case <-time.After(downloadRetries[attempt]):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// readImageUsage returns the tokens, which not every model counts.
func readImageUsage(value jsontext.Value) (u providers.Usage) {
	var in struct {
		Input   float64 `json:"input_tokens"`
		Output  float64 `json:"output_tokens"`
		Details struct {
			Cached float64 `json:"cached_tokens"`
			Images float64 `json:"image_tokens"`
		} `json:"input_tokens_details"`
	}
	if value.Kind() != '{' || json.Unmarshal(value, &in, wire.Lenient) != nil || in.Input > maxPlausible || in.Output > maxPlausible {
		return u
	}
	u.InputTokens, u.OutputTokens = int64(max(0, in.Input)), int64(max(0, in.Output))
	u.CachedInput = min(int64(max(0, min(in.Details.Cached, maxPlausible))), u.InputTokens)
	u.ImageInput = min(int64(max(0, min(in.Details.Images, maxPlausible))), u.InputTokens)
	return u
}
