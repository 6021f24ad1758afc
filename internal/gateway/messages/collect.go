package messages

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

// WithID returns a message, or a message_start event, with another ID.
func WithID(message []byte, id string) []byte {
	if at, found := jsonbody.FindMember(message, "message"); found {
		return jsonbody.ReplaceMember(message, "message", string(WithID(message[at.Start:at.End], id)))
	}
	quoted, _ := jsontext.AppendQuote(nil, id)
	return jsonbody.ReplaceMember(message, "id", string(quoted))
}

// AsParam returns a message of the model as the next request has it.
func AsParam(message []byte) (jsontext.Value, error) {
	at, found := jsonbody.FindMember(message, "content")
	if content := jsontext.Value(message[at.Start:at.End]); found && content.Kind() == jsontext.KindBeginArray {
		return param(content), nil
	}
	return nil, fault.New(fault.Upstream, "The model provider returned a message without content.")
}

func param(content jsontext.Value) jsontext.Value {
	return fmt.Appendf(nil, `{"role":"assistant","content":%s}`, content)
}

// emptyParam is a message without content. Anthropic rejects those.
var emptyParam = param(jsontext.Value("[]"))

// Collector assembles the events of a streamed message. What it doesn't know makes the message unusable, because
// a thread must not go on from another message than the client's.
type Collector struct {
	blocks []*collectedBlock
	broken bool
	ended  bool
}

type collectedBlock struct {
	fields map[string]jsontext.Value
	texts  map[string][]byte // that arrive in pieces
	input  []byte            // JSON that arrives in pieces
}

// Add adds an event.
func (c *Collector) Add(data []byte) {
	var e struct {
		Type  string                    `json:"type"`
		Index int                       `json:"index"`
		Block map[string]jsontext.Value `json:"content_block"`
		Delta map[string]jsontext.Value `json:"delta"`
	}
	if json.Unmarshal(data, &e, lenient) != nil {
		c.broken = true
		return
	}
	switch e.Type {
	case contentBlockStart:
		c.broken = c.broken || e.Index != len(c.blocks) || e.Block == nil
		c.blocks = append(c.blocks, &collectedBlock{fields: e.Block, texts: map[string][]byte{}})
	case contentBlockDelta:
		c.broken = c.broken || len(c.blocks) == 0 || e.Index != len(c.blocks)-1 || !c.blocks[e.Index].add(e.Delta)
	case MessageStop:
		c.ended = true
	}
}

// deltaFields are what the known deltas have. Others make the message unusable.
var deltaFields = map[string][]string{
	"text_delta": {"text"}, "thinking_delta": {"thinking"}, "input_json_delta": {"partial_json"}, "citations_delta": {"citation"},
	"signature_delta": {"signature"}, "compaction_delta": {"content", "encrypted_content"},
}

// add adds what a delta adds to a block. It reports whether it knows the delta.
func (b *collectedBlock) add(delta map[string]jsontext.Value) (known bool) {
	kind := textOf(delta["type"])
	for _, name := range deltaFields[kind] {
		known = true
		value, found := delta[name]
		switch {
		case !found:
		case name == "text" || name == "thinking":
			text, begun := b.texts[name]
			if !begun {
				text = []byte(textOf(b.fields[name]))
			}
			b.texts[name] = append(text, textOf(value)...)
		case name == "partial_json":
			b.input = append(b.input, textOf(value)...)
		case name == "citation":
			var list []jsontext.Value
			_ = json.Unmarshal(b.fields["citations"], &list, lenient) // null at the start
			b.fields["citations"] = array(append(list, value))
		default:
			b.fields[name] = value
		}
	}
	return known
}

// Param returns the message as the next request has it, or nil if it isn't whole.
func (c *Collector) Param() jsontext.Value {
	if c.broken || !c.ended {
		return nil
	}
	blocks := make([]jsontext.Value, len(c.blocks))
	for i, b := range c.blocks {
		for name, text := range b.texts {
			b.fields[name], _ = jsontext.AppendQuote(nil, text) // invalid UTF-8 is replaced
		}
		if len(b.input) > 0 {
			b.fields["input"] = b.input
		}
		var err error
		if blocks[i], err = json.Marshal(b.fields, json.Deterministic(true), lenient); err != nil {
			return nil
		}
	}
	return param(array(blocks))
}
