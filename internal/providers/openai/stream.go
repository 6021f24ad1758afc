package openai

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// stream passes chunks on as they come, except for their usage, which it keeps
// until the end: servers send it once or with every chunk, alone or beside
// content, and it is to leave once and alone.
type stream struct {
	provider *Provider
	events   *wire.Events
	chunk    chunk
	ended    []bool // of each choice, whether it said why
	finished bool   // one did
	done     bool   // the provider has said all
	err      error

	usage      providers.Usage // what the provider said last
	usageChunk []byte          // the chunk that said so; nil if none did

	spoken     int64 // chunks with content
	characters int64 // in them
}

// maxChoices is how many a call can have.
const maxChoices = 128

func newStream(p *Provider, resp *http.Response) *stream {
	return &stream{provider: p, events: wire.NewEvents(resp)}
}

// Next returns the next chunk, in memory of its own. The stream has failed for
// good after an error. One whose provider does not say what was used, or says
// zero, ends without a usage chunk.
func (s *stream) Next() (providers.Chunk, error) {
	for s.err == nil {
		data, err := s.read()
		switch {
		case err == io.EOF:
			s.err = io.EOF
			if s.reliable() {
				return s.lastChunk()
			}
		case err != nil:
			s.err = err
		case data != nil:
			return providers.Chunk{Data: data, Whole: s.whole()}, nil
		}
	}
	return providers.Chunk{}, s.err
}

// SoFar is what the provider said last. If it has said nothing, the output is
// an estimate, by which four characters are a token and no chunk that says
// something has less than one, and the input is unknown: zero.
func (s *stream) SoFar() providers.Usage {
	if s.reliable() {
		return s.usage
	}
	u := s.usage
	u.OutputTokens = max(s.spoken, (s.characters+3)/4)
	return u
}

// reliable reports whether the provider said what was used: a count without
// output is none if there was some, but the beginning of one.
func (s *stream) reliable() bool {
	return s.usageChunk != nil && (s.usage.OutputTokens > 0 || s.characters == 0)
}

// Close ends the upstream call, or keeps the connection if it has ended.
func (s *stream) Close() error {
	if s.done {
		s.events.Drain()
	}
	return s.events.Close()
}

// read takes one event, and returns what of it is for the client, if anything.
func (s *stream) read() ([]byte, error) {
	name, data, err := s.events.Next()
	// The last event of some servers lacks the empty line after it.
	if string(data) == "[DONE]" && (err == nil || kindOf(err) == providers.KindCut) {
		s.done = true
		return nil, io.EOF
	}
	if err == io.EOF && !s.finished {
		return nil, &providers.Failure{Kind: providers.KindCut, Err: errors.New("the stream ended before the answer did")}
	}
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	if err := s.chunk.read(data); err != nil {
		return nil, protocol("a chunk is no JSON object: %w", err)
	}
	if c, failed := complaintIn(&s.chunk.object); failed {
		return nil, c.failure(0, s.provider.secrets)
	}
	if name == "error" {
		return nil, readComplaint(&s.chunk.object).failure(0, s.provider.secrets)
	}
	return s.take(data), nil
}

// whole reports whether all choices have ended.
func (s *stream) whole() bool { return s.finished && !slices.Contains(s.ended, false) }

// see notes how far a choice is.
func (s *stream) see(c choice) {
	at := int(min(max(0, c.index), maxChoices-1))
	for len(s.ended) <= at {
		s.ended = append(s.ended, false)
	}
	s.ended[at] = s.ended[at] || c.finished
	s.finished = s.finished || c.finished
}

// take counts a chunk and takes its usage out of it.
func (s *stream) take(data []byte) []byte {
	c := &s.chunk
	for _, choice := range c.choices {
		s.see(choice)
	}
	s.characters += int64(c.characters)
	if c.spoken {
		s.spoken++
	}
	value := c.get("usage")
	if value.Kind() != '{' {
		return oneLine(bytes.Clone(data))
	}
	if usage, ok := c.usage(); ok {
		s.usage = usage
		s.usageChunk = append(s.usageChunk[:0], data...)
	}
	if len(c.choices) == 0 {
		return nil
	}
	c.set("usage", "null") // as OpenAI has it on a chunk with content
	return oneLine(c.bytes())
}

// lastChunk says what was used, and nothing else.
func (s *stream) lastChunk() (providers.Chunk, error) {
	var o object
	if err := o.parse(s.usageChunk); err != nil {
		return providers.Chunk{}, err
	}
	o.set("choices", "[]")
	usage := s.usage
	return providers.Chunk{Data: oneLine(o.bytes()), Usage: &usage}, nil
}

// oneLine makes a chunk fit behind one "data:". Outside of its strings, which
// have no line ends in them, JSON does not mind.
func oneLine(data []byte) []byte {
	for i, c := range data {
		if c == '\n' || c == '\r' {
			data[i] = ' '
		}
	}
	return data
}

func kindOf(err error) providers.Kind {
	var f *providers.Failure
	if errors.As(err, &f) {
		return f.Kind
	}
	return ""
}
