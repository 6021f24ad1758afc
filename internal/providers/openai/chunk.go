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
			return c.readDelta()
		case `"index"`:
			value, err := d.ReadValue()
			next.index, _ = strconv.ParseFloat(string(value), 64)
			return err
		case `"finish_reason"`:
			value, err := d.ReadValue()
			next.finished = next.finished || value.Kind() == '"' && !isEmpty(value) // some servers send "" instead of null
			return err
		}
		return d.SkipValue()
	})
	c.choices = append(c.choices, next)
	return err
}

// readDelta counts the output: text, reasoning, audio and tool calls. Unknown
// fields count as output without characters.
func (c *chunk) readDelta() error {
	d := &c.choicesDecoder
	return eachMember(d, func(name jsontext.Value) error {
		switch string(name) {
		case `"role"`:
			return d.SkipValue()
		case `"content"`, `"refusal"`, `"reasoning_content"`, `"reasoning"`:
			return c.count()
		case `"tool_calls"`:
			return eachElement(d, func() error { return eachMember(d, c.readToolCall) })
		case `"function_call"`:
			return eachMember(d, c.readFunction)
		case `"audio"`:
			return eachMember(d, c.readAudio)
		}
		value, err := d.ReadValue()
		c.hasOutput = c.hasOutput || !isEmpty(value)
		return err
	})
}

func (c *chunk) readAudio(name jsontext.Value) error {
	switch string(name) {
	case `"transcript"`:
		return c.count()
	case `"data"`:
		value, err := c.choicesDecoder.ReadValue()
		c.characters += len(value) / audioPerCharacter
		c.hasOutput = c.hasOutput || !isEmpty(value)
		return err
	}
	return c.choicesDecoder.SkipValue()
}

// isEmpty reports whether a value is empty. Numbers and booleans are: they are
// about the output and not part of it.
func isEmpty(value jsontext.Value) bool {
	switch value.Kind() {
	case '"', '[', '{':
		return len(bytes.TrimSpace(value[1:len(value)-1])) == 0
	}
	return true
}

func (c *chunk) readToolCall(name jsontext.Value) error {
	if string(name) == `"function"` {
		return eachMember(&c.choicesDecoder, c.readFunction)
	}
	return c.choicesDecoder.SkipValue()
}

func (c *chunk) readFunction(name jsontext.Value) error {
	switch string(name) {
	case `"name"`, `"arguments"`:
		return c.count()
	}
	return c.choicesDecoder.SkipValue()
}

// count adds the characters of the next value. Mistral's content may be an array
// of parts, whose brackets then count, too.
func (c *chunk) count() error {
	value, err := c.choicesDecoder.ReadValue()
	if err != nil || value.Kind() == 'n' {
		return err
	}
	if value.Kind() == '"' {
		value = value[1 : len(value)-1]
	}
	c.hasOutput = c.hasOutput || len(value) > 0
	for i := 0; i < len(value); i++ {
		switch {
		case value[i] == '\\' && i+1 < len(value) && value[i+1] == 'u':
			i += 5
		case value[i] == '\\':
			i++
		case !utf8.RuneStart(value[i]):
			continue
		}
		c.characters++
	}
	return nil
}
