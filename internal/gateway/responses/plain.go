package responses

import (
	"github.com/go-json-experiment/json"

	"turnpike/internal/fault"
)

// ToResponse translates a plain chat completion.
func (r *Request) ToResponse(completion []byte) ([]byte, error) {
	c, err := readCompletion(completion)
	if err != nil {
		return nil, err
	}
	choice := c.firstChoice()
	if choice == nil {
		return nil, fault.New(fault.Upstream, "The model provider's response has no choices.")
	}
	out := r.newResponse(c)
	out.addOutput(choice)
	out.finish(choice.FinishReason)
	out.Usage = c.Usage.response()
	text, err := json.Marshal(out, lenient...)
	if err != nil {
		return nil, fault.New(fault.Internal, "The response could not be encoded.").Because(err)
	}
	return text, nil
}

// addOutput adds the message, if there is any text, and then the function calls.
func (r *response) addOutput(c *choice) {
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
