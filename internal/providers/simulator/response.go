package simulator

import (
	"crypto/sha256"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
)

// response is a reply as a chat completion. The JSON is written by hand, because
// encoding it by reflection costs more than the rest of a response together.
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

// body returns the body of a response that isn't streamed.
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
		b = append(b, `{"index":`...)
		b = strconv.AppendInt(b, int64(i), 10)
		b = append(b, `,"message":`...)
		b = a.appendMessage(b, i)
		b = a.appendLogprobs(b, 0, len(a.ends))
		b = append(b, `,"finish_reason":"`...)
		b = append(b, a.finish...)
		b = append(b, `"}`...)
	}
	b = append(b, `],"usage":`...)
	b = appendUsage(b, a.usage)
	b = append(b, ',')
	b = append(b, commonFields...)
	return append(b, '}')
}

// appendHead writes the beginning of a completion or a chunk.
func (a *response) appendHead(b []byte, object string) []byte {
	b = append(b, `{"id":"chatcmpl-`...)
	b = appendID(b, a.digest, 29)
	b = append(b, `","object":"`...)
	b = append(b, object...)
	b = append(b, `","created":`...)
	b = strconv.AppendInt(b, a.created, 10)
	b = append(b, `,"model":`...)
	b = appendString(b, a.model)
	return append(b, ',')
}

func (a *response) appendMessage(b []byte, choice int) []byte {
	b = append(b, `{"role":"assistant","content":`...)
	switch {
	case a.refusal:
		b = append(b, `null,"refusal":`...)
		b = appendString(b, a.text)
	case len(a.calls) > 0:
		b = append(b, `null,"refusal":null,"tool_calls":[`...)
		for i, c := range a.calls {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, `{"id":"`...)
			b = a.appendCallID(b, choice, i)
			b = append(b, `","type":"function","function":{"name":`...)
			b = appendString(b, c.name)
			b = append(b, `,"arguments":`...)
			b = appendString(b, c.arguments)
			b = append(b, `}}`...)
		}
		b = append(b, ']')
	default:
		b = appendString(b, a.text)
		b = append(b, `,"refusal":null`...)
	}
	return append(b, `,"annotations":[]}`...)
}

// appendLogprobs writes the field for a range of the text's tokens. Every token
// has probability 1.
func (a *response) appendLogprobs(b []byte, from, to int) []byte {
	if !a.logprobs || len(a.calls) > 0 {
		return append(b, `,"logprobs":null`...)
	}
	list, other := "content", "refusal"
	if a.refusal {
		list, other = other, list
	}
	b = append(b, `,"logprobs":{"`...)
	b = append(b, other...)
	b = append(b, `":null,"`...)
	b = append(b, list...)
	b = append(b, `":[`...)
	for i := from; i < to; i++ {
		if i > from {
			b = append(b, ',')
		}
		token := a.text[startOf(a.ends, i):a.ends[i]]
		b = appendLogprob(b, token)
		b = append(b, `,"top_logprobs":[`...)
		if a.topLogprobs {
			b = appendLogprob(b, token)
			b = append(b, '}')
		}
		b = append(b, `]}`...)
	}
	return append(b, `]}`...)
}

// appendLogprob writes the object of a token without its closing bracket. A token
// can be a part of a character, which only its bytes represent.
func appendLogprob(b []byte, token string) []byte {
	b = append(b, `{"token":`...)
	b = appendString(b, token)
	b = append(b, `,"logprob":0,"bytes":[`...)
	for i := range len(token) {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(token[i]), 10)
	}
	return append(b, ']')
}

// startOf returns the offset of a token, given the ends of all.
func startOf(ends []int, i int) int {
	if i == 0 {
		return 0
	}
	return ends[i-1]
}

func appendUsage(b []byte, u providers.Usage) []byte {
	b = append(b, `{"prompt_tokens":`...)
	b = strconv.AppendInt(b, u.InputTokens, 10)
	b = append(b, `,"completion_tokens":`...)
	b = strconv.AppendInt(b, u.OutputTokens, 10)
	b = append(b, `,"total_tokens":`...)
	b = strconv.AppendInt(b, u.InputTokens+u.OutputTokens, 10)
	return append(b, `,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},`+
		`"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`...)
}

// appendCallID writes the ID of a tool call.
func (a *response) appendCallID(b []byte, choice, call int) []byte {
	seed := append(a.digest[:], byte(choice), byte(call))
	b = append(b, `call_`...)
	return appendID(b, sha256.Sum256(seed), 24)
}

// appendID writes up to 32 letters and digits that follow from a digest.
func appendID(b []byte, digest [sha256.Size]byte, length int) []byte {
	const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	for _, c := range digest[:length] {
		b = append(b, alphabet[int(c)%len(alphabet)])
	}
	return b
}

// appendString writes a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}
