package openai

import (
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// readAnswer reads a plain answer, which must have a certain member.
func (p *Provider) readAnswer(resp *http.Response, must string) (*providers.Answer, error) {
	body, err := wire.ReadAll(resp)
	if err != nil {
		return nil, err
	}
	var o object
	if err := o.parse(body); err != nil {
		return nil, protocol("the answer (%s) is no JSON object: %w", resp.Header.Get("Content-Type"), err)
	}
	if c, failed := complaintIn(&o); failed {
		return nil, c.failure(resp.StatusCode, p.secrets)
	}
	if o.get(must).Kind() != '[' {
		return nil, protocol("the answer has no %s", must)
	}
	usage, _ := readUsage(o.get("usage"))
	return &providers.Answer{Body: body, Usage: usage}, nil
}

// readUsage reads what a call used. It is not ok if that is missing, cannot be
// understood, or is nothing at all, which no call is.
func readUsage(value jsontext.Value) (u providers.Usage, ok bool) {
	if value.Kind() != '{' {
		return u, false
	}
	// Numbers with a fraction: not every server writes 12 as 12.
	var in struct {
		Prompt     float64 `json:"prompt_tokens"`
		Completion float64 `json:"completion_tokens"`
		Total      float64 `json:"total_tokens"`
		Details    struct {
			Cached float64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	if err := json.Unmarshal(value, &in, lenient...); err != nil {
		return u, false
	}
	// Some (xAI, Gemini's own compatible API) leave the tokens of reasoning,
	// which they charge as output, out of all but the total.
	output := max(in.Completion, in.Total-in.Prompt)
	const absurd = 1e12
	if in.Prompt < 0 || in.Prompt > absurd || output < 0 || output > absurd || in.Prompt+output == 0 {
		return u, false
	}
	u.InputTokens, u.OutputTokens = int64(in.Prompt), int64(output)
	u.CachedInput = int64(max(0, min(in.Details.Cached, in.Prompt)))
	return u, true
}
