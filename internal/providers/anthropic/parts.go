package anthropic

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

type part struct {
	Type         string         `json:"type"`
	Text         *string        `json:"text"`
	Refusal      *string        `json:"refusal"`
	ImageURL     *image         `json:"image_url"`
	File         *file          `json:"file"`
	CacheControl jsontext.Value `json:"cache_control"`
}

type image struct {
	URL string `json:"url"`
}

type file struct {
	ID   string `json:"file_id"`
	Data string `json:"file_data"`
	Name string `json:"filename"`
}

// source is where the content of an image or a document is.
type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type,omitzero"`
	Data      string `json:"data,omitzero"`
	URL       string `json:"url,omitzero"`
}

// cacheControl marks the end of what the provider shall remember. OpenAI has
// no such field, but many clients send Anthropic's own. Its ttl is left out: a
// longer one costs more, and the catalogue has one price for writing.
type cacheControl struct {
	Type string `json:"type"`
}

func readCacheControl(v jsontext.Value) *cacheControl {
	if v.Kind() != jsontext.KindBeginObject {
		return nil
	}
	return &cacheControl{Type: "ephemeral"}
}

// blocks translates a message's content. Text of nothing but white space is
// left out: the API refuses it.
func (c *content) blocks(at, role string) ([]block, error) {
	switch c.kind {
	case jsontext.KindString:
		if isBlank(c.text) {
			return nil, nil
		}
		return []block{{Type: "text", Text: c.text}}, nil
	case jsontext.KindBeginArray:
		var list []block
		for i := range c.parts {
			b, err := c.parts[i].block(at+"["+strconv.Itoa(i)+"]", role)
			if err != nil {
				return nil, err
			}
			if b.Type != "" {
				b.CacheControl = readCacheControl(c.parts[i].CacheControl)
				list = append(list, b)
			}
		}
		return list, nil
	case jsontext.KindInvalid, jsontext.KindNull:
		return nil, fault.Missing(at, "%s is required: a string or an array of parts; null is for an assistant message with tool_calls", at)
	}
	return nil, fault.Invalid(at, "%s must be a string or an array of parts", at)
}

// block translates a part; one without anything in it has no type.
func (p *part) block(at, role string) (block, error) {
	missing := func(field, what string) (block, error) {
		return block{}, fault.Missing(at+"."+field, "%s.%s is required: %s", at, field, what)
	}
	switch {
	case p.Type == "":
		return missing("type", "text, image_url or file")
	case p.Type == "text":
		if p.Text == nil {
			return missing("text", "a string")
		}
		return textBlock(*p.Text), nil
	case p.Type == "refusal" && role == "assistant":
		if p.Refusal == nil {
			return missing("refusal", "a string")
		}
		return textBlock(*p.Refusal), nil
	case role != "user" && role != "tool":
		return block{}, fault.Invalid(at+".type", "%s.type must be text: other parts belong in a user message", at)
	case p.Type == "image_url":
		if p.ImageURL == nil {
			return missing("image_url", "an object with url")
		}
		return p.ImageURL.block(at + ".image_url.url")
	case p.Type == "file":
		if p.File == nil {
			return missing("file", "an object with file_data")
		}
		return p.File.block(at + ".file")
	}
	return block{}, fault.Invalid(at+".type", "%s.type %.40q is not possible with this model's provider: it takes text, image_url and file", at, p.Type)
}

func textBlock(text string) block {
	if isBlank(text) {
		return block{}
	}
	return block{Type: "text", Text: text}
}

func (i *image) block(at string) (block, error) {
	if i.URL == "" {
		return block{}, fault.Missing(at, "%s is required: an https or data URL", at)
	}
	if hasScheme(i.URL, "https") {
		return block{Type: "image", Source: &source{Type: "url", URL: i.URL}}, nil
	}
	media, data, ok := readDataURL(i.URL)
	if !ok {
		return block{}, fault.Invalid(at, "%s must be an https URL or a data URL in base64", at)
	}
	switch media {
	case "image/jpg": // a common mistake
		media = "image/jpeg"
	case "image/jpeg", "image/png", "image/gif", "image/webp":
	default:
		return block{}, fault.Invalid(at, "%s must be an image/jpeg, image/png, image/gif or image/webp, not %.40q", at, media)
	}
	return block{Type: "image", Source: &source{Type: "base64", MediaType: media, Data: data}}, nil
}

func (f *file) block(at string) (block, error) {
	switch {
	case f.Data == "" && f.ID != "":
		return block{}, fault.Invalid(at+".file_id", "%s.file_id is not possible with this model's provider: send the file itself in file_data", at)
	case f.Data == "":
		return block{}, fault.Missing(at+".file_data", "%s.file_data is required: a data URL in base64", at)
	}
	at += ".file_data"
	media, data, ok := readDataURL(f.Data)
	if !ok {
		return block{}, fault.Invalid(at, "%s must be a data URL in base64", at)
	}
	b := block{Type: "document", Title: f.Name}
	switch {
	case media == "application/pdf":
		b.Source = &source{Type: "base64", MediaType: media, Data: data}
	case strings.HasPrefix(media, "text/"):
		text, err := base64.StdEncoding.DecodeString(data)
		if err != nil || !utf8.Valid(text) || isBlank(string(text)) {
			return block{}, fault.Invalid(at, "%s must be some UTF-8 text in base64", at)
		}
		b.Source = &source{Type: "text", MediaType: "text/plain", Data: string(text)}
	default:
		return block{}, fault.Invalid(at, "%s must be an application/pdf or a text, not %.40q", at, media)
	}
	return b, nil
}

// readDataURL reads data:image/png;base64,….
func readDataURL(url string) (media, data string, ok bool) {
	if !hasScheme(url, "data") {
		return "", "", false
	}
	head, data, ok := strings.Cut(url[len("data:"):], ",")
	if !ok || data == "" {
		return "", "", false
	}
	media, parameters, _ := strings.Cut(strings.ToLower(head), ";")
	isBase64 := parameters == "base64" || strings.HasSuffix(parameters, ";base64")
	return strings.TrimSpace(media), data, isBase64
}

func hasScheme(url, scheme string) bool {
	return len(url) > len(scheme) && url[len(scheme)] == ':' && strings.EqualFold(url[:len(scheme)], scheme)
}
