package simulator

import (
	"crypto/sha256"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
)

// response is a reply as a chat completion. The JSON is written by hand,
// because encoding it by reflection costs more than the rest of the response.
type response struct {
	*reply
	digest      [sha256.Size]byte
	model       string
	created     int64
	choices     int
	logprobs    bool
	topLogprobs bool
	usage       providers.Usage
}

const commonFields = `"service_tier":"default","system_fingerprint":"fp_simulator"`

func (a *response) body() []byte {
	size := 640 + len(a.model) + a.choices*(160+len(a.text)+len(a.text)/8)
	for _, c := range a.calls {
		size += a.choices * (160 + len(c.name) + len(c.arguments)*5/4)
	}
	b := a.appendHead(make([]byte, 0, size), "chat.completion")
	b = append(b, `"choices":[`...)
	for i := range a.choices {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"index":%d,"message":`, i)
		b = a.appendMessage(b, i)
		b = a.appendLogprobs(b, 0, len(a.ends))
		b = fmt.Appendf(b, `,"finish_reason":"%s"}`, a.finish)
	}
	b = appendUsage(append(b, `],"usage":`...), a.usage)
	return append(b, ","+commonFields+"}"...)
}

func (a *response) appendHead(b []byte, object string) []byte {
	return fmt.Appendf(b, `{"id":"chatcmpl-%s","object":"%s","created":%d,"model":%s,`, newID(a.digest, 29), object, a.created, quoteJSON(a.model))
}

func (a *response) appendMessage(b []byte, choice int) []byte {
	b = append(b, `{"role":"assistant","content":`...)
	switch {
	case a.refusal:
		b = appendString(append(b, `null,"refusal":`...), a.text)
	case len(a.calls) > 0:
		b = append(b, `null,"refusal":null,"tool_calls":[`...)
		for i, c := range a.calls {
			if i > 0 {
				b = append(b, ',')
			}
			b = fmt.Appendf(b, `{"id":"%s","type":"function","function":{"name":%s,"arguments":%s}}`, a.callID(choice, i), quoteJSON(c.name), quoteJSON(c.arguments))
		}
		b = append(b, ']')
	default:
		b = append(appendString(b, a.text), `,"refusal":null`...)
	}
	return append(b, `,"annotations":[]}`...)
}

// appendLogprobs writes the field for a range of the text's tokens. Every token has probability 1.
func (a *response) appendLogprobs(b []byte, from, to int) []byte {
	if !a.logprobs || len(a.calls) > 0 {
		return append(b, `,"logprobs":null`...)
	}
	list, other := "content", "refusal"
	if a.refusal {
		list, other = other, list
	}
	b = fmt.Appendf(b, `,"logprobs":{"%s":null,"%s":[`, other, list)
	for i := from; i < to; i++ {
		if i > from {
			b = append(b, ',')
		}
		token := a.text[startOf(a.ends, i):a.ends[i]]
		b = append(appendLogprob(b, token), `,"top_logprobs":[`...)
		if a.topLogprobs {
			b = append(appendLogprob(b, token), '}')
		}
		b = append(b, `]}`...)
	}
	return append(b, `]}`...)
}

// appendLogprob writes the object of a token without its closing bracket. A token
// can be a part of a character, which only its bytes represent.
func appendLogprob(b []byte, token string) []byte {
	b = appendString(append(b, `{"token":`...), token)
	b = append(b, `,"logprob":0,"bytes":[`...)
	for i := range len(token) {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Append(b, token[i])
	}
	return append(b, ']')
}

func startOf(ends []int, i int) int {
	if i == 0 {
		return 0
	}
	return ends[i-1]
}

func appendUsage(b []byte, u providers.Usage) []byte {
	return fmt.Appendf(b, `{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},`+
		`"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`,
		u.InputTokens, u.OutputTokens, u.InputTokens+u.OutputTokens)
}

func (a *response) callID(choice, call int) string {
	return "call_" + newID(sha256.Sum256(append(a.digest[:], byte(choice), byte(call))), 24)
}

// newID returns up to 32 letters and digits derived from a digest.
func newID(digest [sha256.Size]byte, length int) string {
	const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	id := digest[:length]
	for i, c := range id {
		id[i] = alphabet[int(c)%len(alphabet)]
	}
	return string(id)
}

// appendString writes a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}

func quoteJSON(s string) []byte { return appendString(nil, s) }
