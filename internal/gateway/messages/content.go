package messages

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
)

type message struct {
	Role    string                   `json:"role"`
	Content openai.StringOr[[]block] `json:"content"`
}

// block is a content block. Which fields are set depends on the type.
type block struct {
	Type      string                   `json:"type"`
	Text      *string                  `json:"text"`
	Source    *source                  `json:"source"`
	Title     string                   `json:"title"`
	ID        string                   `json:"id"`
	Name      string                   `json:"name"`
	Input     jsontext.Value           `json:"input"`
	ToolUseID string                   `json:"tool_use_id"`
	Content   openai.StringOr[[]block] `json:"content"`
	IsError   bool                     `json:"is_error"`
	Citations []jsontext.Value         `json:"citations"`
}

// source is where an image or a document comes from.
type source struct {
	Type      string                   `json:"type"`
	MediaType string                   `json:"media_type"`
	Data      string                   `json:"data"`
	URL       string                   `json:"url"`
	Content   openai.StringOr[[]block] `json:"content"`
}

func (r *Request) addSystem(in *request) error {
	if in.System.IsNull() {
		return nil
	}
	var texts []string
	err := eachBlock(&in.System, "system", func(b *block, at string) error {
		if b.Type != "text" {
			return fault.Invalid(at+".type", "%s.type must be text.", at)
		}
		text, err := b.text(at)
		texts = append(texts, text)
		return err
	})
	if err != nil {
		return err
	}
	if text := strings.Join(texts, "\n\n"); text != "" {
		r.add(openai.Message{Role: "system", Content: openai.TextContent(text)}, origin{at: "system"})
	}
	return nil
}

func (r *Request) addMessages(in *request) error {
	if in.Messages == nil {
		return fault.Missing("messages", "messages is required: an array of messages.")
	}
	if len(in.Messages) == 0 {
		return fault.Invalid("messages", "messages must have at least one message.")
	}
	var pending pendingUses
	for i := range in.Messages {
		m, at := &in.Messages[i], "messages["+strconv.Itoa(i)+"]"
		var err error
		switch m.Role {
		case "user":
			err = r.addUser(m, at, &pending)
		case "assistant":
			if err = pending.check(at); err == nil {
				pending, err = r.addAssistant(m, at)
			}
		case "system": // Claude Code's, for models that accept instructions in a conversation
			err = r.addInstruction(m, at)
		case "":
			err = fault.Missing(at+".role", "%s.role is required: user or assistant.", at)
		default:
			err = fault.Invalid(at+".role", "%s.role must be user or assistant. Instructions belong in system.", at)
		}
		if err != nil {
			return err
		}
	}
	return pending.check("messages")
}

// eachBlock calls read for each block of a content. A string is a block of text.
func eachBlock(content *openai.StringOr[[]block], at string, read func(b *block, at string) error) error {
	switch content.Kind {
	case jsontext.KindString:
		return read(&block{Type: "text", Text: &content.Text}, at)
	case jsontext.KindBeginArray:
	case jsontext.KindInvalid, jsontext.KindNull:
		return fault.Missing(at, "%s is required: a string or an array of blocks.", at)
	default:
		return fault.Invalid(at, "%s must be a string or an array of blocks.", at)
	}
	for i := range content.Value {
		b, here := &content.Value[i], at+"["+strconv.Itoa(i)+"]"
		if b.Type == "" {
			return fault.Missing(here+".type", "%s.type is required.", here)
		}
		if err := read(b, here); err != nil {
			return err
		}
	}
	return nil
}

func (b *block) text(at string) (string, error) {
	if b.Text == nil {
		return "", fault.Missing(at+".text", "%s.text is required: a string.", at)
	}
	return *b.Text, nil
}

// parts collects the parts of a chat message, and where each comes from.
type parts struct {
	version string
	list    []openai.Part
	origins []string
}

func (p *parts) add(part openai.Part, at string) {
	p.list = append(p.list, part)
	p.origins = append(p.origins, at)
}

// content returns a string if that is possible: not every server accepts parts.
func (p *parts) content() openai.Content {
	if len(p.list) == 1 && p.list[0].Text != nil {
		return openai.TextContent(*p.list[0].Text)
	}
	return openai.PartsContent(p.list)
}

func (r *Request) addUser(m *message, at string, pending *pendingUses) error {
	own := parts{version: r.version}
	err := eachBlock(&m.Content, at+".content", func(b *block, at string) error {
		if b.Type != "tool_result" {
			return own.addBlock(b, at)
		}
		return r.addToolResult(b, at, pending, &own)
	})
	if err != nil {
		return err
	}
	if err := pending.check(at); err != nil {
		return err
	}
	if len(own.list) > 0 {
		r.add(openai.Message{Role: "user", Content: own.content()}, origin{at: at, parts: own.origins})
	} else if m.Content.Kind == jsontext.KindBeginArray && len(m.Content.Value) == 0 {
		return fault.Invalid(at+".content", "%s.content must not be empty.", at)
	}
	return nil
}

