package gateway

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	// maxInputImageTokens is the maximum for one image. Providers count by size, which a URL
	// doesn't reveal, up to a maximum: 48,169 tokens for OpenAI's small models.
	maxInputImageTokens = 50_000
	// audioBytesPerToken is the minimum of base64 bytes that make one token of audio.
	audioBytesPerToken = 32
)

// contentPart is the part of a message's content that can be media.
type contentPart struct {
	Type       string         `json:"type"`
	Image      jsontext.Value `json:"image"`
	ImageURL   jsontext.Value `json:"image_url"`
	InputAudio jsontext.Value `json:"input_audio"`
}

// mediaTokens returns the correction for media to a bound that counts bytes as tokens. It can
// be negative, because media data isn't text. Only content parts of messages can be media:
// strings elsewhere that look like media count as text, which is what they cost.
func mediaTokens(body []byte, n *needs) (tokens int64) {
	if bytes.Count(body, []byte("[")) < 2 || !mayHaveMedia(body) { // messages and their parts are arrays
		return 0
	}
	var in struct {
		Messages []jsontext.Value `json:"messages"`
	}
	_ = json.Unmarshal(body, &in) // the provider rejects other shapes
	for _, text := range in.Messages {
		var message struct {
			Content jsontext.Value `json:"content"`
		}
		var parts []jsontext.Value
		if json.Unmarshal(text, &message) != nil || message.Content.Kind() != '[' || json.Unmarshal(message.Content, &parts) != nil {
			continue
		}
		tokens += partTokens(parts, n)
	}
	return tokens
}

// partTokens is mediaTokens for the parts of a content.
func partTokens(parts []jsontext.Value, n *needs) (tokens int64) {
	for _, text := range parts {
		var p contentPart
		if text.Kind() == '{' && json.Unmarshal(text, &p) == nil {
			tokens += p.tokens(n)
		}
	}
	return tokens
}

// mayHaveMedia is a quick check. It looks for escapes too, because field names may contain them.
func mayHaveMedia(body []byte) bool {
	return bytes.Contains(body, []byte(`image`)) || bytes.Contains(body, []byte(`input_audio`)) || bytes.Contains(body, []byte(`\u00`))
}

func (p *contentPart) tokens(n *needs) (tokens int64) {
	if p.Image != nil || p.ImageURL != nil || strings.Contains(p.Type, "image") {
		n.vision = true
		tokens += maxInputImageTokens
		if data := stringOrMember(p.ImageURL, "url"); strings.HasPrefix(data, "data:image/") {
			tokens -= int64(len(data))
		}
	}
	if p.InputAudio != nil {
		n.audio = true
		data := int64(len(stringOrMember(p.InputAudio, "data")))
		tokens -= data - data/audioBytesPerToken
	}
	return tokens
}

func stringOrMember(value jsontext.Value, name string) (text string) {
	if value.Kind() == '{' {
		var object map[string]jsontext.Value
		if json.Unmarshal(value, &object) != nil {
			return ""
		}
		value = object[name]
	}
	if value.Kind() == '"' {
		_ = json.Unmarshal(value, &text)
	}
	return text
}
