package notifications

import (
	"encoding/json"
	"fmt"
	"strings"

	"turnpike/internal/accounts"
)

// Message is a notification for an incoming webhook.
type Message struct {
	ID          string               `json:"id"`
	Type        string               `json:"type"` // an event, "approval.reminder" or "test"
	Title       string               `json:"title"`
	Text        string               `json:"text"`
	Code        string               `json:"code,omitzero"` // arguments of a tool call, shown as they are
	URL         string               `json:"url,omitzero"`  // the page in the dashboard
	WorkspaceID string               `json:"workspace"`
	Environment accounts.Environment `json:"environment"`
	CreatedAt   int64                `json:"created_at"`
	Data        any                  `json:"data,omitzero"`
}

// encode returns the request body in a format.
func (m *Message) encode(f Format) ([]byte, error) {
	if f == JSON {
		return json.Marshal(struct {
			Object string `json:"object"`
			*Message
		}{"notification", m})
	}
	var out strings.Builder
	fmt.Fprintf(&out, "*%s*\n%s", escapeSlack(m.Title), escapeSlack(m.Text))
	if m.Code != "" {
		// A fence inside would end the block, and what follows could look like a message of ours.
		fmt.Fprintf(&out, "\n```\n%s\n```", escapeSlack(strings.ReplaceAll(m.Code, "```", "'''")))
	}
	if m.URL != "" {
		fmt.Fprintf(&out, "\n<%s|Open in Turnpike>", m.URL)
	}
	return json.Marshal(map[string]string{"text": out.String()})
}

// escapeSlack escapes the characters that have a meaning in Slack's messages, so that a name or an
// argument can't become a link or mention a channel.
func escapeSlack(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
