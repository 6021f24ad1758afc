package gateway

import (
	"strings"

	"turnpike/internal/fault"
	"turnpike/internal/gateway/messages"
)

// threadsBeta begins the beta of Anthropic's threads. Turnpike holds threads itself, and providers don't get them.
const threadsBeta = "message-threads-"

// readMessageCall reads a request in Anthropic's format. A thread in it becomes the whole conversation before anything
// is priced, reserved or sent. Callers that can't hold threads reject them.
func readMessageCall(c *Call, o *MessageOptions) (*request, error) {
	r, err := readMessages(c.Body)
	if err != nil {
		return nil, c.noteRequested(err)
	}
	if r.messages.Thread == nil {
		return r, nil
	}
	if !isSet(r.messages.Thread) {
		c.Body = messages.WithoutThread(c.Body, nil)
		return readMessages(c.Body)
	}
	turn, err := messages.ReadTurn(c.Body)
	if err == nil && o.ResumeThread == nil {
		err = messages.ThreadFault(messages.ThreadUnsupported, fault.Invalid("thread", "A batch can't use threads. Omit thread, and send the whole conversation in messages."))
	}
	if err == nil {
		c.Body, err = o.ResumeThread(turn)
	}
	if err != nil {
		return nil, c.noteRequested(err)
	}
	o.Beta = withoutBeta(o.Beta, threadsBeta)
	return readMessages(c.Body)
}

// withoutBeta returns anthropic-beta headers without the names that begin with a prefix.
func withoutBeta(headers []string, prefix string) (kept []string) {
	for _, header := range headers {
		for name := range strings.SplitSeq(header, ",") {
			if name = strings.TrimSpace(name); name != "" && !strings.HasPrefix(name, prefix) {
				kept = append(kept, name)
			}
		}
	}
	return kept
}
