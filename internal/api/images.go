package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/jsonbody"
	"turnpike/internal/media"
	"turnpike/internal/providers"
)

const (
	maxSources = 16
	// imageLinkLifetime is how long the link to an image is valid.
	imageLinkLifetime = 24 * time.Hour
)

func createImage(c *Call) error {
	body, err := c.readModelBody()
	if err != nil {
		return err
	}
	return c.images(body, gateway.ImageInput{})
}

func editImage(c *Call) error {
	if !c.isForm() {
		return fault.Param(fault.UnsupportedMediaType, "Content-Type", "Send the images as a form, with Content-Type: multipart/form-data.")
	}
	f, err := c.readForm()
	if err != nil {
		return err
	}
	sources := f.files["image"]
	switch {
	case len(sources) == 0:
		return fault.Missing("image", "image is required. Send the image file to edit.")
	case len(sources) > maxSources:
		return fault.Invalid("image", "Send at most %d images.", maxSources)
	}
	for _, s := range sources {
		if !isImage(s) {
			return fault.Invalid("image", "image must be a PNG, JPEG, GIF or WebP file; %q is not.", s.Name)
		}
	}
	var mask *providers.Upload
	if list := f.files["mask"]; len(list) > 0 {
		if mask = &list[0]; !isImage(*mask) || len(list) > 1 {
			return fault.Invalid("mask", "mask must be a single PNG, JPEG, GIF or WebP file.")
		}
	}
	body, err := f.asJSON()
	if err != nil {
		return err
	}
	if err := checkFileNames(f.files); err != nil {
		return err
	}
	delete(f.files, "image")
	delete(f.files, "mask")
	return c.images(body, gateway.ImageInput{Sources: sources, Mask: mask, Files: f.files})
}

// checkFileNames rejects files in the place of other fields, and other spellings of the names.
func checkFileNames(files map[string][]providers.Upload) error {
	names := map[string]string{}
	for name := range files {
		if _, isField := providers.ImageNames[name]; isField && name != "image" && name != "mask" {
			return fault.Invalid(name, "%s must be a string. Send it without a filename.", name)
		}
		names[name] = ""
	}
	body, err := json.Marshal(names)
	if err != nil {
		return err
	}
	return jsonbody.CheckNames("", body, providers.ImageNames)
}

func isImage(u providers.Upload) bool {
	return slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, u.ContentType)
}

func (c *Call) images(body []byte, input gateway.ImageInput) error {
	params, err := gateway.ParseImageRequest(body, input.Count())
	if err != nil {
		return err
	}
	var links []string
	if params.AsURL {
		input.Store = func(ctx context.Context, made *providers.ImageResult) (err error) {
			links, err = c.storeImages(ctx, made.Images)
			return err
		}
	}
	events := imageEvents{params: params, out: &eventWriter{c: c}, kind: "image_generation"}
	if len(input.Sources) > 0 {
		events.kind = "image_edit"
	}
	if params.Stream {
		input.Partial = events.sendPartial
	}
	response, made, err := c.s.Gateway.Images(c.Context(), c.modelCall(body), input)
	switch {
	case err != nil && params.Stream:
		return events.fail(err)
	case err != nil:
		return err
	case params.Stream:
		return events.sendImage(response, made)
	}
	out := imagesObject{Created: c.s.Now().Unix(), Data: make([]imageObject, len(made.Images))}
	for i, p := range made.Images {
		out.Data[i].RevisedPrompt = p.RevisedPrompt
		if params.AsURL {
			out.Data[i].URL = links[i]
		} else {
			out.Data[i].B64JSON = base64.StdEncoding.EncodeToString(p.Data)
		}
	}
	if u := made.Usage; u.InputTokens+u.OutputTokens > 0 {
		out.Usage = newImageUsage(u)
	}
	text, err := json.Marshal(out)
	if err != nil {
		return err
	}
	c.sendModelResponse(response, text)
	return nil
}

