package openai

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// chunk is what a stream needs to know of one of its chunks. It is used again
// for the next.
type chunk struct {
	object
	choices    []choice
	characters int  // of what the model said
	spoken     bool // it said something, be it nothing with characters

	inner   bytes.Buffer
	decoder jsontext.Decoder
}

type choice struct {
	index    float64
	finished bool // it says why it ended
}

// soundPerCharacter is how much base64 of sound counts as a character, four of
// which are a token: OpenAI's models make a token of 50 ms, and stream samples
// of 16 bits, 24,000 in a second.
const soundPerCharacter = 800

func (c *chunk) read(data []byte) error {
	c.choices, c.characters, c.spoken = c.choices[:0], 0, false
	if err := c.parse(data); err != nil {
		return err
	}
	list := c.get("choices")
	if list == nil {
		return nil
	}
	c.inner = *bytes.NewBuffer(list)
	c.decoder.Reset(&c.inner, lenient...)
	return elements(&c.decoder, c.readChoice)
}

func (c *chunk) readChoice() error {
	d := &c.decoder
	var one choice
	err := members(d, func(name jsontext.Value) error {
		switch string(name) {
		case `"delta"`:
			return c.readDelta()
		case `"index"`:
			value, err := d.ReadValue()
			one.index, _ = strconv.ParseFloat(string(value), 64) // 0 for what is none
			return err
		case `"finish_reason"`:
			value, err := d.ReadValue()
			one.finished = one.finished || value.Kind() == '"' && !empty(value) // some say "" where others say null
			return err
		}
		return d.SkipValue()
	})
	c.choices = append(c.choices, one)
	return err
}

// readDelta counts what was said: text, reasoning, sound and the calls of
// tools. What nobody here knows was at least said.
func (c *chunk) readDelta() error {
	d := &c.decoder
	return members(d, func(name jsontext.Value) error {
		switch string(name) {
		case `"role"`:
			return d.SkipValue()
		case `"content"`, `"refusal"`, `"reasoning_content"`, `"reasoning"`:
			return c.count()
		case `"tool_calls"`:
			return elements(d, func() error { return members(d, c.readCall) })
		case `"function_call"`:
			return members(d, c.readFunction)
		case `"audio"`:
			return members(d, c.readSound)
		}
		return c.notice()
	})
}

func (c *chunk) readSound(name jsontext.Value) error {
	switch string(name) {
	case `"transcript"`:
		return c.count()
	case `"data"`:
		value, err := c.decoder.ReadValue()
		c.characters += len(value) / soundPerCharacter
		c.spoken = c.spoken || !empty(value)
		return err
	}
	return c.decoder.SkipValue()
}

// notice sees whether the value that comes next says anything.
func (c *chunk) notice() error {
	value, err := c.decoder.ReadValue()
	c.spoken = c.spoken || !empty(value)
	return err
}

// empty is so of what holds nothing, and of numbers and truths, which are about
// an answer and no part of it.
func empty(value jsontext.Value) bool {
	switch value.Kind() {
	case '"', '[', '{':
		return len(bytes.TrimSpace(value[1:len(value)-1])) == 0
	}
	return true
}

func (c *chunk) readCall(name jsontext.Value) error {
	if string(name) == `"function"` {
		return members(&c.decoder, c.readFunction)
	}
	return c.decoder.SkipValue()
}

func (c *chunk) readFunction(name jsontext.Value) error {
	switch string(name) {
	case `"name"`, `"arguments"`:
		return c.count()
	}
	return c.decoder.SkipValue()
}

// count adds the characters of the value that comes next. Mistral's content
// may be a list of parts, in which case its brackets count as well.
func (c *chunk) count() error {
	value, err := c.decoder.ReadValue()
	if err != nil || value.Kind() == 'n' {
		return err
	}
	if value.Kind() == '"' {
		value = value[1 : len(value)-1]
	}
	c.spoken = c.spoken || len(value) > 0
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
