package contentlog

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// transcript assembles the events of a stream into the response that the same request has without a stream.
// A model sends a secret in pieces, which could not be masked event by event.
type transcript struct {
	size     int64 // of all events
	kept     int64 // bytes of what was assembled
	full     bool  // more was sent than kept
	response jsontext.Value
	document map[string]any   // a chat completion or a message
	partial  []*partialOutput // of a response in progress
	events   []any            // of other streams
}

// partialOutput is a text or the arguments of a tool in a response of the Responses API that has not ended.
type partialOutput struct {
	Type        string `json:"type"`
	OutputIndex int64  `json:"output_index"`
	Index       int64  `json:"content_index"`
	Text        pieces `json:"text"`
}

// pieces is a string in the making.
type pieces []byte

// MarshalText returns the string.
func (p *pieces) MarshalText() ([]byte, error) { return *p, nil }

func (t *transcript) append(to *pieces, piece string) {
	*to = append(*to, piece...)
	t.kept += int64(len(piece))
}

// extend appends to a string of an object.
func (t *transcript) extend(object map[string]any, name, piece string) {
	text, is := object[name].(*pieces)
	if !is {
		text = &pieces{}
		if before, is := object[name].(string); is {
			*text = pieces(before)
		}
		object[name] = text
	}
	t.append(text, piece)
}

// event has the fields of all formats of events.
type event struct {
	Type    string         `json:"type"`
	Error   jsontext.Value `json:"error"`
	Choices []struct {
		Index int64          `json:"index"`
		Delta map[string]any `json:"delta"`
		Rest  map[string]any `json:",embed"`
	} `json:"choices"`
	Message      map[string]any `json:"message"`
	ContentBlock map[string]any `json:"content_block"`
	Delta        any            `json:"delta"`
	Response     jsontext.Value `json:"response"`
	Index        int64          `json:"index"`
	OutputIndex  int64          `json:"output_index"`
	ContentIndex int64          `json:"content_index"`
	Usage        any            `json:"usage"`
	Rest         map[string]any `json:",embed"`
}

func (t *transcript) add(name string, data []byte) {
	t.size += int64(len(data))
	if string(data) == "[DONE]" {
		return
	}
	if strings.HasSuffix(name, ".completed") || strings.HasSuffix(name, ".incomplete") || strings.HasSuffix(name, ".failed") {
		if t.addTerminal(name, data) {
			return
		}
	}
	if t.kept > maxBody+slack {
		t.full = true
		return
	}
	var e event
	err := json.Unmarshal(data, &e, lenient)
	switch {
	case err == nil && e.Error != nil:
		t.open()["error"] = e.Error
		t.kept += int64(len(e.Error))
	case err == nil && len(e.Choices) > 0 || err == nil && e.Usage != nil && t.document != nil && e.Type == "":
		t.addChunk(&e)
	case err == nil && e.Type == "message_start" && e.Message != nil:
		t.document = e.Message
		t.kept += int64(len(data))
	case err == nil && (strings.HasPrefix(e.Type, "content_block_") || strings.HasPrefix(e.Type, "message_") || e.Type == "ping"):
		t.addToMessage(&e)
	case err == nil && strings.HasPrefix(e.Type, "response."):
		t.addToResponse(&e)
	default:
		text, _ := cleanJSON(data)
		t.events = append(t.events, jsontext.Value(text))
		if !jsontext.Value(text).IsValid() {
			t.events[len(t.events)-1] = text
		}
		t.kept += int64(len(text))
	}
}

func (t *transcript) open() map[string]any {
	if t.document == nil {
		t.document = map[string]any{}
	}
	return t.document
}

// addTerminal takes the whole response from the last event of the Responses API.
func (t *transcript) addTerminal(name string, data []byte) bool {
	var last struct {
		Response jsontext.Value `json:"response"`
	}
	if !strings.HasPrefix(name, "response.") || json.Unmarshal(data, &last, lenient) != nil || last.Response == nil {
		return false
	}
	t.response = last.Response
	return true
}

