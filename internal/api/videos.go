package api

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/media"
	"turnpike/internal/providers"
)

// videoRequest has OpenAI's format. OpenAI's clients send seconds as a string; a
// number is accepted as well.
type videoRequest struct {
	Model          string            `json:"model"`
	Prompt         string            `json:"prompt"`
	Seconds        jsontext.Value    `json:"seconds"`
	Size           string            `json:"size"`
	InputReference *videoReference   `json:"input_reference"`
	Metadata       map[string]string `json:"metadata"`

	N         jsontext.Value `json:"n"` // of other servers, which would multiply the price
	NSeconds  jsontext.Value `json:"n_seconds"`
	NVariants jsontext.Value `json:"n_variants"`

	Extra map[string]jsontext.Value `json:",embed"` // for the provider
}

// checkNumbers rejects fields that multiply the price.
func (in *videoRequest) checkNumbers() error {
	for name, value := range map[string]jsontext.Value{"n": in.N, "n_seconds": in.NSeconds, "n_variants": in.NVariants} {
		if len(value) > 0 && value.Kind() != jsontext.KindNull {
			return fault.Param(fault.UnknownParameter, name, "Unknown field %q. Each request creates one video; set its duration with seconds.", name)
		}
	}
	return nil
}

func extraFields(in map[string]jsontext.Value) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for name, value := range in {
		out[name] = json.RawMessage(value)
	}
	return out
}

type videoReference struct {
	ImageURL string `json:"image_url"`
	FileID   string `json:"file_id"`
}

// createVideo accepts JSON, or a form with a reference image.
func createVideo(c *Call) error {
	if c.isForm() {
		return c.createVideoFromForm()
	}
	var in videoRequest
	body, err := c.readModelBody()
	if err != nil {
		return err
	}
	if err := jsonbody.DecodeForwarded(body, &in, providers.VideoNames); err != nil {
		return err
	}
	if err := in.checkNumbers(); err != nil {
		return err
	}
	order := media.VideoRequest{Model: in.Model, Prompt: in.Prompt, Size: in.Size, Metadata: in.Metadata, Extra: extraFields(in.Extra)}
	if order.Seconds, err = parseSeconds(in.Seconds); err != nil {
		return err
	}
	if order.Source, err = in.InputReference.source(); err != nil {
		return err
	}
	return c.createJob(body, func() (*media.Draft, error) { return c.s.Media.DraftVideo(c.Context(), c.requester(), order) })
}

// remixVideo creates a new version of a video.
func remixVideo(c *Call) error {
	var in videoRequest
	body, err := c.readModelBody()
	if err != nil {
		return err
	}
	if err := jsonbody.DecodeForwarded(body, &in, providers.VideoNames); err != nil {
		return err
	}
	if err := in.checkNumbers(); err != nil {
		return err
	}
	for name, given := range map[string]bool{"model": in.Model != "", "seconds": len(in.Seconds) > 0, "size": in.Size != "", "input_reference": in.InputReference != nil} {
		if given {
			return fault.Param(fault.UnknownParameter, name, "Unknown field %q. A remix has the model, the duration and the size of its video.", name)
		}
	}
	order := media.RemixRequest{ID: c.id(), Prompt: in.Prompt, Metadata: in.Metadata, Extra: extraFields(in.Extra)}
	return c.createJob(body, func() (*media.Draft, error) { return c.s.Media.DraftRemix(c.Context(), c.requester(), order) })
}

func parseSeconds(v jsontext.Value) (string, error) {
	switch v.Kind() {
	case '"':
		text, err := jsontext.AppendUnquote(nil, v)
		return string(text), err
	case '0':
		return string(v), nil
	case jsontext.KindInvalid, jsontext.KindNull:
		return "", nil
	}
	return "", fault.Invalid("seconds", "seconds must be a number, such as \"4\".")
}

