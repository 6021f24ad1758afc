package anthropic

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
)

type message struct {
	Role    string  `json:"role"`
	Content []block `json:"content"`
}

type block struct {
	Type         string         `json:"type"`
	Text         string         `json:"text,omitzero"`
	Source       *source        `json:"source,omitzero"`
	Title        string         `json:"title,omitzero"`
	ID           string         `json:"id,omitzero"`
	Name         string         `json:"name,omitzero"`
	Input        jsontext.Value `json:"input,omitzero"`
	ToolUseID    string         `json:"tool_use_id,omitzero"`
	Content      []block        `json:"content,omitzero"`
	CacheControl *cacheControl  `json:"cache_control,omitzero"`
}

// pendingCalls are the tool calls without a result. toolUseIDs are the IDs that
// Anthropic gets for the client's.
type pendingCalls struct {
	openai.PendingCalls
	toolUseIDs []string
}

// setMessages splits the conversation into the system prompt and messages of
// user and assistant. Instructions inside the conversation move to the system
// prompt, the only place that every model has for them. Instructions after the
// assistant's last message are what it shall respond to and become the user's.
func (b *builder) setMessages() error {
	if err := b.in.CheckMessages(); err != nil {
		return err
	}
	var pending pendingCalls
	trailing := openai.TrailingInstructions(b.in.Messages)
	for i := range b.in.Messages {
		m := &b.in.Messages[i]
		at := "messages[" + strconv.Itoa(i) + "]"
		b.current = i
		if m.Role == "user" || m.Role == "assistant" {
			if err := pending.Check(i); err != nil {
				return err
			}
		}
		var err error
		switch m.Role {
		case "system", "developer":
			err = b.addInstruction(m, at, i >= trailing)
		case "user":
			err = b.addContent("user", m, at)
		case "assistant":
			pending, err = b.addAssistant(m, at)
		case "tool":
			err = b.addToolResult(m, at, &pending)
		case "function":
			err = fault.Invalid(at+".role", "%s.role \"function\" is not supported by this model's provider. Use tools.", at)
		}
		if err != nil {
			return err
		}
	}
	if err := pending.Check(len(b.in.Messages)); err != nil {
		return err
	}
	return b.finishMessages()
}

func (b *builder) finishMessages() error {
	messages := b.out.Messages
	if len(messages) == 0 { // OpenAI's models respond to instructions alone
		if len(b.out.System) == 0 {
			return fault.Invalid("messages", "messages must have some text.")
		}
		b.out.Messages = []message{{Role: "user", Content: b.out.System}}
		b.out.System = nil
		return nil
	}
	last := messages[len(messages)-1]
	if last.Role != "assistant" {
		return nil
	}
	if !b.model.prefill() {
		at := "messages[" + strconv.Itoa(b.lastMessage) + "]"
		return fault.Invalid(at, "%s must be from the user or a tool. This model cannot continue a message of the assistant.", at)
	}
	// The API rejects white space at the very end.
	if end := &last.Content[len(last.Content)-1]; end.Type == "text" {
		end.Text = strings.TrimRightFunc(end.Text, unicode.IsSpace)
	}
	return nil
}

// add appends blocks to the conversation. Consecutive messages of one role become one, as the API
// requires for tool results. The API rejects empty messages, so they are dropped.
func (b *builder) add(role string, blocks ...block) {
	if len(blocks) == 0 {
		return
	}
	b.lastMessage = b.current
	if n := len(b.out.Messages); n > 0 && b.out.Messages[n-1].Role == role {
		b.out.Messages[n-1].Content = append(b.out.Messages[n-1].Content, blocks...)
		return
	}
	b.out.Messages = append(b.out.Messages, message{Role: role, Content: blocks})
}

func (b *builder) addInstruction(m *openai.Message, at string, trailing bool) error {
	blocks, err := contentBlocks(m, at+".content")
	if trailing {
		b.add("user", blocks...)
	} else {
		b.out.System = append(b.out.System, blocks...)
	}
	return err
}

func (b *builder) addContent(role string, m *openai.Message, at string) error {
	blocks, err := contentBlocks(m, at+".content")
	b.add(role, blocks...)
	return err
}

// addAssistant adds a message of the assistant and returns its tool calls.
func (b *builder) addAssistant(m *openai.Message, at string) (pending pendingCalls, err error) {
	if m.FunctionCall != nil {
		return pending, fault.Invalid(at+".function_call", "%s.function_call is not supported by this model's provider. Use tool_calls.", at)
	}
	if !m.Content.IsNull() || len(m.ToolCalls) == 0 && m.Refusal == "" {
		if err := b.addContent("assistant", m, at); err != nil {
			return pending, err
		}
	}
	if !isBlank(m.Refusal) {
		b.add("assistant", block{Type: "text", Text: m.Refusal})
	}
	for i := range m.ToolCalls {
		call := &m.ToolCalls[i]
		use, err := toolUse(call, at+".tool_calls["+strconv.Itoa(i)+"]")
		if err != nil {
			return pending, err
		}
		use.ID = b.uniqueID(use.ID)
		b.add("assistant", use)
		pending.PendingCalls = append(pending.PendingCalls, call.ID)
		pending.toolUseIDs = append(pending.toolUseIDs, use.ID)
		if !slices.Contains(b.usedTools, use.Name) {
			b.usedTools = append(b.usedTools, use.Name)
		}
	}
	return pending, nil
}

func toolUse(c *openai.ToolCall, at string) (block, error) {
	if c.ID == "" {
		return block{}, fault.Missing(at+".id", "%s.id is required.", at)
	}
	if err := c.Check(at); err != nil {
		return block{}, err
	}
	input, err := c.Function.Object(at+".function", jsontext.AllowDuplicateNames(true))
	return block{Type: "tool_use", ID: toolUseID(c.ID), Name: c.Function.Name, Input: input}, err
}

// uniqueID returns an ID that no call before it has, as the API requires. Some
// models number the calls of each message from the start.
func (b *builder) uniqueID(id string) string {
	unique := id
	for b.callIDs[unique] > 0 {
		b.callIDs[id]++
		unique = id + "_" + strconv.Itoa(b.callIDs[id])
	}
	b.callIDs[unique] = 1
	return unique
}

func (b *builder) addToolResult(m *openai.Message, at string, pending *pendingCalls) error {
	i, err := pending.Answer(m, at)
	if err != nil {
		return err
	}
	blocks, err := contentBlocks(m, at+".content")
	if err != nil {
		return err
	}
	b.add("user", block{Type: "tool_result", ToolUseID: pending.toolUseIDs[i], Content: blocks})
	pending.toolUseIDs = slices.Delete(pending.toolUseIDs, i, i+1)
	return nil
}

// toolUseID returns an ID that the API accepts for one of another provider.
func toolUseID(id string) string {
	valid := !strings.ContainsFunc(id, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-')
	})
	if valid {
		return id
	}
	return "call_" + digest(id)[:24]
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
