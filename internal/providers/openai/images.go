package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// maxPicture bounds a picture that is fetched from a URL.
const maxPicture = 64 << 20

// Images makes pictures, or edits those that are given.
func (p *Provider) Images(ctx context.Context, req *providers.ImageRequest) (*providers.ImageAnswer, error) {
	var o object
	if err := o.parse(req.Body); err != nil {
		return nil, badBody(err)
	}
	setModel(&o, req.Model)
	askForData(&o, req.Model)
	call := wire.Call{Method: http.MethodPost}
	if len(req.Sources) == 0 {
		call.URL = p.address(req.Model, "/images/generations")
		call.Body = [][]byte{o.bytes()}
	} else {
		form, err := editForm(o.bytes(), req)
		if err != nil {
			return nil, err
		}
		var kind string
		call.Body, kind = form.Close()
		call.Header = http.Header{"Content-Type": {kind}}
		call.URL = p.address(req.Model, "/images/edits")
	}
	resp, err := p.do(ctx, call)
	if err != nil {
		return nil, err
	}
	return p.readImages(ctx, resp)
}

// askForData makes the answer a plain one with the files in it: how the caller
// gets them is the gateway's business. OpenAI's newer models always do so, and
// refuse to be asked.
func askForData(o *object, model string) {
	o.drop("stream")
	o.drop("partial_images")
	if knowsNoFormat(model) {
		o.drop("response_format")
	} else {
		o.set("response_format", `"b64_json"`)
	}
}

func knowsNoFormat(model string) bool {
	if i := strings.LastIndexByte(model, '/'); i >= 0 {
		model = model[i+1:]
	}
	return strings.HasPrefix(model, "gpt-image") || strings.HasPrefix(model, "chatgpt-image")
}

// editForm has the body's members as fields, and the files.
func editForm(body []byte, req *providers.ImageRequest) (*wire.Form, error) {
	var o object
	if err := o.parse(body); err != nil {
		return nil, badBody(err)
	}
	form := wire.NewForm()
	for i := range o.members {
		m := &o.members[i]
		switch name := string(m.name); name {
		case "image", "image[]", "mask": // the files are beside the body
		default:
			if value := jsontext.Value(o.text[m.from:m.end]); value.Kind() != 'n' {
				form.Field(name, text(value))
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
	return form, nil
}

// imagesResponse is OpenAI's answer. An image has its data or a URL.
type imagesResponse struct {
	Data []struct {
		B64JSON       wire.Base64 `json:"b64_json"`
		URL           string      `json:"url"`
		RevisedPrompt string      `json:"revised_prompt"`
	} `json:"data"`
	Usage jsontext.Value `json:"usage"`
	Error jsontext.Value `json:"error"`
}

func (p *Provider) readImages(ctx context.Context, resp *http.Response) (*providers.ImageAnswer, error) {
	var in imagesResponse
	if err := wire.ReadJSON(resp, wire.MaxMedia, &in, p.secrets...); err != nil {
		return nil, err
	}
	if err := p.complaintFailure(resp.StatusCode, in.Error); err != nil {
		return nil, err
	}
	if len(in.Data) == 0 {
		return nil, protocol("an answer without images")
	}
	answer := &providers.ImageAnswer{Usage: readImageUsage(in.Usage)}
	room := int64(wire.MaxMedia) // for all of an answer's files
	for i := range in.Data {
		file := []byte(in.Data[i].B64JSON)
		if len(file) == 0 {
			var err error
			if file, err = p.fetchPicture(ctx, in.Data[i].URL, min(room, maxPicture)); err != nil {
				return nil, err
			}
			room -= int64(len(file))
		}
		picture, err := wire.NewPicture(file, in.Data[i].RevisedPrompt)
		if err != nil {
			return nil, err
		}
		answer.Images = append(answer.Images, picture)
	}
	answer.Usage.Images = int64(len(answer.Images))
	return answer, nil
}

// filePauses are before a file is asked for again. What was made is paid for:
// asking for the whole again would cost the same once more.
var filePauses = []time.Duration{250 * time.Millisecond, time.Second}

// fetchPicture gets a picture from where the provider keeps it. The key stays
// here: the address is mostly another's, and such addresses open by themselves.
func (p *Provider) fetchPicture(ctx context.Context, from string, limit int64) ([]byte, error) {
	if from == "" {
		return nil, protocol("an image with neither data nor a URL")
	}
	for try := 0; ; try++ {
		file, err := p.download(ctx, from, limit)
		var f *providers.Failure
		if !errors.As(err, &f) || f.Kind == providers.KindLocal || f.Kind == providers.KindProtocol {
			return file, err
		}
		if !f.Momentary() || try == len(filePauses) {
			// A file that was promised and is not there is never the caller's fault nor a
			// word on the model.
			return nil, &providers.Failure{Kind: providers.KindCut, Status: f.Status, Err: f.Err}
		}
		select {
		case <-time.After(filePauses[try]):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (p *Provider) download(ctx context.Context, from string, limit int64) ([]byte, error) {
	resp, err := p.client.Download(ctx, from, nil, nil)
	if err != nil {
		return nil, err
	}
	return wire.ReadAtMost(resp, limit)
}

// readImageUsage reads the tokens, which not every model counts.
func readImageUsage(value jsontext.Value) (u providers.Usage) {
	var in struct {
		Input   float64 `json:"input_tokens"`
		Output  float64 `json:"output_tokens"`
		Details struct {
			Cached float64 `json:"cached_tokens"`
		} `json:"input_tokens_details"`
	}
	const absurd = 1e12
	if value.Kind() != '{' || json.Unmarshal(value, &in, lenient...) != nil || in.Input > absurd || in.Output > absurd {
		return u
	}
	u.InputTokens, u.OutputTokens = int64(max(0, in.Input)), int64(max(0, in.Output))
	u.CachedInput = min(int64(max(0, min(in.Details.Cached, absurd))), u.InputTokens)
	return u
}
