package gateway

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

// request is what the gateway itself reads of a call. All the rest belongs to
// the provider and is passed on as it is.
type request struct {
	body         []byte
	models       []string // in the order in which they are tried
	stream       bool
	includeUsage bool
	choices      int64
	maxOutput    int64 // tokens of one choice, as the caller said; 0 if not
	needs        needs
	inputBound   int64 // tokens that the input can come to at most
}

// needs are what a model must be able to do for a call.
type needs struct{ tools, vision, audio, schema bool }

// maxModels bounds a fallback list.
const maxModels = 16

func readChat(body []byte) (*request, error) {
	var in struct {
		Model         *string  `json:"model"`
		Models        []string `json:"models"`
		Stream        *bool    `json:"stream"`
		StreamOptions *struct {
			IncludeUsage *bool `json:"include_usage"`
		} `json:"stream_options"`
		N              *int64           `json:"n"`
		MaxTokens      *int64           `json:"max_tokens"`
		MaxCompletion  *int64           `json:"max_completion_tokens"`
		Tools          []jsontext.Value `json:"tools"`
		Functions      []jsontext.Value `json:"functions"`
		ResponseFormat *struct {
			Type string `json:"type"`
		} `json:"response_format"`
	}
	if err := jsonbody.DecodeLenient(body, &in); err != nil {
		return nil, err
	}
	r := &request{body: body, choices: 1, stream: in.Stream != nil && *in.Stream}
	var err error
	if r.models, err = modelList(in.Model, in.Models); err != nil {
		return nil, err
	}
	r.includeUsage = in.StreamOptions != nil && in.StreamOptions.IncludeUsage != nil && *in.StreamOptions.IncludeUsage
	if in.N != nil {
		if *in.N < 1 || *in.N > 128 {
			return nil, fault.Invalid("n", "n must be from 1 to 128")
		}
		r.choices = *in.N
	}
	for _, limit := range []struct {
		name  string
		value *int64
	}{{"max_tokens", in.MaxTokens}, {"max_completion_tokens", in.MaxCompletion}} {
		if limit.value == nil {
			continue
		}
		if *limit.value < 1 {
			return nil, fault.Invalid(limit.name, "%s must be at least 1", limit.name)
		}
		r.maxOutput = *limit.value
	}
	r.needs.tools = len(in.Tools) > 0 || len(in.Functions) > 0
	r.needs.schema = in.ResponseFormat != nil && in.ResponseFormat.Type == "json_schema"
	r.inputBound = bound(body, &r.needs)
	return r, nil
}

// modelList is the call's model and what to fall back to.
func modelList(model *string, models []string) ([]string, error) {
	var list []string
	if model != nil && *model != "" {
		list = append(list, *model)
	}
	if len(models) > maxModels {
		return nil, fault.Invalid("models", "models must have at most %d entries", maxModels)
	}
	for _, m := range models {
		if m == "" {
			return nil, fault.Invalid("models", "models must name models")
		}
		if len(list) != 1 || m != list[0] {
			list = append(list, m)
		}
	}
	if len(list) == 0 {
		return nil, fault.Missing("model", "model must name a model; GET /v1/models lists those there are")
	}
	return list, nil
}

// What media in a call can come to at most. Providers count images by their
// size, which an address does not tell, and cut them down to a most; sound
// comes at least a token for so many bytes of its data.
const (
	imageTokens  = 40_000
	bytesOfSound = 32
	// Providers wrap the conversation, and describe tools, in words of their own.
	frameTokens = 64
	toolTokens  = 1024
)

// bound is how many tokens the body can come to: no tokenizer makes more
// tokens than there are bytes, of what is text.
func bound(body []byte, n *needs) int64 {
	tokens := int64(len(body)) + frameTokens
	if n.tools {
		tokens += toolTokens
	}
	if bytes.Contains(body, []byte(`image`)) || bytes.Contains(body, []byte(`input_audio`)) {
		tokens += mediaTokens(body, n)
	}
	return tokens
}

// mediaTokens is what media add to the number of bytes, which may be less than
// nothing: their data is no text.
func mediaTokens(body []byte, n *needs) (more int64) {
	d := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		t, err := d.ReadToken()
		if err != nil {
			return more
		}
		if t.Kind() != '"' {
			continue
		}
		kind, length := d.StackIndex(d.StackDepth())
		if kind == '{' && length%2 == 1 { // a name
			switch t.String() {
			case "image_url", "image":
				n.vision = true
				more += imageTokens
			case "input_audio":
				n.audio = true
			}
			continue
		}
		switch text := t.String(); {
		case strings.HasPrefix(text, "data:image/"):
			more -= int64(len(text))
		case strings.HasPrefix(text, "data:audio/") || n.audio && len(text) > 4096:
			more -= int64(len(text)) - int64(len(text))/bytesOfSound
		}
	}
}
