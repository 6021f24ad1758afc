package responses

import (
	"cmp"
	"strings"

	"turnpike/internal/fault"
)

// Stream turns the chunks of a chat into the events of a response. It is not
// safe for use by several goroutines.
type Stream struct {
	request  *Request
	response *response // nil before the first chunk
	items    []*streamItem
	calls    map[count]*streamItem // by their index in the chat
	speaking *streamItem           // the message that is being written, or nil
	finish   text
	usage    *usage
	sequence int
	ended    bool
	ready    []Event
	err      error
}

// streamItem is an item of the output while it is written.
type streamItem struct {
	index int // in the output
	id    string
	added bool // it was announced
	done  bool

	parts []*streamPart // of a message

	isCall    bool
	chatID    string // of a call, as the chat has it
	callID    string // as we gave it out
	name      string
	arguments strings.Builder
	sent      int // bytes of the arguments that were sent
}

type streamPart struct {
	refusal  bool
	text     strings.Builder
	logprobs []logprob
}

// NewStream makes a stream for the request's answer.
func (r *Request) NewStream() *Stream {
	return &Stream{request: r, calls: map[count]*streamItem{}}
}

// Push takes a chunk of the chat and returns the events that follow from it.
// After an error the stream is to be ended with Fail.
func (s *Stream) Push(chunk []byte) ([]Event, error) {
	if s.ended {
		return nil, nil
	}
	c, err := readCompletion(chunk)
	if err != nil {
		return nil, err
	}
	if u := c.Usage.response(); u != nil {
		s.usage = u
	}
	if s.response == nil && c.ID == "" && len(c.Choices) == 0 {
		return nil, nil // Azure's first, which says nothing of the answer
	}
	s.begin(c)
	s.response.tier(c)
	if choice := c.first(); choice != nil {
		s.take(choice)
	}
	return s.events(), s.problem()
}

// End returns the last events, after the last chunk.
func (s *Stream) End() []Event {
	if s.ended {
		return nil
	}
	s.begin(&completion{})
	cut := s.finish == "length" || s.finish == "content_filter"
	for i, item := range s.items {
		s.close(item, cut && i == len(s.items)-1)
	}
	s.ended = true
	s.response.Output = s.output()
	s.response.finish(s.finish)
	s.response.Usage = s.usage
	s.sendResponse("response." + s.response.Status)
	return s.events()
}

// Fail returns the events of a stream that broke. What was written so far is
// in the last of them.
func (s *Stream) Fail(code, message string) []Event {
	if s.ended {
		return nil
	}
	s.begin(&completion{})
	s.ended = true
	h := s.next("error")
	s.send(h, errorEvent{head: h, Code: code, Message: message, Error: errorObject{
		Type: fault.FamilyOf(fault.Code(code)).Type, Code: code, Message: message,
	}})
	s.response.Output = s.output()
	s.response.Status = failed
	s.response.Error = &responseError{Code: code, Message: message}
	s.response.Usage = s.usage
	s.sendResponse("response.failed")
	return s.events()
}

func (s *Stream) events() []Event {
	out := s.ready
	s.ready = nil
	return out
}

func (s *Stream) problem() error {
	if s.err == nil {
		return nil
	}
	return fault.New(fault.Internal, "the answer could not be written").Because(s.err)
}

// begin announces the response with the first chunk, whose id it takes.
func (s *Stream) begin(c *completion) {
	if s.response != nil {
		return
	}
	s.response = s.request.response(c)
	s.sendResponse("response.created")
	s.sendResponse("response.in_progress")
}

func (s *Stream) sendResponse(kind string) {
	h := s.next(kind)
	s.send(h, responseEvent{h, s.response})
}

func (s *Stream) take(c *choice) {
	if c.FinishReason != "" {
		s.finish = c.FinishReason
	}
	s.say(string(c.Delta.Content), c.logprobs(), false)
	s.say(string(c.Delta.Refusal), nil, true)
	for i := range c.Delta.ToolCalls {
		s.call(&c.Delta.ToolCalls[i], count(i))
	}
}

// say writes on with the message, or begins one.
func (s *Stream) say(words string, logprobs []logprob, refusal bool) {
	if words == "" {
		return
	}
	if s.speaking == nil {
		s.speaking = s.newItem("msg")
		s.announce(s.speaking)
	}
	item := s.speaking
	p := item.lastPart()
	if p == nil || p.refusal != refusal {
		s.closePart(item)
		p = &streamPart{refusal: refusal}
		item.parts = append(item.parts, p)
		s.sendPart("response.content_part.added", item)
	}
	p.text.WriteString(words)
	p.logprobs = append(p.logprobs, logprobs...)
	at := len(item.parts) - 1
	if refusal {
		h := s.next("response.refusal.delta")
		s.send(h, refusalDelta{h, item.place(), at, words})
		return
	}
	h := s.next("response.output_text.delta")
	s.send(h, textDelta{h, item.place(), at, words, logprobs})
}

