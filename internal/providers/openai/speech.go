package openai

import (
	"cmp"
	"context"
	"net/http"

	"turnpike/internal/audio"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// Speech turns text into speech. The audio is forwarded as it arrives.
func (p *Provider) Speech(ctx context.Context, req *providers.SpeechRequest) (*providers.Content, error) {
	body, err := speechBody(req)
	if err != nil {
		return nil, err
	}
	resp, err := p.doMedia(ctx, wire.Call{Method: http.MethodPost, URL: p.url(req.Model, "/audio/speech"), Body: body})
	if err != nil {
		return nil, err
	}
	kind := audio.Types[cmp.Or(req.Format, "mp3")] // OpenAI's default
	return p.readFile(resp, cmp.Or(kind, "application/octet-stream"), req.Format == "pcm")
}

func speechBody(req *providers.SpeechRequest) ([]byte, error) {
	body := req.Body
	if body == nil {
		body = []byte("{}")
	}
	var o object
	if err := o.parseBody(jsonbody.NewIndex(body), req.Model); err != nil {
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