// addChunk adds a chunk of a chat completion or a completion.
func (t *transcript) addChunk(e *event) {
	d := t.open()
	for name, v := range e.Rest {
		if object, is := v.(string); is && name == "object" {
			v = strings.TrimSuffix(object, ".chunk")
		}
		if d[name] == nil {
			d[name] = v
		}
	}
	if e.Usage != nil {
		d["usage"] = e.Usage
	}
	for _, c := range e.Choices {
		into := element(d, "choices", c.Index)
		if c.Delta != nil {
			message, _ := into["message"].(map[string]any)
			if message == nil {
				message = map[string]any{}
				into["message"] = message
			}
			t.merge(message, c.Delta)
		}
		delete(c.Rest, "logprobs") // as large as all else
		t.merge(into, c.Rest)
	}
}

// fixed are the strings that aren't sent in pieces.
var fixed = []string{"role", "id", "type", "name", "finish_reason", "stop_reason", "format"}

// merge adds what a chunk adds to an object. Strings are pieces, and elements of arrays have an index.
func (t *transcript) merge(into, delta map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(delta)) {
		switch v := delta[name].(type) {
		case nil:
		case string:
			if slices.Contains(fixed, name) {
				into[name] = v
				continue
			}
			t.extend(into, name, v)
		case map[string]any:
			inner, _ := into[name].(map[string]any)
			if inner == nil {
				inner = map[string]any{}
				into[name] = inner
			}
			t.merge(inner, v)
		case []any:
			for _, one := range v {
				object, is := one.(map[string]any)
				index, indexed := object["index"].(float64)
				if !is || !indexed {
					list, _ := into[name].([]any)
					into[name] = append(list, one)
					t.kept += 16
					continue
				}
				t.merge(element(into, name, int64(index)), object)
			}
		default:
			into[name] = v
		}
	}
}

// element returns the object with an index in an array, which it extends.
func element(of map[string]any, name string, index int64) map[string]any {
	list, _ := of[name].([]any)
	for _, v := range list {
		if object, is := v.(map[string]any); is && fmt.Sprint(object["index"]) == fmt.Sprint(index) {
			return object
		}
	}
	object := map[string]any{"index": index}
	of[name] = append(list, object)
	return object
}

// addToMessage adds an event of the Messages API.
func (t *transcript) addToMessage(e *event) {
	d := t.open()
	delta, _ := e.Delta.(map[string]any)
	switch e.Type {
	case "content_block_start":
		t.merge(element(d, "content", e.Index), e.ContentBlock)
	case "content_block_delta":
		delete(delta, "type")
		if piece, is := delta["partial_json"].(string); is {
			delete(delta, "partial_json")
			t.extend(element(d, "content", e.Index), "input", piece)
		}
		t.merge(element(d, "content", e.Index), delta)
	case "message_delta":
		t.merge(d, delta)
		if usage, is := e.Usage.(map[string]any); is {
			t.merge(d, map[string]any{"usage": usage})
		}
	}
}

// addToResponse adds an event of the Responses API before the last one, which has everything.
func (t *transcript) addToResponse(e *event) {
	piece, is := e.Delta.(string)
	if !is {
		return
	}
	for _, p := range slices.Backward(t.partial) {
		if p.Type == e.Type && p.OutputIndex == e.OutputIndex && p.Index == e.ContentIndex {
			t.append(&p.Text, piece)
			return
		}
	}
	p := &partialOutput{Type: e.Type, OutputIndex: e.OutputIndex, Index: e.ContentIndex}
	t.append(&p.Text, piece)
	t.partial = append(t.partial, p)
}

// part returns the assembled response.
func (t *transcript) part() Part {
	var v any
	switch {
	case t.response != nil:
		v = t.response
	case t.document != nil:
		v = t.document
	case t.partial != nil:
		v = map[string]any{"partial_output": t.partial}
	default:
		v = map[string]any{"events": t.events}
	}
	body, err := json.Marshal(v, json.Deterministic(true), lenient)
	if err != nil {
		body = nil
	}
	p := newPart("application/json", body)
	p.Size, p.Truncated, p.Streamed = t.size, p.Truncated || t.full && t.response == nil, true
	return p
}
