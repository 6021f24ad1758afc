package openai

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

// chatBody is the caller's body with what the provider must be told otherwise.
func (d dialect) chatBody(req *providers.ChatRequest) ([]byte, error) {
	var o object
	if err := o.parse(req.Body); err != nil {
		return nil, badBody(err)
	}
	setModel(&o, req.Model)
	if d.noStreamOptions {
		o.drop("stream_options")
	} else if req.Stream {
		if err := askForUsage(&o); err != nil {
			return nil, badBody(err)
		}
	}
	d.limitOutput(&o, limitName(req), req.MaxOutput)
	return o.bytes(), nil
}

func embeddingsBody(model string, body []byte) ([]byte, error) {
	var o object
	if err := o.parse(body); err != nil {
		return nil, badBody(err)
	}
	setModel(&o, model)
	return o.bytes(), nil
}

// badBody is not seen by callers: the edge has refused such bodies before.
func badBody(err error) error {
	return fault.New(fault.InvalidJSON, "the body must be a JSON object").Because(err)
}

// setModel names the model as the provider does, and takes out the list of
// models to fall back to, which is ours alone.
func setModel(o *object, model string) {
	name, _ := jsontext.AppendQuote(nil, model)
	o.set("model", string(name))
	o.drop("models")
}

// askForUsage makes a stream say what it used, whether the caller wants to
// know or not.
func askForUsage(o *object) error {
	if !o.has("stream_options") {
		o.set("stream_options", `{"include_usage":true}`)
		return nil
	}
	for i := range o.members {
		m := &o.members[i]
		given := jsontext.Value(o.text[m.from:m.end])
		if string(m.name) != "stream_options" || given.Kind() != '{' {
			continue // what is no object the provider says what is wrong with
		}
		var options object
		if err := options.parse(given); err != nil {
			return err
		}
		options.set("include_usage", "true")
		m.value = options.bytes()
	}
	return nil
}

const (
	oldLimit  = "max_tokens"
	newLimit  = "max_completion_tokens"
	llamaCPPs = "n_predict" // which llama.cpp takes before either
)

// limitOutput keeps the answer within the tokens that credits are reserved
// for, under a name that the server knows.
func (d dialect) limitOutput(o *object, name string, most int64) {
	other := oldLimit
	if d.oldLimitOnly {
		name, other = oldLimit, newLimit
	}
	if d.oldLimitOnly || name == newLimit { // the server refuses or ignores the other
		if o.has(other) && !o.has(name) {
			o.set(name, string(within(o.get(other), most)))
		}
		o.drop(other)
	}
	if most <= 0 {
		return
	}
	for i := range o.members {
		switch m := &o.members[i]; string(m.name) {
		case oldLimit, newLimit, llamaCPPs:
			if given := jsontext.Value(o.text[m.from:m.end]); given.Kind() != 'n' {
				m.value = within(given, most)
			}
		}
	}
	if !o.has(oldLimit) && !o.has(newLimit) {
		o.set(name, strconv.FormatInt(most, 10))
	}
}

// within is a limit that does not exceed ours, if there is one. Ours also
// stands in for what is no number, which some servers convert, and for what is
// below one, which some take for "no limit".
func within(given jsontext.Value, most int64) jsontext.Value {
	n, err := strconv.ParseFloat(string(given), 64)
	if most <= 0 || err == nil && n >= 1 && n <= float64(most) {
		return given
	}
	return strconv.AppendInt(nil, most, 10)
}

// limitName is the field that bounds a model's output. OpenAI's models that
// reason know the new one only; many other servers the old one only.
func limitName(req *providers.ChatRequest) string {
	if reasons(req.Model) || reasons(req.ID) {
		return newLimit
	}
	return oldLimit
}

// reasons reports whether a name is that of a model of OpenAI's that does, or of
// one tuned from it: ft:o4-mini:acme::abc.
func reasons(model string) bool {
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

// leadingNumber is the number that a text begins with, or -1.
func leadingNumber(s string) int {
	end := 0
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(s[:end])
	if err != nil {
		return -1
	}
	return n
}
