package responses_test

import (
	"encoding/json"
	"io"
	"path/filepath"
	"regexp"
	"testing"

	"turnpike/internal/gateway/responses"
	"turnpike/internal/providers"
	"turnpike/internal/providers/simulator"
)

// The simulator refuses what OpenAI's chat would refuse: every chat made here
// is answered, and its plain and its streamed answer are the same response.
func TestEveryChatIsAnswered(t *testing.T) {
	t.Parallel()
	for _, folder := range folders(t) {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			t.Parallel()
			var fields map[string]json.RawMessage
			if err := json.Unmarshal(read(t, folder, "request.json"), &fields); err != nil {
				t.Fatal(err)
			}
			ask := func(stream string) (*responses.Request, *providers.Answer) {
				fields["stream"] = json.RawMessage(stream)
				body, _ := json.Marshal(fields)
				r := toChat(t, string(body))
				r.ID = "req_abc"
				answer, err := simulator.New(simulator.Options{}).Chat(t.Context(), &providers.ChatRequest{Model: "gpt-4.1", Body: r.Chat, Stream: r.Stream})
				if err != nil {
					t.Fatal(r.Fault(err))
				}
				return r, answer
			}
			r, answer := ask("false")
			plain, err := r.Answer(answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			r, answer = ask("true")
			defer answer.Stream.Close()
			s := r.NewStream()
			for {
				chunk, err := answer.Stream.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Push(chunk.Data); err != nil {
					t.Fatal(err)
				}
			}
			end := s.End()
			var last struct {
				Response json.RawMessage `json:"response"`
			}
			if err := json.Unmarshal(end[len(end)-1].Data, &last); err != nil {
				t.Fatal(err)
			}
			if a, b := timeless(t, plain), timeless(t, last.Response); a != b {
				t.Errorf("plain\n%s\nstreamed\n%s", a, b)
			}
		})
	}
}

var callID = regexp.MustCompile(`call_\w{24}`)

// timeless leaves out what differs between two calls: the time, and the ids
// that the simulator makes of the request's bytes.
func timeless(t *testing.T, response []byte) string {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(response, &fields); err != nil {
		t.Fatal(err)
	}
	delete(fields, "created_at")
	text, _ := json.Marshal(fields)
	return callID.ReplaceAllString(string(text), "call")
}
