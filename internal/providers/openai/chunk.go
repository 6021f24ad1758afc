package openai

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// chunk is a parsed chunk of a stream. It is reused for the next one.
type chunk struct {
	object
	choices    []choice
	characters int  // of the model's output
	hasOutput  bool // also if it has no characters

	source   []byte // of the last chunk that was parsed
	template bool   // it can stand for chunks that differ in their texts
	texts    []span // in the source
}

// span is the text of a string that may differ from chunk to chunk: the model's output, or one that
// is only forwarded.
type span struct {
	start, end int64
	output     bool
}

type choice struct {
	index    float64
	finished bool // it has a finish reason
}

// audioPerCharacter is how many bytes of base64 audio count as a character. Four characters
// are a token, and a token of OpenAI's models is 50 ms of 24,000 samples with 16 bits per second.
const audioPerCharacter = 800

// read parses a chunk, unless it differs from the last one only in its texts, as most chunks do.
func (c *chunk) read(data []byte) error {
	if c.template && c.readTexts(data) {
		return nil
	}
	c.resetChoices()
	c.texts, c.template = c.texts[:0], true
	c.source = append(c.source[:0], data...)
	err := c.parseEach(c.source, c.readMember)
	c.template = c.template && err == nil && c.get("usage").Kind() != '{'
	return err
}

// readTexts reports whether a chunk differs from the last one only in its texts, and counts its output.
func (c *chunk) readTexts(data []byte) bool {
	characters, hasOutput, from := 0, false, int64(0)
	for _, t := range c.texts {
		rest, same := bytes.CutPrefix(data, c.source[from:t.start])
		length := bytes.IndexByte(rest, '"')
		if !same || length < 0 || !isPlain(rest[:length]) {
			return false
		}
		if t.output {
			characters += countCharacters(rest[:length])
			hasOutput = hasOutput || length > 0
		}
		data, from = rest[length:], t.end
	}
	if !bytes.Equal(data, c.source[from:]) {
		return false
	}
	c.characters, c.hasOutput = characters, hasOutput
	return true
}

// isPlain reports whether the text of a JSON string is valid and has no escapes.
func isPlain(text []byte) bool {
	for _, b := range text {
		if b < ' ' || b == '\\' {
			return false
		}
	}
	return true
}

func (c *chunk) resetChoices() { c.choices, c.characters, c.hasOutput = c.choices[:0], 0, false }

func (c *chunk) readMember(name []byte) error {
	switch string(name) {
	case "choices":
		if c.get("choices") != nil { // of two the last counts
			c.resetChoices()
			c.template = false
		}
		return eachElement(&c.decoder, c.readChoice)
	case "error", "object": // say whether the chunk is an error
		return c.decoder.SkipValue()
	}
	if c.decoder.PeekKind() != '"' {
		return c.decoder.SkipValue()
	}
	_, err := c.readText(false)
	return err
}

// readText reads a string and notes where its text is.
func (c *chunk) readText(output bool) (text []byte, err error) {
	value, err := c.decoder.ReadValue()
	if err != nil {
		return nil, err
	}
	end := c.decoder.InputOffset() - 1
	c.texts = append(c.texts, span{end - int64(len(value)) + 2, end, output})
	return value[1 : len(value)-1], nil
}

func (c *chunk) readChoice() error {
	d := &c.decoder
	var next choice
	err := eachMember(d, func(name jsontext.Value) error {
		switch string(name) {
		case `"delta"`, `"message"`, `"text"`: // of a stream, a response and a text completion
			return c.count()
		case `"index"`:
			value, err := d.ReadValue()
			next.index, _ = strconv.ParseFloat(string(value), 64)
			return err
		case `"finish_reason"`:
			value, err := d.ReadValue()
			next.finished = next.finished || value.Kind() == '"' && len(value) > 2 // some servers send "" instead of null
			return err
		}
		return d.SkipValue()
	})
	c.choices = append(c.choices, next)
	return err
}

// count adds the strings in the next value, which are the output: text, reasoning, audio, and the
// names and arguments of tool calls.
func (c *chunk) count() error {
	d := &c.decoder
	switch d.PeekKind() {
	case '{':
		return eachMember(d, c.countMember)
	case '[':
		return eachElement(d, c.count)
	case '"':
		text, err := c.readText(true)
		c.hasOutput = c.hasOutput || len(text) > 0
		c.characters += countCharacters(text)
		return err
	}
	return d.SkipValue()
}

func (c *chunk) countMember(name jsontext.Value) error {
	d := &c.decoder
	switch string(name) {
	case `"role"`, `"type"`, `"id"`:
		return d.SkipValue()
	case `"data"`:
		value, err := d.ReadValue()
		if value.Kind() == '"' { // audio
			c.template = false
			c.hasOutput = c.hasOutput || len(value) > 2
			c.characters += len(value) / audioPerCharacter
		}
		return err
	}
	return c.count()
}

// countCharacters counts the characters of a JSON string without its quotes.
func countCharacters(quoted []byte) (n int) {
	for i := 0; i < len(quoted); i++ {
		switch {
		case quoted[i] == '\\' && i+1 < len(quoted) && quoted[i+1] == 'u':
			i += 5
		case quoted[i] == '\\':
			i++
		case !utf8.RuneStart(quoted[i]):
			continue
		}
		n++
	}
	return n
}
