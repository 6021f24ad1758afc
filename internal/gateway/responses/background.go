package responses

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/jsonbody"
)

// Background reports whether the response is created after the request.
func (r *Request) Background() bool { return r.in.Background }

// Saved is a request that is stored until its response is created.
type Saved struct {
	Body    jsontext.Value `json:"body"`
	Input   jsontext.Value `json:"input,omitzero"`   // with the stored items that the request refers to
	Earlier int            `json:"earlier,omitzero"` // how many of them come before the client's own items
}

// Save returns the request with all the state that it refers to.
func (r *Request) Save() Saved { return Saved{Body: r.body, Input: r.resumed, Earlier: len(r.earlier)} }

// Restore returns a saved request.
func (s Saved) Restore() (*Request, error) {
	r, err := Read(s.Body)
	if err != nil || s.Input == nil {
		return r, err
	}
	var all []jsontext.Value
	if err := json.Unmarshal(s.Input, &all, lenient...); err != nil {
		return nil, err
	}
	r.resumed, r.earlier = s.Input, all[:min(s.Earlier, len(all))]
	r.in.Input = input{Kind: jsontext.KindBeginArray}
	return r, json.Unmarshal(r.resumed, &r.in.Input.Value)
}

// Queued returns the response before it is created.
func (r *Request) Queued() (jsontext.Value, error) {
	out := r.newResponse(&completion{})
	out.Status, out.Output = "queued", []outputItem{}
	return json.Marshal(out, lenient...)
}

// QueuedEvents are the first events of a background response.
func QueuedEvents(queued jsontext.Value) []Event {
	var out []Event
	for i, kind := range []string{"response.created", "response.queued"} {
		out = append(out, responseEvent(kind, i, queued))
	}
	return out
}

// CancelledEvent is the last event of a canceled response.
func CancelledEvent(sequence int, response jsontext.Value) Event {
	return responseEvent("response.cancelled", sequence, response)
}

// WithStatus returns a response with another status.
func WithStatus(response jsontext.Value, status string) jsontext.Value {
	return jsonbody.ReplaceMember(response, "status", `"`+status+`"`)
}

func responseEvent(kind string, sequence int, response jsontext.Value) Event {
	data, _ := json.Marshal(struct { // the response was decoded before
		Type     string         `json:"type"`
		Sequence int            `json:"sequence_number"`
		Response jsontext.Value `json:"response"`
	}{kind, sequence, response}, lenient...)
	return Event{Type: kind, Data: data}
}
