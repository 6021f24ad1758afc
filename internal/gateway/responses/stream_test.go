package responses_test

import (
	"encoding/json"
	"strings"
	"testing"

	"turnpike/internal/gateway/responses"
)

type failed struct {
	ID, Model, Status string
	Error             struct{ Code string }
	Output            []struct {
		ID, Status string
		Content    []struct{ Text string }
	}
}

func TestFailedStreamEndsWithPartialResponse(t *testing.T) {
	t.Parallel()
	r := toChat(t, `{"model":"m","input":"hi","stream":true}`)
	r.ID = "req_abc"
	s := r.NewStream()
	if _, err := s.Push([]byte(`{"id":"1","created":5,"model":"m2","choices":[{"delta":{"content":"Hel"}}]}`)); err != nil {
		t.Fatal(err)
	}
	events := s.Fail("upstream_timeout", "too slow")
	if len(events) != 2 || events[0].Type != "error" || events[1].Type != "response.failed" {
		t.Fatalf("%s", events)
	}
	if got, want := string(events[0].Data), `{"type":"error","sequence_number":5,"code":"upstream_timeout","message":"too slow","param":null,"error":{"type":"upstream_error","code":"upstream_timeout","message":"too slow","param":null}}`; got != want {
		t.Error(got)
	}
	var last struct{ Response failed }
	if err := json.Unmarshal(events[1].Data, &last); err != nil {
		t.Fatal(err)
	}
	got := last.Response
	if got.ID != "resp_abc" || got.Model != "m2" || got.Status != "failed" || got.Error.Code != "server_error" || got.Output[0].Content[0].Text != "Hel" || got.Output[0].ID != "msg_abc_0" || got.Output[0].Status != "incomplete" {
		t.Errorf("%s", events[1].Data)
	}
	if more, err := s.Push([]byte(`{}`)); more != nil || err != nil || s.End() != nil || s.Fail("x", "y") != nil {
		t.Error("the stream goes on after its end")
	}
}

// A stream that never began still tells its whole story.
func TestEmptyStreamIsACompletedResponse(t *testing.T) {
	t.Parallel()
	r := toChat(t, `{"model":"m","input":"hi","stream":true}`)
	for want, events := range map[string][]responses.Event{
		"response.created response.in_progress response.completed":    r.NewStream().End(),
		"response.created response.in_progress error response.failed": r.NewStream().Fail("upstream_error", "x"),
	} {
		var types []string
		for _, e := range events {
			types = append(types, e.Type)
		}
		if got := strings.Join(types, " "); got != want {
			t.Error(got)
		}
	}
}
