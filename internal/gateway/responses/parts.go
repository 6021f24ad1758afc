package responses

import (
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
)

// content is the content of a message or the output of a function: a string, or parts.
type content = openai.StringOr[[]part]

type part struct {
	Type       string             `json:"type"`
	Text       *string            `json:"text"`
	Refusal    *string            `json:"refusal"`
	ImageURL   *string            `json:"image_url"`
	Detail     *string            `json:"detail"`
	FileID     *string            `json:"file_id"`
	FileURL    *string            `json:"file_url"`
	FileData   *string            `json:"file_data"`
	Filename   *string            `json:"filename"`
	InputAudio *openai.InputAudio `json:"input_audio"`

	// Clients send these back with output_text; they are dropped.
	Annotations jsontext.Value `json:"annotations"`
	Logprobs    jsontext.Value `json:"logprobs"`

	File  jsontext.Value `json:"file"`   // the shape of chat completions
	Extra jsontext.Value `json:",embed"` // such as a provider's cache_control
}

// chatContent returns the content of a chat message. A single text part becomes a string, which
// every server accepts in every message. A message with nothing but calls has null.
func chatContent(parts []openai.Part) openai.Content {
	switch {
	case len(parts) == 0:
		return openai.Content{}
	case len(parts) == 1 && parts[0].Type == "text" && len(parts[0].Extra) == 0:
		return openai.TextContent(*parts[0].Text)
	}
	return openai.PartsContent(parts)
}

func isMedia(p *openai.Part) bool { return p.Type != "text" && p.Type != "refusal" }

func isEmptyArray(c *content) bool {
	return c.Kind == jsontext.KindBeginArray && len(c.Value) == 0
}

// chatParts translates the content of a message. Only users and tools send images, files and audio,
// and only the assistant refuses.
func chatParts(c *content, at, role string) ([]openai.Part, error) {
	switch c.Kind {
	case jsontext.KindString:
		return []openai.Part{openai.TextPart(c.Text)}, nil
	case jsontext.KindBeginArray:
		if isEmptyArray(c) {
			return nil, fault.Invalid(at, "%s must have at least one part.", at)
		}
		out := make([]openai.Part, 0, len(c.Value))
		for i := range c.Value {
			here := at + "[" + strconv.Itoa(i) + "]"
			p, err := c.Value[i].chat(here)
			if err != nil {
				return nil, err
			}
			if p.Type == "refusal" && role != "assistant" {
				return nil, fault.Invalid(here+".type", "%s.type refusal is only allowed in a message of the assistant.", here)
			}
			if isMedia(&p) && role != "user" && role != "tool" {
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

func (p *part) chat(at string) (openai.Part, error) {
	out := openai.Part{Extra: p.Extra}
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
		if p.InputAudio == nil {
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

func (p *part) image(at string, out openai.Part) (openai.Part, error) {
	switch {
	case p.ImageURL != nil && *p.ImageURL != "":
		out.Type, out.ImageURL = "image_url", &openai.ImageURL{URL: *p.ImageURL, Detail: p.chatDetail()}
		return out, nil
	case p.FileID != nil:
		return out, noFileID(at, "image_url as an https or data URL")
	}
	return out, fault.Missing(at+".image_url", "%s.image_url is required: an https or data URL as a string.", at)
}

// chatDetail translates the detail. Chat completions have no "original"; "high" is the closest.
func (p *part) chatDetail() string {
	if d := value(p.Detail); d != "original" {
		return d
	}
	return "high"
}

func (p *part) file(at string, out openai.Part) (openai.Part, error) {
	switch {
	case p.FileData != nil && *p.FileData != "":
		out.Type, out.File = "file", &openai.File{Name: value(p.Filename), Data: *p.FileData}
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
