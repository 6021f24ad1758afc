package openai

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

// chatBody returns the client's body with the fields that the provider must get otherwise.
func (d dialect) chatBody(req *providers.ChatRequest) ([]byte, error) {
	var o object
	index := req.Index.Of(req.Body)
	if err := o.parseBody(index, req.Model); err != nil {
		return nil, err
	}
	if err := d.checkObjects(index); err != nil {
		return nil, err
	}
	if o.has("store") { // the account is the operator's
		o.set("store", "false")
	}
	if d.noStreamOptions {
		o.drop("stream_options")
	} else if req.Stream {
		includeUsage(&o)
	}
	d.limitOutput(&o, limitName(req), req.MaxOutput)
	return o.bytes(), nil
}

// checkObjects rejects the names of objects in the account, unless it is private.
func (d dialect) checkObjects(body *jsonbody.Index) error {
	if d.private {
		return nil
	}
	return providers.CheckObjects(body)
}

// parseBody parses the client's body. It sets the provider's name of the model,
// and drops the fallbacks, which are Turnpike's own. The gateway has checked the body's syntax.
func (o *object) parseBody(body *jsonbody.Index, model string) error {
	if body.Root().Kind() != '{' {
		return invalidBody(nil)
	}
	o.split(body.Root())
	o.setString("model", model)
	o.drop("models")
	return nil
}

// invalidBody doesn't reach clients: the API has rejected such bodies before.
func invalidBody(err error) error {
	return fault.New(fault.InvalidJSON, "The body must be a JSON object.").Because(err)
}

// includeUsage makes a stream end with its usage, whether the client asks for it or not.
func includeUsage(o *object) {
	given := o.get("stream_options")
	if given == nil || given.Kind() == 'n' {
		given = jsontext.Value("{}")
	}
	if given.Kind() != '{' {
		return // the provider reports it
	}
	var options object
	options.split(jsonbody.NewIndex(given).Root())
	options.set("include_usage", "true")
	o.set("stream_options", string(options.bytes()))
}

const (
	maxTokens           = "max_tokens"
	maxCompletionTokens = "max_completion_tokens"
	nPredict            = "n_predict" // llama.cpp prefers it to both
)

// limitOutput limits the output to the tokens that credits are reserved for, in
// a field that the server knows.
func (d dialect) limitOutput(o *object, name string, limit int64) {
	other := maxTokens
	if d.maxTokensOnly {
		name, other = maxTokens, maxCompletionTokens
	}
	if d.maxTokensOnly || name == maxCompletionTokens { // the server rejects or ignores the other
		if o.has(other) && !o.has(name) {
			o.set(name, string(atMost(o.get(other), limit)))
		}
		o.drop(other)
	}
	if limit <= 0 {
		return
	}
	for _, field := range []string{maxTokens, maxCompletionTokens, nPredict} {
		if o.has(field) {
			o.set(field, string(atMost(o.get(field), limit)))
		}
	}
	if !o.has(maxTokens) && !o.has(maxCompletionTokens) {
		o.set(name, strconv.FormatInt(limit, 10))
	}
}

// atMost returns the client's value, or the limit if that is lower. The limit also replaces
// strings, which some servers convert, and values below one, which some take for "no limit".
func atMost(given jsontext.Value, limit int64) jsontext.Value {
	n, err := strconv.ParseFloat(string(given), 64)
	if limit <= 0 || err == nil && n >= 1 && n <= float64(limit) {
		return given
	}
	return strconv.AppendInt(nil, limit, 10)
}

// limitName returns the field that limits a model's output. OpenAI's reasoning
// models know only the new one, and many other servers only the old one.
func limitName(req *providers.ChatRequest) string {
	if isReasoning(req.Model) || isReasoning(req.ID) {
		return maxCompletionTokens
	}
	return maxTokens
}

// isReasoning reports whether a name is that of an OpenAI reasoning model, or of
// one tuned from it: ft:o4-mini:acme::abc.
func isReasoning(model string) bool {
	if tuned, ok := strings.CutPrefix(model, "ft:"); ok {
		model, _, _ = strings.Cut(tuned, ":")
	}
	model = model[strings.LastIndexByte(model, '/')+1:]
	if rest, ok := strings.CutPrefix(model, "gpt-"); ok {
		return leadingNumber(rest) >= 5
	}
	rest, ok := strings.CutPrefix(model, "o")
	return ok && leadingNumber(rest) >= 1
}

func leadingNumber(s string) int {
	n, err := strconv.Atoi(s[:len(s)-len(strings.TrimLeft(s, "0123456789"))])
	if err != nil {
		return -1
	}
	return n
}