// imageEvent is an event of an image stream in OpenAI's format. Partial images have an index, and the
// last event has the usage.
type imageEvent struct {
	Type         string      `json:"type"`
	B64JSON      []byte      `json:"b64_json"`
	CreatedAt    int64       `json:"created_at"`
	Size         string      `json:"size"`
	Quality      string      `json:"quality"`
	Background   string      `json:"background"`
	OutputFormat string      `json:"output_format"`
	Index        *int        `json:"partial_image_index,omitzero"`
	Usage        *imageUsage `json:"usage,omitzero"`
}

// imageEvents sends the events of an image stream.
type imageEvents struct {
	params *gateway.ImageParams
	out    *eventWriter
	kind   string // of the events, without what happened
}

func (e *imageEvents) encode(event imageEvent, image providers.Image) ([]byte, error) {
	event.B64JSON, event.CreatedAt, event.OutputFormat = image.Data, e.out.c.s.Now().Unix(), strings.TrimPrefix(image.ContentType, "image/")
	event.Size, event.Quality, event.Background = e.params.Size, e.params.Quality, e.params.Background
	return json.Marshal(event)
}

// sendPartial fails only if the request can't be logged. A client that has left pays for the image.
func (e *imageEvents) sendPartial(by *gateway.Response, index int, image providers.Image) error {
	c := e.out.c
	if !c.Started {
		c.nameModel(by)
	}
	event := imageEvent{Type: e.kind + ".partial_image", Index: &index}
	data, err := e.encode(event, image)
	if err != nil {
		return err
	}
	if e.out.named(event.Type, data); c.Started {
		return nil
	}
	return e.out.err
}

// fail responds with an error, which is an event if others came before it.
func (e *imageEvents) fail(err error) error {
	c := e.out.c
	switch {
	case c.Started:
		f := c.Fault(err)
		c.settleStream(f)
		e.out.event(c.errorJSON(f))
	case e.out.err != nil:
		c.failUnlogged(e.out.err)
	default:
		return err
	}
	return nil
}

// sendImage sends the finished image and ends the stream.
func (e *imageEvents) sendImage(response *gateway.Response, made *providers.ImageResult) error {
	c := e.out.c
	if !c.Started {
		c.nameModel(response)
	}
	event := imageEvent{Type: e.kind + ".completed", Usage: newImageUsage(made.Usage)}
	data, err := e.encode(event, made.Images[0])
	if err != nil {
		return err
	}
	c.content.AddEvent(event.Type, data)
	c.settleStream(nil)
	if e.out.named(event.Type, data); !c.Started {
		c.failUnlogged(e.out.err)
	}
	return nil
}

// storeImages stores images under the request's ID and returns links to them. If
// that fails, the request fails too and costs nothing: a client that wants links
// can't use another format.
func (c *Call) storeImages(ctx context.Context, pictures []providers.Image) ([]string, error) {
	owner := c.Principal.Tenant
	links := make([]string, len(pictures))
	for i, p := range pictures {
		f, err := c.s.Files.PutBytes(ctx, owner, c.ID, p.ContentType, p.Data)
		if err != nil {
			return nil, media.StorageError(err)
		}
		name := fmt.Sprintf("%s-%d%s", c.ID, i, media.Extension(p.ContentType))
		links[i] = c.s.Files.URL(owner, f, name, c.s.Now().Add(imageLinkLifetime))
	}
	return links, nil
}

// imagesObject has OpenAI's format.
type imagesObject struct {
	Created int64         `json:"created"`
	Data    []imageObject `json:"data"`
	Usage   *imageUsage   `json:"usage,omitzero"`
}

type imageObject struct {
	B64JSON       string `json:"b64_json,omitzero"`
	URL           string `json:"url,omitzero"`
	RevisedPrompt string `json:"revised_prompt,omitzero"`
}

type imageUsage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	TotalTokens  int64 `json:"total_tokens"`
	InputDetails struct {
		TextTokens  int64 `json:"text_tokens"`
		ImageTokens int64 `json:"image_tokens"`
	} `json:"input_tokens_details"`
}

func newImageUsage(u providers.Usage) *imageUsage {
	out := &imageUsage{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, TotalTokens: u.InputTokens + u.OutputTokens}
	out.InputDetails.ImageTokens = min(u.ImageInput, u.InputTokens)
	out.InputDetails.TextTokens = u.InputTokens - out.InputDetails.ImageTokens
	return out
}
