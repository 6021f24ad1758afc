package responses_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"turnpike/internal/fault"
	"turnpike/internal/gateway/responses"
	"turnpike/internal/jsonbody"
)

// FuzzToChat checks that every request gives a valid chat or an error, and a valid response.
func FuzzToChat(f *testing.F) {
	for _, dir := range goldenDirs(f) {
		f.Add(read(f, dir, "request.json"))
	}
	f.Add([]byte(`{"input":[{"role":"user","content":[{"type":"input_file","file":1,"file_data":"x","input_audio":{}}]}],"tools":[{"type":"function","name":"f","function":1}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if jsonbody.CheckDepth(body, 128) != nil {
			return
		}
		r, err := readAndTranslate(body)
		if err != nil {
			if e, ok := fault.As(err); !ok || e.Message == "" || fault.FamilyOf(e.Code).Status != 400 {
				t.Errorf("%q: %v", body, err)
			}
			return
		}
		if !json.Valid(r.Chat) || jsonbody.DecodeLenient(r.Chat, &struct{}{}) != nil {
			t.Errorf("%q gives %q", body, r.Chat)
		}
		answer, err := r.ToResponse([]byte(`{"choices":[{"message":{"content":"x"}}]}`))
		if err != nil || !json.Valid(answer) {
			t.Errorf("%q gives %q, %v", body, answer, err)
		}
	})
}

// FuzzPush checks that events are valid JSON and that every stream ends, whatever a provider sends.
func FuzzPush(f *testing.F) {
	for _, dir := range goldenDirs(f) {
		f.Add(read(f, dir, "chunks.jsonl"))
		f.Add(read(f, dir, "completion.json"))
	}
	f.Add([]byte("{\"id\":\"\xff\",\"choices\":[{\"delta\":{\"content\":\"\xff\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":\"\xff\",\"a\":1}}}]}}],\"usage\":{\"credits\":1e999}}"))
	r, err := readAndTranslate([]byte(`{"model":"m","input":"hi","stream":true}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, chunks []byte) {
		if answer, err := r.ToResponse(chunks); err == nil && !json.Valid(answer) {
			t.Errorf("%q", answer)
		}
		s := r.NewStream()
		var all []responses.Event
		failed := false
		for line := range bytes.Lines(chunks) {
			events, err := s.Push(line)
			all = append(all, events...)
			if err != nil {
				failed = true
				if !fault.Is(err, fault.Upstream) {
					t.Errorf("%q: %v", line, err)
				}
				break
			}
		}
		if failed {
			all = append(all, s.Fail("upstream_error", "broken")...)
		} else {
			all = append(all, s.End()...)
		}
		for i, e := range all {
			var got struct {
				Type     string `json:"type"`
				Sequence int    `json:"sequence_number"`
			}
			if err := json.Unmarshal(e.Data, &got); err != nil || got.Type != e.Type || got.Sequence != i {
				t.Errorf("event %d is %s, %v", i, e.Data, err)
			}
		}
		if last := all[len(all)-1].Type; failed != (last == "response.failed") || !strings.HasPrefix(last, "response.") {
			t.Errorf("got last event %s", last)
		}
	})
}

func TestDeeplyNestedBodiesAreRejected(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 2_000_000) + strings.Repeat("]", 2_000_000)
	for _, body := range []string{
		`{"x":` + deep + `,"input":"x"}`, `{"input":{"x":` + deep + `}}`,
		`{"input":"x","tools":[{"type":"function","name":"f","parameters":{"a":` + deep + `}}]}`,
		// At the limit here, and one level too deep in a chat.
		`{"input":"x","tools":[{"type":"function","name":"f","parameters":{"a":` + strings.Repeat("[", 9996) + strings.Repeat("]", 9996) + `}}]}`,
	} {
		if _, err := readAndTranslate([]byte(body)); !fault.Is(err, fault.InvalidJSON) {
			t.Errorf("%.60s: %v", body, err)
		}
	}
	r := toChat(t, `{"input":"x"}`)
	if _, err := r.NewStream().Push([]byte(`{"x":` + deep + `}`)); !fault.Is(err, fault.Upstream) {
		t.Error(err)
	}
	many := strings.Repeat(`{"type":"function_call","call_id":"c","name":"f","arguments":""},`, 50_000) +
		strings.Repeat(`{"type":"function_call_output","call_id":"c","output":"x"},`, 50_000) + `{"role":"user","content":"x"}`
	toChat(t, `{"input":[`+many+`]}`)
}
