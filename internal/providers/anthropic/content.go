package anthropic

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
)

type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type,omitzero"`
	Data      string `json:"data,omitzero"`
	URL       string `json:"url,omitzero"`
}

// cacheControl ends the part of the prompt that the provider caches. Its TTL is
// dropped: a longer one costs more, and the catalog has one price for writing.
type cacheControl struct {
	Type string `json:"type"`
}

func readCacheControl(v jsontext.Value) *cacheControl {
	if v.Kind() != jsontext.KindBeginObject {
		return nil
	}
	return &cacheControl{Type: "ephemeral"}
}

// contentBlocks translates the content of a message. The API rejects text that
// is only white space, so it is dropped.
func contentBlocks(m *openai.Message, at string) (blocks []block, err error) {
	c := &m.Content
	if err := openai.CheckContent(c, at); err != nil {
		return nil, err
	}
	if c.Kind == jsontext.KindString {
		return appendText(nil, c.Text), nil
	}
	role := m.Role
	if role == "tool" { // Anthropic's tool results take what users may send
		role = "user"
	}
	for i := range c.Value {
		p, here := &c.Value[i], at+"["+strconv.Itoa(i)+"]"
		if err := p.Check(here, role, "text", "image_url", "file"); err != nil {
			return nil, err
		}
		before := len(blocks)
		switch p.Type {
		case "text":
			blocks = appendText(blocks, *p.Text)
		case "refusal":
			blocks = appendText(blocks, *p.Refusal)
		default:
			media, err := mediaBlock(p, here)
			if err != nil {
				return nil, err
			}
			blocks = append(blocks, media)
		}
		if len(blocks) > before {
			blocks[before].CacheControl = readCacheControl(p.CacheControl)
		}
	}
	return blocks, nil
}

func appendText(blocks []block, text string) []block {
	if isBlank(text) {
		return blocks
	}
	return append(blocks, block{Type: "text", Text: text})
}

func mediaBlock(p *openai.Part, at string) (block, error) {
	if p.Type == "image_url" {
		return imageBlock(p.ImageURL.URL, at+".image_url.url")
	}
	return documentBlock(p.File, at+".file")
}

func imageBlock(url, at string) (block, error) {
	if openai.HasScheme(url, "https") {
		return block{Type: "image", Source: &source{Type: "url", URL: url}}, nil
	}
	mediaType, data, ok := openai.ParseDataURL(url)
	if !ok {
		return block{}, fault.Invalid(at, "%s must be an https URL or a data URL in base64.", at)
	}
	switch mediaType {
	case "image/jpg": // a common mistake
		mediaType = "image/jpeg"
	case "image/jpeg", "image/png", "image/gif", "image/webp":
	default:
		return block{}, fault.Invalid(at, "%s must be an image/jpeg, image/png, image/gif or image/webp, not %.40q.", at, mediaType)
	}
	return block{Type: "image", Source: &source{Type: "base64", MediaType: mediaType, Data: data}}, nil
}

func documentBlock(f *openai.File, at string) (block, error) {
	mediaType, data, err := f.Content(at)
	if err != nil {
		return block{}, err
	}
	at += ".file_data"
	b := block{Type: "document", Title: f.Name}
	switch {
	case mediaType == "application/pdf":
		b.Source = &source{Type: "base64", MediaType: mediaType, Data: data}
	case strings.HasPrefix(mediaType, "text/"):
		text, err := base64.StdEncoding.DecodeString(data)
		if err != nil || !utf8.Valid(text) || isBlank(string(text)) {
			return block{}, fault.Invalid(at, "%s must be UTF-8 text in base64 and not empty.", at)
		}
		b.Source = &source{Type: "text", MediaType: "text/plain", Data: string(text)}
	default:
		return block{}, fault.Invalid(at, "%s must be an application/pdf or text, not %.40q.", at, mediaType)
	}
	return b, nil
}
