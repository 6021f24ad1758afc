package openai

import (
	"bytes"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// chunk is what a stream needs to know of one of its chunks. It is used again
// for the next.
type chunk struct {
	object
	choices    int  // how many it has
	finished   bool // one of them says why it ended
	characters int  // of what the model said

	inner   bytes.Buffer
	decoder jsontext.Decoder
}

func (c *chunk) read(data []byte) error {
	c.choices, c.finished, c.characters = 0, false, 0
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
	c.choices++
	d := &c.decoder
	return members(d, func(name jsontext.Value) error {
		switch string(name) {
		case `"delta"`:
			return c.readDelta()
		case `"finish_reason"`:
			c.finished = c.finished || d.PeekKind() == '"'
		}
		return d.SkipValue()
	})
}

// readDelta counts what was said: text, reasoning and the calls of tools.
func (c *chunk) readDelta() error {
	d := &c.decoder
	return members(d, func(name jsontext.Value) error {
		switch string(name) {
		case `"content"`, `"refusal"`, `"reasoning_content"`, `"reasoning"`:
			return c.count()
		case `"tool_calls"`:
			return elements(d, func() error { return members(d, c.readCall) })
		case `"function_call"`:
			return members(d, c.readFunction)
		}
		return d.SkipValue()
	})
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
