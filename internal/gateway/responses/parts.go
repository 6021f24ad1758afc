package responses

import (
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

// content is the content of a message or the output of a function: a string, or parts.
type content struct {
	kind  jsontext.Kind // of the JSON value; 0 if absent
	text  string
	parts []part
}

func (c *content) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	*c = content{kind: in.PeekKind()}
	switch c.kind {
	case jsontext.KindString:
		return json.UnmarshalDecode(in, &c.text)
	case jsontext.KindBeginArray:
		return json.UnmarshalDecode(in, &c.parts)
	}
	return in.SkipValue()
}

type part struct {
	Type       string         `json:"type"`
	Text       *string        `json:"text"`
	Refusal    *string        `json:"refusal"`
	ImageURL   *string        `json:"image_url"`
	Detail     *string        `json:"detail"`
	FileID     *string        `json:"file_id"`
	FileURL    *string        `json:"file_url"`
	FileData   *string        `json:"file_data"`
	Filename   *string        `json:"filename"`
	InputAudio jsontext.Value `json:"input_audio"`

	// Clients send these back with output_text; they are dropped.
	Annotations jsontext.Value `json:"annotations"`
	Logprobs    jsontext.Value `json:"logprobs"`

	File  jsontext.Value `json:"file"`   // the shape of chat completions
	Extra jsontext.Value `json:",embed"` // such as a provider's cache_control
}

// chatContent is the content of a chat message.
type chatContent []chatPart

type chatPart struct {
	Type       string         `json:"type"`
	Text       *string        `json:"text,omitzero"`
	Refusal    *string        `json:"refusal,omitzero"`
	ImageURL   *chatImage     `json:"image_url,omitzero"`
	File       *chatFile      `json:"file,omitzero"`
	InputAudio jsontext.Value `json:"input_audio,omitzero"`
	Extra      jsontext.Value `json:",embed"`
}

type chatImage struct {
	URL    string  `json:"url"`
	Detail *string `json:"detail,omitzero"`
}

type chatFile struct {
	Filename *string `json:"filename,omitzero"`
	FileData string  `json:"file_data"`
}

func textPart(text string) chatPart { return chatPart{Type: "text", Text: &text} }

func (p *chatPart) isMedia() bool { return p.Type != "text" && p.Type != "refusal" }

// MarshalJSONTo writes a single text part as a string, which every server accepts in every
// message, and no parts as null.
func (c chatContent) MarshalJSONTo(out *jsontext.Encoder) error {
	if len(c) == 0 {
		return out.WriteToken(jsontext.Null)
	}
	if len(c) == 1 && c[0].Type == "text" && len(c[0].Extra) == 0 {
		return out.WriteToken(jsontext.String(*c[0].Text))
	}
	return json.MarshalEncode(out, []chatPart(c))
}

func (c *content) isEmptyArray() bool {
	return c.kind == jsontext.KindBeginArray && len(c.parts) == 0
}

// chat translates a content. Images, files and audio are allowed only if media is true.
func (c *content) chat(at string, media bool) (chatContent, error) {
	switch c.kind {
	case jsontext.KindString:
		return chatContent{textPart(c.text)}, nil
	case jsontext.KindBeginArray:
		if c.isEmptyArray() {
			return nil, fault.Invalid(at, "%s must have at least one part.", at)
		}
		out := make(chatContent, 0, len(c.parts))
		for i := range c.parts {
			here := at + "[" + strconv.Itoa(i) + "]"
			p, err := c.parts[i].chat(here)
			if err != nil {
				return nil, err
			}
			if p.isMedia() && !media {
				return nil, fault.Invalid(here+".type", "%s.type must be a text type. Images, files and audio are only allowed in a message of the user.", here)
			}
			out = append(out, p)
		}
		return out, nil
	case jsontext.KindInvalid, jsontext.KindNull:
		return nil, fault.Missing(at, "%s is required: a string or an array of parts.", at)
	}
	return nil, fault.Invalid(at, "%s must be a string or an array of parts.", at)
}

func (p *part) chat(at string) (chatPart, error) {
	out := chatPart{Extra: p.Extra}
	switch p.Type {
	case "input_text", "output_text":
		if p.Text == nil {
			return out, fault.Missing(at+".text", "%s.text is required: a string.", at)
		}
		out.Type, out.Text = "text", p.Text
		return out, nil
	case "refusal":
		if p.Refusal == nil {
			return out, fault.Missing(at+".refusal", "%s.refusal is required: a string.", at)
		}
		out.Type, out.Refusal = "refusal", p.Refusal
		return out, nil
	case "input_image":
		return p.image(at, out)
	case "input_file":
		return p.file(at, out)
	case "input_audio":
		if p.InputAudio.Kind() != jsontext.KindBeginObject {
			return out, fault.Missing(at+".input_audio", "%s.input_audio is required: an object with data and format.", at)
		}
		out.Type, out.InputAudio = p.Type, p.InputAudio
		return out, nil
	case "":
		return out, fault.Missing(at+".type", "%s.type is required: input_text, input_image, input_file, output_text or refusal.", at)
	}
	if slices.Contains([]string{"text", "image_url", "file"}, p.Type) {
		return out, fault.Invalid(at+".type", "%s.type %q belongs to chat completions. Use input_text, input_image or input_file.", at, p.Type)
	}
	return out, fault.Invalid(at+".type", "%s.type must be input_text, input_image, input_file, output_text or refusal, not %.40q.", at, p.Type)
}

func (p *part) image(at string, out chatPart) (chatPart, error) {
	switch {
	case p.ImageURL != nil && *p.ImageURL != "":
		out.Type, out.ImageURL = "image_url", &chatImage{URL: *p.ImageURL, Detail: p.chatDetail()}
		return out, nil
	case p.FileID != nil:
		return out, noFileID(at, "image_url as an https or data URL")
	}
	return out, fault.Missing(at+".image_url", "%s.image_url is required: an https or data URL as a string.", at)
}

// chatDetail translates the detail. Chat completions have no "original"; "high" is the closest.
func (p *part) chatDetail() *string {
	if p.Detail != nil && *p.Detail == "original" {
		high := "high"
		return &high
	}
	return p.Detail
}

func (p *part) file(at string, out chatPart) (chatPart, error) {
	switch {
	case p.FileData != nil && *p.FileData != "":
		out.Type, out.File = "file", &chatFile{Filename: p.Filename, FileData: *p.FileData}
		return out, nil
	case p.FileID != nil:
		return out, noFileID(at, "file_data as a base64 data URL")
	case p.FileURL != nil:
		return out, fault.Invalid(at+".file_url", "%s.file_url is not supported. Send the file itself in file_data as a base64 data URL.", at)
	}
	return out, fault.Missing(at+".file_data", "%s.file_data is required: a base64 data URL.", at)
}

func noFileID(at, instead string) error {
	return fault.Invalid(at+".file_id", "%s.file_id is not supported: files are not stored. Send the content itself in %s.", at, instead)
}
