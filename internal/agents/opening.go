package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"turnpike/internal/db"
)

// Said is a message of a run's input, as people read it.
type Said struct {
	Role string
	Text string
	Long bool // it is too long to be read here, and Text is empty
}

// longMessage is the size of messages that nobody reads: they have pictures.
const longMessage = 64 << 10

// Opening returns what a run was asked: the messages at its beginning, before
// the model says anything.
func (s *Service) Opening(ctx context.Context, q db.Querier, runID string, limit int) ([]Said, error) {
	rows, err := q.Query(ctx, fmt.Sprintf("SELECT CASE WHEN length(message) > %d THEN NULL ELSE message END FROM agent_messages WHERE run_id = $1 ORDER BY position LIMIT $2",
		longMessage), runID, int64(limit))
	list, err := db.All(rows, err, func(r db.Row) (text *string, err error) {
		err = r.Scan(&text)
		return text, err
	})
	if err != nil {
		return nil, fmt.Errorf("read input: %w", err)
	}
	var out []Said
	for _, text := range list {
		if text == nil {
			out = append(out, Said{Role: "user", Long: true})
			continue
		}
		said, err := readSaid(*text)
		if err != nil {
			return nil, fmt.Errorf("read input: %w", err)
		}
		if said.Role == "assistant" || said.Role == "tool" {
			break
		}
		out = append(out, said)
	}
	return out, nil
}

// readSaid reads a message, whose content is a text or a list of parts.
func readSaid(message string) (Said, error) {
	var in struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal([]byte(message), &in); err != nil {
		return Said{}, err
	}
	out := Said{Role: in.Role}
	if json.Unmarshal(in.Content, &out.Text) == nil {
		return out, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(in.Content, &parts) != nil {
		return out, nil // nothing that can be read
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
