package responses

import (
	"cmp"
	"strings"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
)

// Stream translates chunks of a chat completion to events of a response. It is not safe for
// concurrent use.
type Stream struct {
	request  *Request
	response *response // nil before the first chunk
	items    []*streamItem
	calls    map[count]*streamItem // by their index in the completion
	message  *streamItem           // the message in progress, or nil
	finish   text                  // the finish reason
	usage    *usage
	summary  strings.Builder // of a conversation that is compacted
	sequence int
	ended    bool
	ready    []Event
	err      error
}

type streamItem struct {
	index int // in the output
	id    string
	added bool // output_item.added was sent
	done  bool

	parts []*streamPart // of a message

	isCall    bool
	tool      toolRef
	input     inputReader // of a custom tool
	chatID    string      // the ID of a call in the completion
	callID    string      // the ID that was sent
	name      string
	arguments strings.Builder
	sent      int // bytes of the arguments
}

type streamPart struct {
	refusal  bool
	text     strings.Builder
	logprobs []openai.Logprob
}

// NewStream returns a stream for the response.
func (r *Request) NewStream() *Stream {
	return &Stream{request: r, calls: map[count]*streamItem{}}
}

// Push translates a chunk. After an error, end the stream with Fail.
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
		return nil, nil // Azure's first chunk has only filter results
	}
	s.start(c)
	s.response.setServiceTier(c)
	if choice := c.firstChoice(); choice != nil {
		s.applyChoice(choice)
	}
	return s.takeEvents(), s.encodingFault()
}

// End returns the last events, after the last chunk.
func (s *Stream) End() []Event {
	if s.ended {
		return nil
	}
	s.start(&completion{})
	cut := s.finish == "length" || s.finish == "content_filter"
	for i, item := range s.items {
		s.closeItem(item, cut && i == len(s.items)-1)
	}
	s.ended = true
	s.response.Output = s.output()
	if s.request.compacting {
		s.sendSummary()
	}
	s.response.finish(s.finish)
	s.response.CompletedAt = s.request.completedAt()
	s.response.Usage = s.usage
	s.sendResponse("response." + s.response.Status)
	return s.takeEvents()
}

// sendSummary sends the item that replaces the conversation.
func (s *Stream) sendSummary() {
	item := compactionOutput(itemID("cmp", s.response.ID, 0), s.summary.String())
	s.response.Output = []outputItem{item}
	s.send(event{Type: "response.output_item.added", OutputIndex: new(0), Item: &item})
	s.send(event{Type: "response.output_item.done", OutputIndex: new(0), Item: &item})
}

// Fail returns the last events of a failed stream. The final one has the output so far.
func (s *Stream) Fail(code, message string) []Event {
	if s.ended {
		return nil
	}
	s.start(&completion{})
	s.ended = true
	s.send(errorEvent(code, message))
	s.response.Output = s.output()
	s.response.Status = failed
	s.response.Error = &responseError{Code: openAIErrorCode(code), Message: message}
	s.response.Usage = s.usage
	s.sendResponse("response.failed")
	return s.takeEvents()
}

func (s *Stream) takeEvents() []Event {
	out := s.ready
	s.ready = nil
	return out
}

func (s *Stream) encodingFault() error {
	if s.err == nil {
		return nil
	}
	return fault.New(fault.Internal, "The response could not be encoded.").Because(s.err)
}

// start announces the response with the first chunk, whose ID it takes.
func (s *Stream) start(c *completion) {
	if s.response != nil {
		return
	}
	s.response = s.request.newResponse(c)
	s.sendResponse("response.created")
	s.sendResponse("response.in_progress")
}

func (s *Stream) sendResponse(kind string) {
	s.send(event{Type: kind, Response: s.response})
}

func (s *Stream) applyChoice(c *choice) {
	if c.FinishReason != "" {
		s.finish = c.FinishReason
	}
	s.appendText(string(c.Delta.Content), c.Logprobs.Content, false)
	s.appendText(string(c.Delta.Refusal), nil, true)
	for i := range c.Delta.ToolCalls {
		s.appendCall(&c.Delta.ToolCalls[i], count(i))
	}
}

func (s *Stream) appendText(delta string, logprobs []openai.Logprob, refusal bool) {
	if delta == "" {
		return
	}
	if s.request.compacting {
		s.summary.WriteString(delta)
		return
	}
	if s.message == nil {
		s.message = s.newItem()
		s.announce(s.message)
	}
	item := s.message
	p := item.lastPart()
	if p == nil || p.refusal != refusal {
		s.closePart(item)
		p = &streamPart{refusal: refusal}
		item.parts = append(item.parts, p)
		s.sendPart(item, event{Type: "response.content_part.added", Part: p.output()})
	}
	p.text.WriteString(delta)
	p.logprobs = append(p.logprobs, logprobs...)
	if refusal {
		s.sendPart(item, event{Type: "response.refusal.delta", Delta: &delta})
	} else {
		s.sendPart(item, event{Type: "response.output_text.delta", Delta: &delta, Logprobs: notNil(logprobs)})
	}
}

