package openai

import (
	"errors"
	"net/http"
	"strconv"

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
	usage, _ := o.usage()
	return &providers.Answer{Body: body, Usage: usage}, nil
}

// usage is what a call used, as the object says. It is not ok if that is
// missing, cannot be understood, or is nothing at all, which no call is.
func (o *object) usage() (u providers.Usage, ok bool) {
	value := o.get("usage")
	if value.Kind() != '{' {
		return u, false
	}
	var prompt, completion, total, cached, older, written float64
	d := o.reader(value)
	err := members(d, func(name jsontext.Value) error {
		switch string(name) {
		case `"prompt_tokens"`:
			return readNumber(d, &prompt)
		case `"completion_tokens"`:
			return readNumber(d, &completion)
		case `"total_tokens"`:
			return readNumber(d, &total)
		case `"cached_tokens"`, `"prompt_cache_hit_tokens"`: // Moonshot's and DeepSeek's place for it
			return readNumber(d, &older)
		case `"prompt_tokens_details"`:
			return members(d, func(name jsontext.Value) error {
				switch string(name) {
				case `"cached_tokens"`:
					return readNumber(d, &cached)
				case `"cache_write_tokens"`: // OpenRouter's, and our own
					return readNumber(d, &written)
				}
				return d.SkipValue()
			})
		}
		return d.SkipValue()
	})
	if err != nil {
		return u, false
	}
	// Some (xAI, Gemini's own compatible API) leave the tokens of reasoning,
	// which they charge as output, out of all but the total.
	output := completion
	if prompt > 0 {
		output = max(completion, total-prompt)
	}
	const absurd = 1e12
	if prompt < 0 || prompt > absurd || output < 0 || output > absurd || prompt+output == 0 {
		return u, false
	}
	u.InputTokens, u.OutputTokens = int64(prompt), int64(output)
	u.CachedInput = int64(max(0, min(max(cached, older), prompt)))
	u.CacheWrite = int64(max(0, min(written, prompt-float64(u.CachedInput))))
	return u, true
}

// readNumber reads a number, which may have a fraction: not every server
// writes 12 as 12. null is none.
func readNumber(d *jsontext.Decoder, n *float64) error {
	value, err := d.ReadValue()
	switch {
	case err != nil:
	case value.Kind() == 'n':
		*n = 0
	case value.Kind() == '0':
		*n, err = strconv.ParseFloat(string(value), 64)
	default:
		err = errors.New("not a number")
	}
	return err
}
