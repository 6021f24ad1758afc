package openai

import (
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// readResponse reads a response that must have an array with the given name.
func (p *Provider) readResponse(resp *http.Response, array string) (*providers.Response, error) {
	body, err := wire.ReadAll(resp)
	if err != nil {
		return nil, err
	}
	var o object
	if err := o.parse(body); err != nil {
		return nil, wire.ProtocolFailure("the response (%s) isn't a JSON object: %w", resp.Header.Get("Content-Type"), err)
	}
	if e, failed := findError(&o); failed {
		return nil, e.failure(resp.StatusCode, p.secrets())
	}
	if o.get(array).Kind() != '[' {
		return nil, wire.ProtocolFailure("the response has no %s", array)
	}
	usage, _ := o.usage()
	if usage.OutputTokens == 0 {
		var c chunk // differs from a response only in the name of the message
		if c.read(body) == nil && c.characters > 0 {
			usage.OutputTokens, usage.Estimated = int64(c.characters+3)/4, true
		}
	}
	return &providers.Response{Body: body, Usage: usage}, nil
}

const maxPlausible = 1e12

// usage returns the usage in the object. It isn't ok if that is missing, invalid or zero, which no
// request can be. Numbers may have a fraction: not every server writes 12 as 12.
func (o *object) usage() (u providers.Usage, ok bool) {
	var in struct {
		Prompt     float64        `json:"prompt_tokens"`
		Completion float64        `json:"completion_tokens"`
		Total      float64        `json:"total_tokens"`
		Cached     float64        `json:"cached_tokens"`           // Moonshot's
		CacheHit   float64        `json:"prompt_cache_hit_tokens"` // DeepSeek's
		Details    jsontext.Value `json:"prompt_tokens_details"`
	}
	var details struct {
		Cached  float64 `json:"cached_tokens"`
		Written float64 `json:"cache_write_tokens"` // OpenRouter's and Turnpike's
	}
	value := o.get("usage")
	if value.Kind() != '{' || json.Unmarshal(value, &in, wire.Lenient) != nil {
		return u, false
	}
	if in.Details.Kind() == '{' && json.Unmarshal(in.Details, &details, wire.Lenient) != nil {
		return u, false
	}
	// Some servers (xAI, Gemini's compatible API) count reasoning tokens, which they
	// charge as output, only in the total.
	output := in.Completion
	if in.Prompt > 0 {
		output = max(in.Completion, in.Total-in.Prompt)
	}
	if in.Prompt < 0 || in.Prompt > maxPlausible || output < 0 || output > maxPlausible || in.Prompt+output == 0 {
		return u, false
	}
	u.InputTokens, u.OutputTokens = int64(in.Prompt), int64(output)
	u.CachedInput = int64(max(0, min(max(details.Cached, in.Cached, in.CacheHit), in.Prompt)))
	u.CacheWrite = int64(max(0, min(details.Written, in.Prompt-float64(u.CachedInput))))
	return u, true
}

// readFile returns a response that is a file. raw files may begin with any byte.
func (p *Provider) readFile(resp *http.Response, kind string, raw bool) (*providers.Content, error) {
	return wire.ReadFile(resp, wire.FileOptions{Type: kind, Raw: raw, Secrets: p.secrets(), Explain: func(status int, text []byte) error {
		var o object
		if o.parse(text) != nil {
			return nil
		}
		return p.mediaFailure(status, o.get("error"))
	}})
}
