package openai

import (
	"context"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// soundTypes are the types of the formats, for servers that do not name them.
var soundTypes = map[string]string{
	"":     "audio/mpeg", // OpenAI's default
	"mp3":  "audio/mpeg",
	"opus": "audio/ogg",
	"aac":  "audio/aac",
	"flac": "audio/flac",
	"wav":  "audio/wav",
	"pcm":  "audio/pcm",
}

// Speech reads a text aloud. The sound is passed on as it comes.
func (p *Provider) Speech(ctx context.Context, req *providers.SpeechRequest) (*providers.Content, error) {
	body, err := speechBody(req)
	if err != nil {
		return nil, err
	}
	resp, err := p.do(ctx, wire.Call{Method: http.MethodPost, URL: p.address(req.Model, "/audio/speech"), Body: [][]byte{body}})
	if err != nil {
		return nil, err
	}
	kind, ok := soundTypes[req.Format]
	if !ok {
		kind = "application/octet-stream"
	}
	return p.content(resp, kind, req.Format == "pcm")
}

func speechBody(req *providers.SpeechRequest) ([]byte, error) {
	body := req.Body
	if body == nil {
		body = []byte("{}")
	}
	var o object
	if err := o.parse(body); err != nil {
		return nil, badBody(err)
	}
	setModel(&o, req.Model)
	setText(&o, "input", req.Input)
	if req.Voice != "" { // or it is in the body, as an object
		setText(&o, "voice", req.Voice)
	}
	if req.Format != "" {
		setText(&o, "response_format", req.Format)
	}
	o.drop("stream_format") // the answer is the file, not events with its pieces
	return o.bytes(), nil
}

func setText(o *object, name, value string) {
	quoted, _ := jsontext.AppendQuote(nil, value)
	o.set(name, string(quoted))
}