// call writes on with a call, or begins one. Calls may come interleaved, so
// all of them stay open until the end.
func (s *Stream) call(delta *chatCall, position count) {
	at := position
	if delta.Index != nil {
		at = *delta.Index
	}
	id := string(delta.ID)
	item := s.calls[at]
	// Another id means another call: not every server counts them.
	if item == nil || id != "" && item.chatID != "" && item.chatID != id {
		if s.speaking != nil {
			s.close(s.speaking, false)
			s.speaking = nil
		}
		item = s.newItem("fc")
		item.isCall = true
		s.calls[at] = item
	}
	if item.chatID == "" {
		item.chatID = id
	}
	if item.name == "" {
		item.name = string(delta.Function.Name)
	}
	item.arguments.WriteString(string(delta.Function.Arguments))
	if item.name != "" { // without which nobody can use it
		s.sendArguments(item)
	}
}

// sendArguments sends those that were not sent yet.
func (s *Stream) sendArguments(item *streamItem) {
	s.announce(item)
	if unsent := item.arguments.String()[item.sent:]; unsent != "" {
		item.sent += len(unsent)
		h := s.next("response.function_call_arguments.delta")
		s.send(h, argumentsDelta{h, item.place(), unsent})
	}
}

func (s *Stream) newItem(kind string) *streamItem {
	n := len(s.items)
	item := &streamItem{index: n, id: itemID(kind, s.response.ID, n)}
	s.items = append(s.items, item)
	return item
}

// announce sends the event of a new item, once.
func (s *Stream) announce(item *streamItem) {
	if item.added {
		return
	}
	item.added = true
	empty := messageItem(item.id, inProgress, nil)
	if item.isCall {
		item.callID = cmp.Or(item.chatID, itemID("call", s.response.ID, item.index))
		empty = callItem(item.id, inProgress, item.callID, item.name, "")
	}
	h := s.next("response.output_item.added")
	s.send(h, itemEvent{h, item.index, empty})
}

// close sends the last events of an item.
func (s *Stream) close(item *streamItem, cut bool) {
	if item.done {
		return
	}
	item.done = true
	if item.isCall {
		s.sendArguments(item)
		h := s.next("response.function_call_arguments.done")
		s.send(h, argumentsDone{h, item.place(), item.name, item.arguments.String()})
	} else {
		s.closePart(item)
	}
	status := completed
	if cut {
		status = incomplete
	}
	h := s.next("response.output_item.done")
	s.send(h, itemEvent{h, item.index, item.output(status)})
}

// closePart sends the last events of a message's part, if it has one.
func (s *Stream) closePart(item *streamItem) {
	p := item.lastPart()
	if p == nil {
		return
	}
	at := len(item.parts) - 1
	if p.refusal {
		h := s.next("response.refusal.done")
		s.send(h, refusalDone{h, item.place(), at, p.text.String()})
	} else {
		h := s.next("response.output_text.done")
		s.send(h, textDone{h, item.place(), at, p.text.String(), p.logprobs})
	}
	s.sendPart("response.content_part.done", item)
}

func (s *Stream) sendPart(kind string, item *streamItem) {
	h := s.next(kind)
	s.send(h, partEvent{h, item.place(), len(item.parts) - 1, item.lastPart().output()})
}

// output is all that was announced so far.
func (s *Stream) output() []outputItem {
	out := make([]outputItem, 0, len(s.items))
	for _, item := range s.items {
		if !item.added {
			break
		}
		status := completed
		if !item.done {
			status = incomplete
		}
		out = append(out, item.output(status))
	}
	return out
}

func (i *streamItem) place() place { return place{i.id, i.index} }

func (i *streamItem) lastPart() *streamPart {
	if len(i.parts) == 0 {
		return nil
	}
	return i.parts[len(i.parts)-1]
}

func (i *streamItem) output(status string) outputItem {
	if i.isCall {
		return callItem(i.id, status, i.callID, i.name, i.arguments.String())
	}
	var parts []outputPart
	for _, p := range i.parts {
		parts = append(parts, p.output())
	}
	return messageItem(i.id, status, parts)
}

func (p *streamPart) output() outputPart {
	if p.refusal {
		return refusalOutput(p.text.String())
	}
	return textOutput(p.text.String(), p.logprobs)
}
