package openai

import (
	"context"
	"net/http"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// audioTypes are the media types of the formats, for servers that don't send one.
var audioTypes = map[string]string{
	"":     "audio/mpeg", // OpenAI's default
	"mp3":  "audio/mpeg",
	"opus": "audio/ogg",
	"aac":  "audio/aac",
	"flac": "audio/flac",
	"wav":  "audio/wav",
	"pcm":  "audio/pcm",
}

// Speech turns text into speech. The audio is forwarded as it arrives.
func (p *Provider) Speech(ctx context.Context, req *providers.SpeechRequest) (*providers.Content, error) {
	body, err := speechBody(req)
	if err != nil {
		return nil, err
	}
	resp, err := p.doMedia(ctx, wire.Call{Method: http.MethodPost, URL: p.url(req.Model, "/audio/speech"), Body: [][]byte{body}})
	if err != nil {
		return nil, err
	}
	kind, ok := audioTypes[req.Format]
	if !ok {
		kind = "application/octet-stream"
	}
	return p.readFile(resp, kind, req.Format == "pcm")
}

func speechBody(req *providers.SpeechRequest) ([]byte, error) {
	body := req.Body
	if body == nil {
		body = []byte("{}")
	}
	var o object
	if err := o.parseBody(body, req.Model); err != nil {
		return nil, err
	}
	o.setString("input", req.Input)
	if req.Voice != "" { // or the body has it as an object
		o.setString("voice", req.Voice)
	}
	if req.Format != "" {
		o.setString("response_format", req.Format)
	}
	o.drop("stream_format") // the response is the file, not events
	return o.bytes(), nil
}