// source returns the image, which must be in the reference itself.
func (r *videoReference) source() (*providers.Upload, error) {
	if r == nil {
		return nil, nil
	}
	_, data, found := strings.Cut(r.ImageURL, ";base64,")
	if !found || !strings.HasPrefix(r.ImageURL, "data:") {
		return nil, fault.Invalid("input_reference", "input_reference must contain the image. Send an image_url that starts with data:, or a file in a form.")
	}
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil, fault.Invalid("input_reference", "input_reference.image_url must be valid base64.").Because(err)
	}
	return referenceImage(providers.Upload{Name: "reference", ContentType: http.DetectContentType(raw), Data: raw})
}

func referenceImage(u providers.Upload) (*providers.Upload, error) {
	if !isImage(u) && u.ContentType != "video/mp4" {
		return nil, fault.Invalid("input_reference", "input_reference must be a PNG, JPEG, GIF or WebP image or an MP4 video.")
	}
	return &u, nil
}

// videoFields are the fields of a form. OpenAI's clients send the input_reference
// object as the last two.
var videoFields = map[string]bool{"model": true, "prompt": true, "seconds": true, "size": true, "metadata": true, referenceURL: true, referenceFile: true}

const referenceURL, referenceFile = "input_reference[image_url]", "input_reference[file_id]"

func (c *Call) createVideoFromForm() error {
	f, err := c.readForm()
	if err != nil {
		return err
	}
	for name, list := range f.values {
		switch {
		case name == "input_reference":
			return fault.Invalid(name, "input_reference must be a file with a filename. With curl, use -F input_reference=@start.png.")
		case len(list) > 1:
			return fault.Invalid(name, "%s can be given only once.", name)
		}
	}
	extra, err := f.videoExtra()
	if err != nil {
		return err
	}
	if err := f.onlyFiles("input_reference"); err != nil {
		return err
	}
	order := media.VideoRequest{Model: f.text("model"), Prompt: f.text("prompt"), Seconds: f.text("seconds"), Size: f.text("size"), Extra: extra}
	if text := f.text("metadata"); text != "" {
		if err := json.Unmarshal([]byte(text), &order.Metadata); err != nil {
			return fault.Invalid("metadata", "metadata must be a JSON object of strings.").Because(err)
		}
	}
	if order.Source, err = f.reference(); err != nil {
		return err
	}
	identity, err := f.identity()
	if err != nil {
		return err
	}
	return c.createJob(identity, func() (*media.Draft, error) { return c.s.Media.DraftVideo(c.Context(), c.requester(), order) })
}

// videoExtra returns the values that Turnpike doesn't know, after a check of the names.
func (f *form) videoExtra() (map[string]json.RawMessage, error) {
	body, err := f.asJSON()
	if err != nil {
		return nil, err
	}
	if err := jsonbody.CheckNames("", body, providers.VideoNames); err != nil {
		return nil, err
	}
	var in videoRequest
	for name, value := range map[string]*jsontext.Value{"n": &in.N, "n_seconds": &in.NSeconds, "n_variants": &in.NVariants} {
		if f.values[name] != nil {
			*value = jsontext.Value("0")
		}
	}
	extra := map[string]json.RawMessage{}
	for name, list := range f.values {
		if quoted, err := jsontext.AppendQuote(nil, list[0]); !videoFields[name] && err == nil {
			extra[name] = json.RawMessage(quoted)
		}
	}
	return extra, in.checkNumbers()
}

// reference returns the reference image, which is a file or an object.
func (f *form) reference() (*providers.Upload, error) {
	list := f.files["input_reference"]
	object := f.values[referenceURL] != nil || f.values[referenceFile] != nil
	switch {
	case len(list) > 1 || len(list) == 1 && object:
		return nil, fault.Invalid("input_reference", "Send only one input_reference.")
	case len(list) == 1:
		return referenceImage(list[0])
	case object:
		return (&videoReference{ImageURL: f.text(referenceURL), FileID: f.text(referenceFile)}).source()
	}
	return nil, nil
}
