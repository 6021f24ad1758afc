package bedrock

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
)

// pendingCalls are the tool calls without a result, and the IDs that Bedrock gets for the client's.
type pendingCalls struct {
	openai.PendingCalls
	toolUseIDs []string
}

// setMessages splits the conversation into the system prompt and messages of user and assistant, which must
// alternate. Instructions after the assistant's last message are what it shall respond to and become the user's.
func (b *builder) setMessages() error {
	if err := b.in.CheckMessages(); err != nil {
		return err
	}
	var pending pendingCalls
	trailing := openai.TrailingInstructions(b.in.Messages)
	for i := range b.in.Messages {
		m, at := &b.in.Messages[i], "messages["+strconv.Itoa(i)+"]"
		if m.Role == "user" || m.Role == "assistant" {
			if err := pending.Check(i); err != nil {
				return err
			}
		}
		var err error
		switch m.Role {
		case "system", "developer":
			var blocks []block
			if blocks, err = b.contentBlocks(m, at+".content"); i >= trailing {
				b.add("user", blocks...)
			} else {
				b.out.System = append(b.out.System, blocks...)
			}
		case "assistant":
			pending, err = b.addAssistant(m, at)
		case "tool":
			err = b.addToolResult(m, at, &pending)
		case "function":
			err = fault.Invalid(at+".role", "%s.role \"function\" is not supported by this model's provider. Use tools.", at)
		default:
			err = b.addContent("user", m, at)
		}
		if err != nil {
			return err
		}
	}
	if err := pending.Check(len(b.in.Messages)); err != nil {
		return err
	}
	if len(b.out.Messages) == 0 { // OpenAI's models respond to instructions alone
		if len(b.out.System) == 0 {
			return fault.Invalid("messages", "messages must have some text.")
		}
		b.out.Messages, b.out.System = []message{{Role: "user", Content: b.out.System}}, nil
	}
	if first := b.out.Messages[0]; first.Role != "user" {
		return fault.Invalid("messages", "messages must begin with a message of the user for this model's provider, after the instructions.")
	}
	return nil
}

// add appends blocks to the conversation. Consecutive messages of one role become one, and empty ones are dropped.
func (b *builder) add(role string, blocks ...block) {
	if len(blocks) == 0 {
		return
	}
	if n := len(b.out.Messages); n > 0 && b.out.Messages[n-1].Role == role {
		b.out.Messages[n-1].Content = append(b.out.Messages[n-1].Content, blocks...)
		return
	}
	b.out.Messages = append(b.out.Messages, message{Role: role, Content: blocks})
}

func (b *builder) addContent(role string, m *openai.Message, at string) error {
	blocks, err := b.contentBlocks(m, at+".content")
	b.add(role, blocks...)
	return err
}

// addAssistant adds a message of the assistant and returns its tool calls.
func (b *builder) addAssistant(m *openai.Message, at string) (pending pendingCalls, err error) {
	if m.FunctionCall != nil {
		return pending, fault.Invalid(at+".function_call", "%s.function_call is not supported by this model's provider. Use tool_calls.", at)
	}
	if !m.Content.IsNull() {
		if err := b.addContent("assistant", m, at); err != nil {
			return pending, err
		}
	}
	if !isBlank(m.Refusal) {
		b.add("assistant", textBlock(m.Refusal))
	}
	for i := range m.ToolCalls {
		c, here := &m.ToolCalls[i], fmt.Sprintf("%s.tool_calls[%d]", at, i)
		if c.ID == "" {
			return pending, fault.Missing(here+".id", "%s.id is required.", here)
		}
		if err := c.Check(here); err != nil {
			return pending, err
		}
		input, err := c.Function.Object(here+".function", jsontext.AllowDuplicateNames(true))
		if err != nil {
			return pending, err
		}
		id := b.uniqueID(c.ID)
		b.add("assistant", block{ToolUse: &toolUse{ID: id, Name: c.Function.Name, Input: input}})
		pending.PendingCalls, pending.toolUseIDs = append(pending.PendingCalls, c.ID), append(pending.toolUseIDs, id)
		if !slices.Contains(b.usedTools, c.Function.Name) {
			b.usedTools = append(b.usedTools, c.Function.Name)
		}
	}
	return pending, nil
}

