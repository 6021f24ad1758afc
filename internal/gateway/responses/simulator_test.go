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

// The simulator rejects what OpenAI would reject.
func TestTranslatedChatsWorkAndStreamTheSame(t *testing.T) {
	t.Parallel()
	for _, dir := range goldenDirs(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			var fields map[string]json.RawMessage
			if err := json.Unmarshal(read(t, dir, "request.json"), &fields); err != nil {
				t.Fatal(err)
			}
			ask := func(stream string) (*responses.Request, *providers.Response) {
				fields["stream"] = json.RawMessage(stream)
				body, _ := json.Marshal(fields)
				r := toChat(t, string(body))
				r.ID = "req_abc"
				answer, err := simulator.New(simulator.Options{}).Chat(t.Context(), &providers.ChatRequest{Model: "gpt-4.1", Body: r.Chat, Stream: r.Stream})
				if err != nil {
					t.Fatal(r.TranslateFault(err))
				}
				return r, answer
			}
			r, answer := ask("false")
			plain, err := r.ToResponse(answer.Body)
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
			if a, b := normalize(t, plain), normalize(t, last.Response); a != b {
				t.Errorf("plain\n%s\nstreamed\n%s", a, b)
			}
		})
	}
}

var callID = regexp.MustCompile(`call_\w{24}`)

// normalize removes what differs between two calls: the time, and the IDs that the simulator
// derives from the request.
func normalize(t *testing.T, response []byte) string {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(response, &fields); err != nil {
		t.Fatal(err)
	}
	delete(fields, "created_at")
	text, _ := json.Marshal(fields)
	return callID.ReplaceAllString(string(text), "call")
}
