package openai

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers/wire"
)

// chunk is a parsed chunk of a stream. It is reused for the next one.
type chunk struct {
	object
	choices    []choice
	characters int  // of the model's output
	hasOutput  bool // also if it has no characters

	choicesBuffer  bytes.Buffer
	choicesDecoder jsontext.Decoder
}

type choice struct {
	index    float64
	finished bool // it has a finish reason
}

// audioPerCharacter is how many bytes of base64 audio count as a character. Four characters
// are a token, and a token of OpenAI's models is 50 ms of 24,000 samples with 16 bits per second.
const audioPerCharacter = 800

func (c *chunk) read(data []byte) error {
	c.choices, c.characters, c.hasOutput = c.choices[:0], 0, false
	if err := c.parse(data); err != nil {
		return err
	}
	array := c.get("choices")
	if array == nil {
		return nil
	}
	c.choicesBuffer = *bytes.NewBuffer(array)
	c.choicesDecoder.Reset(&c.choicesBuffer, wire.Lenient)
	return eachElement(&c.choicesDecoder, c.readChoice)
}

func (c *chunk) readChoice() error {
	d := &c.choicesDecoder
	var next choice
	err := eachMember(d, func(name jsontext.Value) error {
		switch string(name) {
		case `"delta"`, `"message"`: // of a response that isn't streamed
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
	d := &c.choicesDecoder
	switch d.PeekKind() {
	case '{':
		return eachMember(d, c.countMember)
	case '[':
		return eachElement(d, c.count)
	case '"':
		value, err := d.ReadValue()
		if err == nil {
			c.hasOutput = c.hasOutput || len(value) > 2
			c.characters += countCharacters(value[1 : len(value)-1])
		}
		return err
	}
	return d.SkipValue()
}

func (c *chunk) countMember(name jsontext.Value) error {
	d := &c.choicesDecoder
	switch string(name) {
	case `"role"`, `"type"`, `"id"`:
		return d.SkipValue()
	case `"data"`:
		value, err := d.ReadValue()
		if value.Kind() == '"' { // audio
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
