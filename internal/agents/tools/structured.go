package tools

import (
	"bytes"
	"encoding/json"
	"reflect"
	"sync"
)

// responseLog holds the responses of an MCP server during a tool call. The SDK
// decodes structured content into floats, which changes large numbers.
type responseLog struct {
	mu     sync.Mutex
	bodies []*bytes.Buffer
}

func (s *responseLog) newBody() *bytes.Buffer {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := new(bytes.Buffer)
	s.bodies = append(s.bodies, b)
	return b
}

func (s *responseLog) add(b *bytes.Buffer, p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.Write(p)
}

// structured returns the structured content of the result as the server wrote it, or nil.
func (s *responseLog) structured() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.bodies {
		for _, text := range append(eventsOf(b.Bytes()), b.Bytes()) {
			var message struct {
				Result struct {
					Structured json.RawMessage `json:"structuredContent"`
				} `json:"result"`
			}
			if json.Unmarshal(text, &message) == nil && message.Result.Structured != nil {
				return message.Result.Structured
			}
		}
	}
	return nil
}

// count returns how many notifications with a method the server has sent.
func (s *responseLog) count(method string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.bodies {
		for _, text := range eventsOf(b.Bytes()) {
			var message struct {
				Method string `json:"method"`
			}
			if json.Unmarshal(text, &message) == nil && message.Method == method {
				n++
			}
		}
	}
	return n
}

func eventsOf(body []byte) (list [][]byte) {
	var event []byte
	for line := range bytes.Lines(body) {
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			list, event = append(list, event), nil
			continue
		}
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			event = append(append(event, data...), '\n')
		}
	}
	return append(list, event)
}

func sameJSON(text string, value json.RawMessage) bool {
	a, err := decode(json.RawMessage(text))
	if err != nil {
		return false
	}
	b, err := decode(value)
	return err == nil && reflect.DeepEqual(a, b)
}
