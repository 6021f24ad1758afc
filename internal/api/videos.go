package api

import (
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/media"
	"turnpike/internal/providers"
)

// videoRequest is a render as OpenAI's clients ask for it. Seconds are a text
// there, and a number from people.
type videoRequest struct {
	Model          string            `json:"model"`
	Prompt         string            `json:"prompt"`
	Seconds        jsontext.Value    `json:"seconds"`
	Size           string            `json:"size"`
	InputReference *videoReference   `json:"input_reference"`
	Metadata       map[string]string `json:"metadata"`
}

type videoReference struct {
	ImageURL string `json:"image_url"`
	FileID   string `json:"file_id"`
}

// createVideo takes JSON, or a form with a picture to begin with.
func createVideo(c *Call) error {
	if c.isForm() {
		return c.createVideoOfForm()
	}
	var in videoRequest
	body, err := c.readOrder(&in)
	if err != nil {
		return err
	}
	order := media.VideoRequest{Model: in.Model, Prompt: in.Prompt, Size: in.Size, Metadata: in.Metadata}
	if order.Seconds, err = secondsOf(in.Seconds); err != nil {
		return err
	}
	if order.Source, err = in.InputReference.source(); err != nil {
		return err
	}
	return c.createJob(body, func() (*media.Order, error) { return c.s.Media.OrderVideo(c.from(), order) })
}

func secondsOf(v jsontext.Value) (string, error) {
	switch v.Kind() {
	case '"':
		text, err := jsontext.AppendUnquote(nil, v)
		return string(text), err
	case '0':
		return string(v), nil
	case jsontext.KindInvalid, jsontext.KindNull:
		return "", nil
	}
	return "", fault.Invalid("seconds", "seconds must be a number, such as \"4\"")
}

// source is the picture of a reference: it must be in it.
func (r *videoReference) source() (*providers.Upload, error) {
	if r == nil {
		return nil, nil
	}
	_, data, found := strings.Cut(r.ImageURL, ";base64,")
	if !found || !strings.HasPrefix(r.ImageURL, "data:") {
		return nil, fault.Invalid("input_reference", "input_reference must have the picture in it: an image_url that begins with data:, or send it as a file in a form")
	}
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil, fault.Invalid("input_reference", "input_reference.image_url is not valid base64").Because(err)
	}
	return pictureOf(providers.Upload{Name: "reference", ContentType: http.DetectContentType(raw), Data: raw})
}

func pictureOf(u providers.Upload) (*providers.Upload, error) {
	if !isPicture(u) && u.ContentType != "video/mp4" {
		return nil, fault.Invalid("input_reference", "input_reference must be a PNG, JPEG, GIF or WebP picture or an MP4 video")
	}
	return &u, nil
}

// videoFields are a form's. The last two are how OpenAI's clients put an object
// into one.
var videoFields = map[string]bool{"model": true, "prompt": true, "seconds": true, "size": true, "metadata": true, referenceURL: true, referenceFile: true}

const referenceURL, referenceFile = "input_reference[image_url]", "input_reference[file_id]"

func (c *Call) createVideoOfForm() error {
	f, err := c.readForm()
	if err != nil {
		return err
	}
	for name, list := range f.values {
		switch {
		case name == "input_reference":
			return fault.Invalid(name, "input_reference must be a file, with a filename; curl sends one with -F input_reference=@start.png")
		case !videoFields[name]:
			return fault.Param(fault.UnknownParameter, masked(name, 64), "there is no field %q here; there are: model, prompt, seconds, size, input_reference, metadata", masked(name, 64))
		case len(list) > 1:
			return fault.Invalid(name, "%s may be given once", name)
		}
	}
	if err := f.onlyFiles("input_reference"); err != nil {
		return err
	}
	order := media.VideoRequest{Model: f.text("model"), Prompt: f.text("prompt"), Seconds: f.text("seconds"), Size: f.text("size")}
	if text := f.text("metadata"); text != "" {
		if err := json.Unmarshal([]byte(text), &order.Metadata); err != nil {
			return fault.Invalid("metadata", "metadata must be a JSON object of texts").Because(err)
		}
	}
	if order.Source, err = f.reference(); err != nil {
		return err
	}
	identity, err := f.identity()
	if err != nil {
		return err
	}
	return c.createJob(identity, func() (*media.Order, error) { return c.s.Media.OrderVideo(c.from(), order) })
}

// reference is the picture to begin with, which is a file or an object.
func (f *form) reference() (*providers.Upload, error) {
	list := f.files["input_reference"]
	object := f.values[referenceURL] != nil || f.values[referenceFile] != nil
	switch {
	case len(list) > 1 || len(list) == 1 && object:
		return nil, fault.Invalid("input_reference", "there may be one input_reference")
	case len(list) == 1:
		return pictureOf(list[0])
	case object:
		return (&videoReference{ImageURL: f.text(referenceURL), FileID: f.text(referenceFile)}).source()
	}
	return nil, nil
}
