package responses

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

// NativeStream follows the events of a provider with the Responses API. It completes a stream that
// the provider doesn't.
type NativeStream struct {
	last     []byte         // event
	sequence int            // of the next event of ours
	response jsontext.Value // as in the last event that has it
	items    []jsontext.Value
}

// Observe remembers what ours need of an event that is forwarded unchanged.
func (s *NativeStream) Observe(kind string, data []byte) {
	s.last = append(s.last[:0], data...)
	if strings.HasSuffix(kind, ".delta") { // most of them
		return
	}
	var e struct {
		Response jsontext.Value `json:"response"`
		Item     jsontext.Value `json:"item"`
	}
	_ = json.Unmarshal(data, &e, lenient...) // the provider's client has parsed it
	if e.Response.Kind() == jsontext.KindBeginObject {
		s.response = e.Response.Clone()
	}
	if kind == "response.output_item.done" && e.Item.Kind() == jsontext.KindBeginObject {
		s.items = append(s.items, e.Item.Clone())
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

// Response returns the response object of the last event that had it.
func (s *NativeStream) Response() []byte { return s.response }

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
	var response map[string]jsontext.Value
	if json.Unmarshal(s.response, &response, lenient...) != nil || response == nil {
		response = map[string]jsontext.Value{}
	}
	for name, value := range fields {
		response[name] = value
	}
	response["status"] = jsontext.Value(`"` + status + `"`)
	response["output"] = jsontext.Value("[]")
	if output, err := json.Marshal(s.items, lenient...); err == nil && s.items != nil {
		response["output"] = output
	}
	s.response, _ = json.Marshal(response, append([]jsontext.Options{json.Deterministic(true)}, lenient...)...)
	kind := "response." + status
	data, _ := json.Marshal(struct {
		Type     string         `json:"type"`
		Sequence int            `json:"sequence_number"`
		Response jsontext.Value `json:"response"`
	}{kind, s.next(), s.response}, lenient...)
	return Event{Type: kind, Data: data}
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
