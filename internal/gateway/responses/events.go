package responses

import "github.com/go-json-experiment/json"

// Event is a server-sent event: its name and the JSON of its data.
type Event struct {
	Type string
	Data []byte
}

// head is what all events begin with.
type head struct {
	Type           string `json:"type"`
	SequenceNumber int    `json:"sequence_number"`
}

type responseEvent struct {
	head
	Response *response `json:"response"`
}

type itemEvent struct {
	head
	OutputIndex int        `json:"output_index"`
	Item        outputItem `json:"item"`
}

// place says what an event about a part of an item is about.
type place struct {
	ItemID      string `json:"item_id"`
	OutputIndex int    `json:"output_index"`
}

type partEvent struct {
	head
	place
	ContentIndex int        `json:"content_index"`
	Part         outputPart `json:"part"`
}

type textDelta struct {
	head
	place
	ContentIndex int       `json:"content_index"`
	Delta        string    `json:"delta"`
	Logprobs     []logprob `json:"logprobs"`
}

type textDone struct {
	head
	place
	ContentIndex int       `json:"content_index"`
	Text         string    `json:"text"`
	Logprobs     []logprob `json:"logprobs"`
}

type refusalDelta struct {
	head
	place
	ContentIndex int    `json:"content_index"`
	Delta        string `json:"delta"`
}

type refusalDone struct {
	head
	place
	ContentIndex int    `json:"content_index"`
	Refusal      string `json:"refusal"`
}

type argumentsDelta struct {
	head
	place
	Delta string `json:"delta"`
}

type argumentsDone struct {
	head
	place
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// errorEvent has its fields twice: beside the type, as the reference has
// them, and in an object, by which the official clients know an error.
type errorEvent struct {
	head
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

// next begins an event.
func (s *Stream) next(kind string) head {
	h := head{Type: kind, SequenceNumber: s.sequence}
	s.sequence++
	return h
}

// send adds an event to those that are ready.
func (s *Stream) send(h head, event any) {
	data, err := json.Marshal(event, lenient...)
	if err != nil {
		s.err = err
		return
	}
	s.ready = append(s.ready, Event{Type: h.Type, Data: data})
}
