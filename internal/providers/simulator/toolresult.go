package simulator

import (
	"encoding/json"

	"turnpike/internal/jsonbody"
	"turnpike/internal/openai"
)

// ToolResult returns the output that the conversation of an agent run sets for
// simulated tool calls with [[sim:tool_result=…]]. As with scripts, the last user
// message with magic inputs counts.
func ToolResult(messages []json.RawMessage) (result string, found bool) {
	for i := len(messages) - 1; i >= 0; i-- {
		var m openai.Message
		if err := jsonbody.DecodeLenient(messages[i], &m); err != nil || m.Role != "user" {
			continue
		}
		if asked, found := messageMagic(&m); found {
			return asked.toolResult, asked.hasToolResult
		}
	}
	return "", false
}
