package responses

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

// NativeStream follows the events of a provider with the Responses API. It completes a stream that
// the provider doesn't. Until then it only copies events.
type NativeStream struct {
	last     []byte   // event
	response []byte   // the last event that has the response
	items    [][]byte // events that have a finished item
	sequence int      // of the next event of ours
}

// Observe remembers an event that is forwarded unchanged.
func (s *NativeStream) Observe(kind string, data []byte) {
	s.last = append(s.last[:0], data...)
	switch {
	case kind == "response.output_item.done":
		s.items = append(s.items, bytes.Clone(data))
	case strings.Count(kind, ".") == 1: // response.created, response.in_progress…
		s.response = append(s.response[:0], data...)
	}
}

// next returns the sequence number of the next event of ours.
func (s *NativeStream) next() int {
	if s.sequence == 0 {
		var last struct {
			Sequence count `json:"sequence_number"`
		}
		if s.last != nil && json.Unmarshal(s.last, &last, lenient...) == nil {
			s.sequence = int(last.Sequence) + 1
		}
	}
	s.sequence++
	return s.sequence - 1
}

// Fail returns the last events of a failed stream. The final one has the items so far.
func (s *NativeStream) Fail(code, message string) []Event {
	failure, _ := json.Marshal(responseError{Code: openAIErrorCode(code), Message: message}, lenient...)
	return []Event{
		s.encode(errorEvent(code, message)),
		s.end(failed, map[string]jsontext.Value{"error": failure}),
	}
}

// Cut returns the last event of a stream that has used up its reservation.
func (s *NativeStream) Cut() []Event {
	return []Event{s.end(incomplete, map[string]jsontext.Value{"incomplete_details": jsontext.Value(`{"reason":"max_output_tokens"}`)})}
}

func (s *NativeStream) encode(e event) Event {
	e.SequenceNumber = s.next()
	data, _ := json.Marshal(e, lenient...) // of strings
	return Event{Type: e.Type, Data: data}
}

func (s *NativeStream) end(status string, fields map[string]jsontext.Value) Event {
	var last struct {
		Response map[string]jsontext.Value `json:"response"`
	}
	if json.Unmarshal(s.response, &last, lenient...) != nil || last.Response == nil {
		last.Response = map[string]jsontext.Value{}
	}
	for name, value := range fields {
		last.Response[name] = value
	}
	last.Response["status"] = jsontext.Value(`"` + status + `"`)
	last.Response["output"] = s.output()
	response, _ := json.Marshal(last.Response, append([]jsontext.Options{json.Deterministic(true)}, lenient...)...)
	return responseEvent("response."+status, s.next(), response)
}

// output returns the finished items.
func (s *NativeStream) output() jsontext.Value {
	items := []jsontext.Value{}
	for _, event := range s.items {
		var e struct {
			Item jsontext.Value `json:"item"`
		}
		if json.Unmarshal(event, &e, lenient...) == nil && e.Item.Kind() == jsontext.KindBeginObject {
			items = append(items, e.Item)
		}
	}
	output, _ := json.Marshal(items, lenient...) // of valid JSON
	return output
}

func errorEvent(code, message string) event {
	return event{Type: "error", Code: code, Message: message, Param: jsontext.Value("null"), Error: &errorObject{
		Type: fault.FamilyOf(fault.Code(code)).Type, Code: code, Message: message,
	}}
}

// openAIErrorCode returns the code for the error of a response. OpenAI's clients know only a few.
func openAIErrorCode(code string) string {
	switch fault.Code(code) {
	case fault.RateLimitExceeded, fault.Overloaded:
		return "rate_limit_exceeded"
	}
	if strings.HasPrefix(code, "invalid_") {
		return "invalid_prompt"
	}
	return "server_error"
}