func (b *builder) addToolResult(m *openai.Message, at string, pending *pendingCalls) error {
	i, err := pending.Answer(m, at)
	if err != nil {
		return err
	}
	blocks, err := b.contentBlocks(m, at+".content")
	if err != nil {
		return err
	}
	if len(blocks) == 0 { // Bedrock requires some
		blocks = []block{textBlock("(no output)")}
	}
	b.add("user", block{ToolResult: &toolResult{ID: pending.toolUseIDs[i], Content: blocks}})
	pending.toolUseIDs = slices.Delete(pending.toolUseIDs, i, i+1)
	return nil
}

// maxToolUseID is the length that Bedrock accepts.
const maxToolUseID = 64

// uniqueID returns an ID that Bedrock accepts and that no call before it has. Some models number the calls of each
// message from the start.
func (b *builder) uniqueID(id string) string {
	valid := len(id) <= maxToolUseID-4 && !strings.ContainsFunc(id, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-')
	})
	if !valid {
		sum := sha256.Sum256([]byte(id))
		id = "call_" + hex.EncodeToString(sum[:12])
	}
	unique := id
	for b.callIDs[unique] > 0 {
		b.callIDs[id]++
		unique = id + "_" + strconv.Itoa(b.callIDs[id])
	}
	b.callIDs[unique] = 1
	return unique
}

// contentBlocks translates the content of a message. Bedrock rejects text that is only white space, so it is dropped.
func (b *builder) contentBlocks(m *openai.Message, at string) (blocks []block, err error) {
	if m.Role == "tool" { // results can have what users may send
		m = &openai.Message{Role: "user", Content: m.Content}
	}
	err = m.EachPart(at, []string{"text", "image_url", "file"}, func(p *openai.Part, at string) error {
		var one block
		var err error
		switch p.Type {
		case "image_url":
			one.Image, err = image(p.ImageURL.URL, at+".image_url.url")
		case "file":
			one.Document, err = b.document(p.File, at+".file")
		default:
			one = textBlock(p.PlainText())
			if isBlank(*one.Text) {
				return nil
			}
		}
		blocks = append(blocks, one)
		if p.CacheControl.Kind() == jsontext.KindBeginObject {
			blocks = append(blocks, block{CachePoint: &cachePoint{"default"}})
		}
		return err
	})
	return blocks, err
}

// imageFormats are the names of the media types that Bedrock accepts.
var imageFormats = map[string]string{"image/jpeg": "jpeg", "image/jpg": "jpeg", "image/png": "png", "image/gif": "gif", "image/webp": "webp"}

func image(url, at string) (*media, error) {
	mediaType, data, ok := openai.ParseDataURL(url)
	if !ok {
		return nil, fault.Invalid(at, "%s must be a data URL in base64. This model's provider doesn't fetch images.", at)
	}
	format := imageFormats[mediaType]
	if format == "" {
		return nil, fault.Invalid(at, "%s must be an image/jpeg, image/png, image/gif or image/webp, not %.40q.", at, mediaType)
	}
	m := &media{Format: format}
	m.Source.Bytes = data
	return m, nil
}

var documentFormats = map[string]string{"application/pdf": "pdf", "text/plain": "txt", "text/csv": "csv", "text/html": "html", "text/markdown": "md"}

// document translates a file. Its name is neutral, because the model reads it as an instruction.
func (b *builder) document(f *openai.File, at string) (*media, error) {
	mediaType, data, err := f.Content(at)
	if err != nil {
		return nil, err
	}
	mediaType, _, _ = strings.Cut(mediaType, ";")
	format := documentFormats[mediaType]
	if format == "" && strings.HasPrefix(mediaType, "text/") {
		format = "txt"
	}
	if format == "" {
		return nil, fault.Invalid(at+".file_data", "%s.file_data must be an application/pdf or text, not %.40q.", at, mediaType)
	}
	b.documents++
	m := &media{Format: format, Name: "document " + strconv.Itoa(b.documents)}
	m.Source.Bytes = data
	return m, nil
}

func isBlank(s string) bool { return strings.TrimSpace(s) == "" }