func (r *Request) addInstruction(m *message, at string) error {
	var own parts
	if err := eachBlock(&m.Content, at+".content", own.addBlock); err != nil {
		return err
	}
	r.add(openai.Message{Role: "system", Content: own.content()}, origin{at: at, parts: own.origins})
	return nil
}

// addBlock adds a block that users may send.
func (p *parts) addBlock(b *block, at string) error {
	switch b.Type {
	case "text":
		if len(b.Citations) > 0 && p.version == withoutSampling {
			return fault.Invalid(at+".citations", "%s.citations must be empty in a user message.", at)
		}
		text, err := b.text(at)
		p.add(openai.TextPart(text), at)
		return err
	case "image":
		url, err := b.imageURL(at)
		p.add(openai.Part{Type: "image_url", ImageURL: &openai.ImageURL{URL: url}}, at+".source")
		return err
	case "document":
		return p.addDocument(b, at)
	}
	return unsupportedBlock(b.Type, at, "text, image, document or tool_result")
}

func unsupportedBlock(kind, at, allowed string) error {
	return fault.Invalid(at+".type", "%s.type must be %s. Only models of Anthropic's providers support %.60q.", at, allowed, kind)
}

var imageTypes = map[string][]string{ // and how their files begin
	"image/jpeg": {"\xff\xd8\xff"},
	"image/png":  {"\x89PNG\r\n\x1a\n"},
	"image/gif":  {"GIF87a", "GIF89a"},
	"image/webp": {"RIFF"},
}

// imageURL checks an image and returns it as a URL.
func (b *block) imageURL(at string) (string, error) {
	at += ".source"
	s := b.Source
	if s == nil {
		return "", fault.Missing(at, "%s is required: an object with type, media_type and data.", at)
	}
	switch s.Type {
	case "url":
		if !openai.HasScheme(s.URL, "https") {
			return "", fault.Invalid(at+".url", "%s.url must be an https URL.", at)
		}
		return s.URL, nil
	case "base64":
	default:
		return "", unsupportedSource(s, at, "base64 or url")
	}
	beginnings, known := imageTypes[s.MediaType]
	if !known {
		return "", fault.Invalid(at+".media_type", "%s.media_type must be image/jpeg, image/png, image/gif or image/webp.", at)
	}
	data, err := s.decode(at)
	if err != nil {
		return "", err
	}
	if !slices.ContainsFunc(beginnings, func(beginning string) bool { return bytes.HasPrefix(data, []byte(beginning)) }) {
		return "", fault.Invalid(at+".data", "%s.data is not an image of the type %s.", at, s.MediaType)
	}
	return "data:" + s.MediaType + ";base64," + s.Data, nil
}

func unsupportedSource(s *source, at, allowed string) error {
	if s.Type == "" {
		return fault.Missing(at+".type", "%s.type is required: %s.", at, allowed)
	}
	return fault.Invalid(at+".type", "%s.type must be %s. Only models of Anthropic's providers support %.40q.", at, allowed, s.Type)
}

func (s *source) decode(at string) ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(s.Data)
	if err != nil || len(data) == 0 {
		return nil, fault.Invalid(at+".data", "%s.data must be base64 and not empty.", at)
	}
	return data, nil
}

func (p *parts) addDocument(b *block, at string) error {
	here := at + ".source"
	s := b.Source
	if s == nil {
		return fault.Missing(here, "%s is required: an object with type, media_type and data.", here)
	}
	name := b.Title
	switch s.Type {
	case "base64":
		data, err := s.decode(here)
		if err != nil {
			return err
		}
		if s.MediaType != "application/pdf" {
			return fault.Invalid(here+".media_type", "%s.media_type must be application/pdf.", here)
		}
		if !bytes.Contains(data[:min(len(data), pdfHeaderWithin)], []byte("%PDF-")) {
			return fault.Invalid(here+".data", "%s.data is not a PDF document.", here)
		}
		if name == "" {
			name = "document.pdf"
		}
		p.add(openai.Part{Type: "file", File: &openai.File{Name: name, Data: "data:application/pdf;base64," + s.Data}}, here)
		return nil
	case "text":
		if s.MediaType != "text/plain" {
			return fault.Invalid(here+".media_type", "%s.media_type must be text/plain.", here)
		}
		p.add(openai.TextPart(titled(name, s.Data)), here)
		return nil
	case "content":
		if name != "" {
			p.add(openai.TextPart(name+":"), at)
		}
		return eachBlock(&s.Content, here+".content", p.addBlock)
	}
	return unsupportedSource(s, here, "base64, text or content")
}

// pdfHeaderWithin is where the header of a PDF file may begin.
const pdfHeaderWithin = 1024

func titled(title, text string) string {
	if title == "" {
		return text
	}
	return title + ":\n" + text
}
