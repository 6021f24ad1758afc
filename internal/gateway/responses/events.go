package responses

import "github.com/go-json-experiment/json"

// Event is a server-sent event: its name and the JSON of its data.
type Event struct {
	Type string
	Data []byte
}

// eventHeader is common to all events.
type eventHeader struct {
	Type           string `json:"type"`
	SequenceNumber int    `json:"sequence_number"`
}

type responseEvent struct {
	eventHeader
	Response *response `json:"response"`
}

type itemEvent struct {
	eventHeader
	OutputIndex int        `json:"output_index"`
	Item        outputItem `json:"item"`
}

// itemRef is the item that an event belongs to.
type itemRef struct {
	ItemID      string `json:"item_id"`
	OutputIndex int    `json:"output_index"`
}

type partEvent struct {
	eventHeader
	itemRef
	ContentIndex int        `json:"content_index"`
	Part         outputPart `json:"part"`
}

type textDelta struct {
	eventHeader
	itemRef
	ContentIndex int       `json:"content_index"`
	Delta        string    `json:"delta"`
	Logprobs     []logprob `json:"logprobs"`
}

type textDone struct {
	eventHeader
	itemRef
	ContentIndex int       `json:"content_index"`
	Text         string    `json:"text"`
	Logprobs     []logprob `json:"logprobs"`
}

type refusalDelta struct {
	eventHeader
	itemRef
	ContentIndex int    `json:"content_index"`
	Delta        string `json:"delta"`
}

type refusalDone struct {
	eventHeader
	itemRef
	ContentIndex int    `json:"content_index"`
	Refusal      string `json:"refusal"`
}

type argumentsDelta struct {
	eventHeader
	itemRef
	Delta string `json:"delta"`
}

type argumentsDone struct {
	eventHeader
	itemRef
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// errorEvent has its fields twice: next to the type, as documented, and in an object, by which
// the official clients recognize an error.
type errorEvent struct {
	eventHeader
	Code    string      `json:"code"`
	Message string      `json:"message"`
	Param   *string     `json:"param"`
	Error   errorObject `json:"error"`
}

type errorObject struct {
	Type    string  `json:"type"`
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
}

// newHeader returns the header of the next event.
func (s *Stream) newHeader(kind string) eventHeader {
	h := eventHeader{Type: kind, SequenceNumber: s.sequence}
	s.sequence++
	return h
}

// send queues an event.
func (s *Stream) send(h eventHeader, event any) {
	data, err := json.Marshal(event, lenient...)
	if err != nil {
		s.err = err
		return
	}
	s.ready = append(s.ready, Event{Type: h.Type, Data: data})
}
