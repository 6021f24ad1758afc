package responses

import (
	"github.com/go-json-experiment/json"

	"turnpike/internal/fault"
)

// Answer makes a response of the answer to a chat.
func (r *Request) Answer(chat []byte) ([]byte, error) {
	c, err := readCompletion(chat)
	if err != nil {
		return nil, err
	}
	choice := c.first()
	if choice == nil {
		return nil, fault.New(fault.Upstream, "the model provider's answer has no choice in it")
	}
	out := r.response(c)
	out.output(choice)
	out.finish(choice.FinishReason)
	out.Usage = c.Usage.response()
	text, err := json.Marshal(out, lenient...)
	if err != nil {
		return nil, fault.New(fault.Internal, "the answer could not be written").Because(err)
	}
	return text, nil
}

// output adds what was said, then what was called. Nothing said is no message.
func (r *response) output(c *choice) {
	var parts []outputPart
	if c.Message.Content != "" {
		parts = append(parts, textOutput(string(c.Message.Content), c.logprobs()))
	}
	if c.Message.Refusal != "" {
		parts = append(parts, refusalOutput(string(c.Message.Refusal)))
	}
	if parts != nil {
		r.Output = append(r.Output, messageItem(itemID("msg", r.ID, 0), completed, parts))
	}
	for _, call := range c.Message.ToolCalls {
		n := len(r.Output)
		callID := string(call.ID)
		if callID == "" {
			callID = itemID("call", r.ID, n)
		}
		f := call.Function
		r.Output = append(r.Output, callItem(itemID("fc", r.ID, n), completed, callID, string(f.Name), string(f.Arguments)))
	}
}
