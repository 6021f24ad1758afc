package simulator

import (
	"crypto/sha256"

	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// response is a reply as a chat completion.
type response struct {
	*reply
	head        openai.Head
	digest      [sha256.Size]byte
	choices     int
	logprobs    bool
	topLogprobs bool
	usage       providers.Usage
}

func (a *response) body() []byte {
	choices := make([]openai.Choice, a.choices)
	for i := range choices {
		choices[i] = openai.Choice{Index: i, Message: a.message(i), Logprobs: a.logprobsOf(0, len(a.ends)), FinishReason: a.finish}
	}
	return openai.Encode(a.head.Completion(choices, wire.ChatUsage(a.usage, 0)))
}

func (a *response) message(choice int) openai.AssistantMessage {
	m := openai.AssistantMessage{Role: "assistant"}
	switch {
	case a.refusal:
		m.Refusal = &a.text
	case len(a.calls) > 0:
		for i, c := range a.calls {
			m.ToolCalls = append(m.ToolCalls, openai.FunctionToolCall(a.callID(choice, i), c.name, c.arguments))
		}
	default:
		m.Content = &a.text
	}
	return m
}

// logprobsOf returns the log probabilities of a range of the text's tokens. Every token has
// probability 1.
func (a *response) logprobsOf(from, to int) *openai.Logprobs {
	if !a.logprobs || len(a.calls) > 0 {
		return nil
	}
	list := make([]openai.Logprob, 0, to-from)
	for i := from; i < to; i++ {
		p := openai.Logprob{Token: a.text[startOf(a.ends, i):a.ends[i]]}
		for _, b := range []byte(p.Token) { // a token can be a part of a character
			p.Bytes = append(p.Bytes, int64(b))
		}
		top := []openai.Logprob{}
		if a.topLogprobs {
			top = append(top, p)
		}
		p.TopLogprobs = top
		list = append(list, p)
	}
	if a.refusal {
		return &openai.Logprobs{Refusal: &list}
	}
	return &openai.Logprobs{Content: &list}
}

func startOf(ends []int, i int) int {
	if i == 0 {
		return 0
	}
	return ends[i-1]
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
