package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
)

// InputMessage is a message of a run's input, for people to read.
type InputMessage struct {
	Role string
	Text string
	Long bool // Text is left out because it is too long
}

// maxInputMessage is the size of the longest message that Input reads. Longer ones
// contain images.
const maxInputMessage = 64 << 10

// Input returns the messages that a run started with, before the model's first.
func (s *Service) Input(ctx context.Context, q db.Querier, runID string, limit int) ([]InputMessage, error) {
	list, err := db.List(ctx, q, db.Value[*string], fmt.Sprintf(`SELECT CASE WHEN length(message) > %d THEN NULL ELSE message END
		FROM agent_messages WHERE run_id = $1 ORDER BY position LIMIT $2`, maxInputMessage), runID, int64(limit))
	if err != nil {
		return nil, fmt.Errorf("read input: %w", err)
	}
	var out []InputMessage
	for _, text := range list {
		if text == nil {
			out = append(out, InputMessage{Role: "user", Long: true})
			continue
		}
		m, err := readInputMessage(*text)
		if err != nil {
			return nil, fmt.Errorf("read input: %w", err)
		}
		if m.Role == "assistant" || m.Role == "tool" {
			break
		}
		out = append(out, m)
	}
	return out, nil
}

// previewOf returns the beginning of the first message from a user.
func previewOf(messages []json.RawMessage) string {
	for _, text := range messages {
		if m, err := readInputMessage(string(text)); err == nil && m.Role == "user" {
			return accounts.Preview(m.Text)
		}
	}
	return ""
}

// readInputMessage parses a message whose content is a string or an array of parts.
func readInputMessage(message string) (InputMessage, error) {
	var in struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal([]byte(message), &in); err != nil {
		return InputMessage{}, err
	}
	out := InputMessage{Role: in.Role}
	if json.Unmarshal(in.Content, &out.Text) == nil {
		return out, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(in.Content, &parts) != nil {
		return out, nil // without text
	}
	var texts []string
	for _, p := range parts {
		if p.Text == "" {
			p.Text = "(" + p.Type + ")"
		}
		texts = append(texts, p.Text)
	}
	out.Text = strings.Join(texts, "\n")
	return out, nil
}
