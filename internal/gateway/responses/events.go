package responses

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/openai"
)

// Event is a server-sent event: its name and the JSON of its data.
type Event struct {
	Type string
	Data []byte
}

// Terminal reports whether the event is the last one of a response.
func (e Event) Terminal() bool {
	return e.Type == "response.completed" || e.Type == "response.incomplete" || e.Type == "response.failed" || e.Type == "response.cancelled"
}

// EventType returns the type of an event by its data.
func EventType(data []byte) string {
	var e struct {
		Type text `json:"type"`
	}
	_ = json.Unmarshal(data, &e, lenient...) // data without a type has none
	return string(e.Type)
}

// ResponseOf returns the response object of the last event, or nil.
func ResponseOf(events []Event) jsontext.Value {
	if len(events) == 0 {
		return nil
	}
	var e struct {
		Response jsontext.Value `json:"response"`
	}
	if json.Unmarshal(events[len(events)-1].Data, &e, lenient...) != nil || e.Response.Kind() != jsontext.KindBeginObject {
		return nil
	}
	return e.Response
}

// ErrorEvent returns an error event.
func ErrorEvent(code, message string) Event {
	data, _ := json.Marshal(errorEvent(code, message), lenient...) // of strings
	return Event{Type: "error", Data: data}
}

// event is the data of an event. Which fields are set depends on the type.
type event struct {
	Type           string           `json:"type"`
	SequenceNumber int              `json:"sequence_number"`
	Response       *response        `json:"response,omitzero"`
	ItemID         string           `json:"item_id,omitzero"`
	OutputIndex    *int             `json:"output_index,omitzero"`
	ContentIndex   *int             `json:"content_index,omitzero"`
	Item           *outputItem      `json:"item,omitzero"`
	Part           *outputPart      `json:"part,omitzero"`
	Delta          *string          `json:"delta,omitzero"`
	Text           *string          `json:"text,omitzero"`
	Refusal        *string          `json:"refusal,omitzero"`
	Logprobs       []openai.Logprob `json:"logprobs,omitzero"`
	Name           *string          `json:"name,omitzero"`
	Arguments      *string          `json:"arguments,omitzero"`
	Input          *string          `json:"input,omitzero"`
	Code           string           `json:"code,omitzero"`
	Message        string           `json:"message,omitzero"`
	Param          jsontext.Value   `json:"param,omitzero"` // always null
	Error          *errorObject     `json:"error,omitzero"`
}

// errorObject repeats the fields of an error event, because the official clients
// recognize an error by it.
type errorObject struct {
	Type    string  `json:"type"`
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
}

func (s *Stream) send(e event) {
	e.SequenceNumber = s.sequence
	s.sequence++
	data, err := json.Marshal(e, lenient...)
	if err != nil {
		s.err = err
		return
	}
	s.ready = append(s.ready, Event{Type: e.Type, Data: data})
}

func (s *Stream) sendItem(item *streamItem, e event) {
	e.ItemID, e.OutputIndex = item.id, &item.index
	s.send(e)
}

func (s *Stream) sendPart(item *streamItem, e event) {
	e.ContentIndex = new(len(item.parts) - 1)
	s.sendItem(item, e)
}

// notNil returns the log probabilities as an array that is never omitted.
func notNil(logprobs []openai.Logprob) []openai.Logprob {
	if logprobs == nil {
		return []openai.Logprob{}
	}
	return logprobs
}