// appendCall adds to a call, which it creates if needed. Calls may be interleaved, so all stay
// open until the end.
func (s *Stream) appendCall(delta *chatCall, position count) {
	at := position
	if delta.Index != nil {
		at = *delta.Index
	}
	id := string(delta.ID)
	item := s.calls[at]
	// Another ID means another call: some servers don't send an index.
	if item == nil || id != "" && item.chatID != "" && item.chatID != id {
		if s.message != nil {
			s.closeItem(s.message, false)
			s.message = nil
		}
		item = s.newItem()
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
	if item.name != "" { // clients need the name first
		s.sendArguments(item)
	}
}

func (s *Stream) sendArguments(item *streamItem) {
	s.announce(item)
	switch item.tool.kind {
	case functionCall:
		if unsent := item.arguments.String()[item.sent:]; unsent != "" {
			item.sent += len(unsent)
			s.sendItem(item, event{Type: "response.function_call_arguments.delta", Delta: &unsent})
		}
	case customCall:
		s.sendInput(item, item.input.next(item.arguments.String()))
	}
}

func (s *Stream) sendInput(item *streamItem, delta string) {
	if delta != "" {
		s.sendItem(item, event{Type: "response.custom_tool_call_input.delta", Delta: &delta})
	}
}

func (s *Stream) closeCall(item *streamItem) {
	s.sendArguments(item)
	switch item.tool.kind {
	case functionCall:
		s.sendItem(item, event{Type: "response.function_call_arguments.done", Name: &item.tool.name, Arguments: new(item.arguments.String())})
	case customCall:
		input, rest := item.input.finish(item.arguments.String())
		s.sendInput(item, rest)
		item.input.text.WriteString(rest)
		s.sendItem(item, event{Type: "response.custom_tool_call_input.done", Input: &input})
	}
}

func (s *Stream) newItem() *streamItem {
	item := &streamItem{index: len(s.items)}
	s.items = append(s.items, item)
	return item
}

// announce sends the event of a new item, once.
func (s *Stream) announce(item *streamItem) {
	if item.added {
		return
	}
	item.added = true
	item.id = itemID("msg", s.response.ID, item.index)
	empty := messageItem(item.id, inProgress, nil)
	if item.isCall {
		item.tool = s.request.tools.ref(item.name)
		item.id = itemID(item.tool.kind.idPrefix(), s.response.ID, item.index)
		item.callID = cmp.Or(item.chatID, itemID("call", s.response.ID, item.index))
		empty = callItem(item.id, inProgress, item.callID, item.tool, "")
	}
	s.send(event{Type: "response.output_item.added", OutputIndex: &item.index, Item: &empty})
}

func (s *Stream) closeItem(item *streamItem, cut bool) {
	if item.done {
		return
	}
	item.done = true
	if item.isCall {
		s.closeCall(item)
	} else {
		s.closePart(item)
	}
	status := completed
	if cut {
		status = incomplete
	}
	s.send(event{Type: "response.output_item.done", OutputIndex: &item.index, Item: new(item.output(status))})
}

func (s *Stream) closePart(item *streamItem) {
	p := item.lastPart()
	if p == nil {
		return
	}
	text := p.text.String()
	if p.refusal {
		s.sendPart(item, event{Type: "response.refusal.done", Refusal: &text})
	} else {
		s.sendPart(item, event{Type: "response.output_text.done", Text: &text, Logprobs: notNil(p.logprobs)})
	}
	s.sendPart(item, event{Type: "response.content_part.done", Part: p.output()})
}

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

func (i *streamItem) lastPart() *streamPart {
	if len(i.parts) == 0 {
		return nil
	}
	return i.parts[len(i.parts)-1]
}

func (i *streamItem) output(status string) outputItem {
	if i.isCall {
		arguments := i.arguments.String()
		if i.tool.kind == customCall {
			arguments = i.input.text.String()
		}
		return callItem(i.id, status, i.callID, i.tool, arguments)
	}
	var parts []outputPart
	for _, p := range i.parts {
		parts = append(parts, *p.output())
	}
	return messageItem(i.id, status, parts)
}

func (p *streamPart) output() *outputPart {
	if p.refusal {
		return new(refusalOutput(p.text.String()))
	}
	return new(textOutput(p.text.String(), p.logprobs))
}
