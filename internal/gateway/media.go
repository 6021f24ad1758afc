package gateway

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// What media in a call can come to at most. Providers count images by their
// size, which an address does not tell, and cut them down to a most: OpenAI's
// small models count up to 48,169 tokens for one. Sound comes at least a token
// for so many bytes of its data.
const (
	imageTokens  = 50_000
	bytesOfSound = 32
)

// part is a part of a message, as far as it can be media.
type part struct {
	Type       string         `json:"type"`
	Image      jsontext.Value `json:"image"`
	ImageURL   jsontext.Value `json:"image_url"`
	InputAudio jsontext.Value `json:"input_audio"`
}

// mediaTokens is what media add to the number of bytes, which may be less than
// nothing: their data is no text. Only the parts of messages can be media.
// Text that looks like it anywhere else is text, and counts as such: nobody
// gets a book read for the price of its cover.
func mediaTokens(body []byte, n *needs) (more int64) {
	if !mayHaveMedia(body) {
		return 0
	}
	var in struct {
		Messages []jsontext.Value `json:"messages"`
	}
	_ = json.Unmarshal(body, &in) // what has another shape is the provider's to refuse
	for _, text := range in.Messages {
		var message struct {
			Content jsontext.Value `json:"content"`
		}
		var parts []jsontext.Value
		if json.Unmarshal(text, &message) != nil || message.Content.Kind() != '[' || json.Unmarshal(message.Content, &parts) != nil {
			continue
		}
		for _, text := range parts {
			var p part
			if text.Kind() == '{' && json.Unmarshal(text, &p) == nil {
				more += p.tokens(n)
			}
		}
	}
	return more
}

// mayHaveMedia is quick, and looks for escaped letters too: names can be
// written with them.
func mayHaveMedia(body []byte) bool {
	return bytes.Contains(body, []byte(`image`)) || bytes.Contains(body, []byte(`input_audio`)) || bytes.Contains(body, []byte(`\u00`))
}

func (p *part) tokens(n *needs) (more int64) {
	if p.Image != nil || p.ImageURL != nil || strings.Contains(p.Type, "image") {
		n.vision = true
		more += imageTokens
		if data := textIn(p.ImageURL, "url"); strings.HasPrefix(data, "data:image/") {
			more -= int64(len(data))
		}
	}
	if p.InputAudio != nil {
		n.audio = true
		data := int64(len(textIn(p.InputAudio, "data")))
		more -= data - data/bytesOfSound
	}
	return more
}

// textIn is a string, or the one that an object has under the name.
func textIn(value jsontext.Value, name string) (text string) {
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
