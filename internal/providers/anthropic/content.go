package anthropic

import (
	"encoding/base64"
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
	if m.Role == "tool" { // Anthropic's tool results take what users may send
		m = &openai.Message{Role: "user", Content: m.Content}
	}
	err = m.EachPart(at, []string{"text", "image_url", "file"}, func(p *openai.Part, at string) (err error) {
		var b block
		switch p.Type {
		case "image_url":
			b, err = imageBlock(p.ImageURL.URL, at+".image_url.url")
		case "file":
			b, err = documentBlock(p.File, at+".file")
		default:
			b = block{Type: "text", Text: p.PlainText()}
			if isBlank(b.Text) {
				return nil
			}
		}
		b.CacheControl = readCacheControl(p.CacheControl)
		blocks = append(blocks, b)
		return err
	})
	return blocks, err
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
