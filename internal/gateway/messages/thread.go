package messages

import (
	"bytes"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

// Turn is a request with a thread: a conversation that the server holds, so that the client sends only new messages.
type Turn struct {
	PreviousID string                    // of the message that it continues; "" begins a thread
	Messages   []jsontext.Value          // of the request
	Fields     map[string]jsontext.Value // of the request that begins the thread; later ones don't repeat them
	body       []byte
}

// threadFields belong to a thread and not to a turn.
var threadFields = []string{"system", "tools"}

// The error codes of threads. Anthropic's SDKs know what to do about them.
const (
	ThreadNotFound    = "thread_not_found"            // they send the whole conversation in another thread
	ThreadUnsupported = "thread_unsupported_request"  // they send the whole conversation without a thread
	threadMismatch    = "thread_fingerprint_mismatch" // the program is wrong
)

// ThreadFault adds the error code of Anthropic's API to an error about a thread.
func ThreadFault(code string, f *fault.Error) *fault.Error {
	f.Details = struct {
		ErrorCode string `json:"error_code"`
	}{code}
	return f
}

// ReadTurn reads the thread of a request.
func ReadTurn(body []byte) (*Turn, error) {
	var in struct {
		Thread struct {
			Type              string `json:"type"`
			PreviousMessageID string `json:"previous_message_id"`
		} `json:"thread"`
		Messages *[]jsontext.Value `json:"messages"`
	}
	if err := jsonbody.DecodeLenient(body, &in); err != nil {
		return nil, err
	}
	t := &Turn{PreviousID: in.Thread.PreviousMessageID, Fields: map[string]jsontext.Value{}, body: body}
	for m := range jsonbody.Members(body) {
		if value := jsontext.Value(body[m.Start:m.End]); isSet(value) && slices.Contains(threadFields, string(m.Name)) {
			t.Fields[string(m.Name)] = value
		}
	}
	switch kind := in.Thread.Type; {
	case in.Messages == nil:
		return nil, fault.Missing("messages", "messages is required: an array of messages.")
	case kind == "create":
		t.PreviousID = ""
	case kind != "continue":
		return nil, fault.Invalid("thread.type", "thread.type must be create or continue.")
	case t.PreviousID == "":
		return nil, fault.Missing("thread.previous_message_id", "thread.previous_message_id is required: the ID of the message to continue.")
	case len(t.Fields) > 0:
		name := slices.Sorted(maps.Keys(t.Fields))[0]
		return nil, ThreadFault(threadMismatch, fault.Invalid(name, `%s belongs to the thread and can't change. Omit it, or begin another thread with "thread": {"type": "create"}.`, name))
	}
	t.Messages = *in.Messages
	return t, nil
}

// Resume returns the request without its thread: with the earlier messages and the fields of the thread.
func (t *Turn) Resume(earlier []jsontext.Value, fields map[string]jsontext.Value) []byte {
	all := map[string]jsontext.Value{}
	maps.Copy(all, fields)
	if t.PreviousID != "" {
		markers := bytes.Count(t.body, cacheMarker)
		for _, value := range fields {
			markers += bytes.Count(value, cacheMarker)
		}
		all["messages"] = array(slices.Concat(limitMarkers(earlier, maxMarkers-markers), t.Messages))
	}
	return WithoutThread(t.body, all)
}

// WithoutThread returns the body of a request without its thread and with other values of some fields.
func WithoutThread(body []byte, fields map[string]jsontext.Value) []byte {
	out := make([]byte, 1, len(body)+len(fields["messages"]))
	out[0] = '{'
	add := func(name string, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out, _ = jsontext.AppendQuote(out, name)
		out = append(append(out, ':'), value...)
	}
	for m := range jsonbody.Members(body) {
		if name := string(m.Name); name != "thread" && fields[name] == nil {
			add(name, body[m.Start:m.End])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		add(name, fields[name])
	}
	return append(out, '}')
}

func array(values []jsontext.Value) jsontext.Value {
	out := []byte{'['}
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, v...)
	}
	return append(out, ']')
}

// maxMarkers is how many markers of the cache Anthropic accepts in a request. A thread collects those of all its turns.
const maxMarkers = 4

var cacheMarker = []byte(`"cache_control"`)

// limitMarkers returns the messages that aren't empty, with the markers of only the last ones: a provider finds the
// longest prefix in its cache by them.
func limitMarkers(list []jsontext.Value, limit int) []jsontext.Value {
	out := slices.DeleteFunc(slices.Clone(list), func(m jsontext.Value) bool { return bytes.Equal(m, emptyParam) })
	for i, m := range slices.Backward(out) {
		if n := bytes.Count(m, cacheMarker); n <= limit {
			limit -= n
		} else {
			out[i], limit = withoutMarkers(m), 0
		}
	}
	return out
}

// nestedBlocks are the fields of messages and blocks whose values have markers of their own.
var nestedBlocks = []string{"content", "source", "tool", "definition", "tool_references"}

// withoutMarkers returns a message, a block or an array of blocks without markers.
func withoutMarkers(v jsontext.Value) jsontext.Value {
	if !bytes.Contains(v, cacheMarker) {
		return v
	}
	if v.Kind() == jsontext.KindBeginArray {
		var list []jsontext.Value
		_ = json.Unmarshal(v, &list, lenient) // it was read before
		for i, one := range list {
			list[i] = withoutMarkers(one)
		}
		return array(list)
	}
	var fields map[string]jsontext.Value
	if v.Kind() != jsontext.KindBeginObject || json.Unmarshal(v, &fields, lenient) != nil {
		return v
	}
	delete(fields, "cache_control")
	for _, name := range nestedBlocks {
		if inner, found := fields[name]; found {
			fields[name] = withoutMarkers(inner)
		}
	}
	out, _ := json.Marshal(fields, json.Deterministic(true), lenient) // they were just read
	return out
}
