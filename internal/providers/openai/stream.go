package openai

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// stream forwards chunks unchanged, except for their usage. Servers send it once or with every
// chunk, alone or next to content. The stream sends it once, alone and at the end.
type stream struct {
	provider    *Provider
	events      *wire.Events
	chunk       chunk
	finished    []bool // by index of the choice
	anyFinished bool   // of the choices
	done        bool   // the provider has sent [DONE]
	err         error

	usage      providers.Usage // the last one
	usageChunk []byte          // the chunk that had it; nil if none did
	usageAlone bool            // that chunk has no choices

	outputChunks int64
	characters   int64
}

// maxChoices is OpenAI's limit.
const maxChoices = 128

// Next returns the next chunk. After an error it returns that error again. If the
// provider counts no tokens, or none at all, there is no usage chunk.
func (s *stream) Next() (providers.Chunk, error) {
	for s.err == nil {
		data, err := s.read()
		switch {
		case err == io.EOF:
			s.err = io.EOF
			if s.hasUsage() {
				return s.lastChunk()
			}
		case err != nil:
			s.err = err
		case data != nil:
			return providers.Chunk{Data: data, Whole: s.anyFinished && !slices.Contains(s.finished, false)}, nil
		}
	}
	return providers.Chunk{}, s.err
}

// SoFar returns the provider's last count. If there is none, the output is an estimate, with four
// characters per token and at least one token per chunk, and the input is unknown: zero.
func (s *stream) SoFar() providers.Usage {
	u := s.usage
	if !s.hasUsage() {
		u.OutputTokens = max(s.outputChunks, (s.characters+3)/4)
	}
	return u
}

// hasUsage reports whether the provider has counted the tokens. A count without
// output is only the start of one if there was output.
func (s *stream) hasUsage() bool {
	return s.usageChunk != nil && (s.usage.OutputTokens > 0 || s.characters == 0)
}

// Close ends the request, and keeps the connection if the stream has ended.
func (s *stream) Close() error {
	if s.done {
		s.events.Drain()
	}
	return s.events.Close()
}

func (s *stream) read() ([]byte, error) {
	name, data, err := s.events.Next()
	// The last event of some servers lacks the empty line after it.
	if string(data) == "[DONE]" && (err == nil || isCut(err)) {
		s.done = true
		return nil, io.EOF
	}
	if err == io.EOF && !s.anyFinished {
		return nil, &providers.Failure{Kind: providers.KindCut, Err: errors.New("the stream ended before the response")}
	}
	if err != nil || len(bytes.TrimSpace(data)) == 0 {
		return nil, err
	}
	if err := s.chunk.read(data); err != nil {
		return nil, wire.ProtocolFailure("a chunk isn't a JSON object: %w", err)
	}
	if e, failed := findError(&s.chunk.object); failed {
		return nil, e.failure(0, s.provider.secrets())
	}
	if name == "error" {
		return nil, readError(&s.chunk.object).failure(0, s.provider.secrets())
	}
	return s.forward(data), nil
}

func (s *stream) track(c choice) {
	i := int(min(max(0, c.index), maxChoices-1))
	for len(s.finished) <= i {
		s.finished = append(s.finished, false)
	}
	s.finished[i] = s.finished[i] || c.finished
	s.anyFinished = s.anyFinished || c.finished
}

func (s *stream) forward(data []byte) []byte {
	c := &s.chunk
	for _, choice := range c.choices {
		s.track(choice)
	}
	s.characters += int64(c.characters)
	if c.hasOutput {
		s.outputChunks++
	}
	if c.get("usage").Kind() != '{' {
		return oneLine(data)
	}
	if usage, ok := c.usage(); ok {
		s.usage = usage
		s.usageChunk = append(s.usageChunk[:0], data...)
		s.usageAlone = string(c.get("choices")) == "[]"
	}
	if len(c.choices) == 0 {
		return nil
	}
	c.set("usage", "null") // as in OpenAI's chunks with content
	return oneLine(c.bytes())
}

func (s *stream) lastChunk() (providers.Chunk, error) {
	data := s.usageChunk
	if !s.usageAlone {
		var o object
		if err := o.parse(data); err != nil {
			return providers.Chunk{}, err
		}
		o.set("choices", "[]")
		data = o.bytes()
	}
	usage := s.usage
	return providers.Chunk{Data: oneLine(data), Usage: &usage}, nil
}

// oneLine makes a chunk fit behind one "data:". Line ends in JSON are always outside of strings.
func oneLine(data []byte) []byte {
	if bytes.IndexByte(data, '\n') < 0 && bytes.IndexByte(data, '\r') < 0 {
		return data
	}
	for i, c := range data {
		if c == '\n' || c == '\r' {
			data[i] = ' '
		}
	}
	return data
}

func isCut(err error) bool {
	var f *providers.Failure
	return errors.As(err, &f) && f.Kind == providers.KindCut
}
