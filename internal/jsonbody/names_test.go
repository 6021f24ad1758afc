package jsonbody_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

var someNames = jsonbody.NewNames("model max_tokens stop", jsonbody.Names{
	"messages": jsonbody.NewNames("role", jsonbody.Names{"content": jsonbody.NewNames("type text", nil)}),
	"options":  jsonbody.NewNames("keep", nil),
})

func TestOtherSpellingsOfRegisteredNamesAreRejected(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"Model":"m"}`:                          "Model",
		`{"model":"m","MODEL":"x"}`:              "MODEL",
		`{"MAX_TOKENS":5,"model":"m"}`:           "MAX_TOKENS",
		"{\"max_to\u212aens\":5}":                "max_to\u212aens",
		"{\"me\u017fsages\":[]}":                 "me\u017fsages",
		`{"me\u017Fsages":[]}`:                   "me\u017fsages",
		`{"\u004dodel":"m"}`:                     "Model",
		` { "a" : [ 1 , {} ] , "Stop" : null } `: "Stop",
		`{"messages":[{"role":"user","content":"x"},{"Role":"user"}]}`:                   "messages[1].Role",
		`{"messages":[{"content":[{"type":"text"},{"text":"}]\"","Type":1}]}]}`:          "messages[0].content[1].Type",
		`{"messages":{"content":{"TEXT":1}}}`:                                            "messages.content.TEXT",
		`{"options":{"keep":{"Keep":1},"Keep":2}}`:                                       "options.Keep",
		`{"a":"\\","b":[true,-1.5e3,"{",["[",{"Model":1}]],"options":{"x":"","KEEP":1}}`: "options.KEEP",
	} {
		f, ok := fault.As(jsonbody.CheckNames("", []byte(body), someNames))
		if !ok || f.Param != want || fault.FamilyOf(f.Code).Status != 400 || !strings.Contains(f.Message, "Use the exact spelling") {
			t.Errorf("%s: got %v, want a refusal of %s", body, f, want)
		}
	}
	f, _ := fault.As(jsonbody.CheckNames("input", []byte(`[{"Role":1}]`), someNames["messages"]))
	if f == nil || f.Param != "input[0].Role" || f.Message != `Unknown field "input[0].Role". Use the exact spelling "role".` {
		t.Errorf("got %v", f)
	}
}

func TestUnregisteredNamesAreAccepted(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{}`, `[]`, `1`, `"Model"`, `null`, ` {"model" : "Model" , "messages" : [ ] } `,
		`{"model":"m","maxTokens":1,"Models":[],"Größe":1,"models":{"Model":1}}`,
		`{"stop":{"Model":1,"Stop":2},"metadata":{"Model":"a","model":"b"}}`,
		`{"messages":[[{"role":"user"}],"Role",{"content":"Text","tool":{"Role":1}}],"options":"Keep"}`,
		`{"messages":[{"content":[{"type":"text","text":"{\"Type\":1}","x":{"Type":[{"Text":1}]}}]}]}`,
	} {
		if err := jsonbody.CheckNames("", []byte(body), someNames); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestNamesOfFollowTheDecoder(t *testing.T) {
	t.Parallel()
	type request struct {
		Model   *string    `json:"model,omitzero"`
		Content []struct { // with a decoder of its own
			Plain string
			Parts []struct {
				Text string `json:"text"`
			}
		} `json:"content"`
		Schema  map[string]any `json:"schema"`
		Skipped string         `json:"-"`
		Extra   []byte         `json:",embed"`
	}
	want := jsonbody.NewNames("model schema", jsonbody.Names{"content": jsonbody.NewNames("text", nil)})
	if got := jsonbody.NamesOf[request](); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// FuzzCheckNames compares with encoding/json: a body that is accepted means
// the same to a reader that folds case and to one that doesn't.
func FuzzCheckNames(f *testing.F) {
	for _, seed := range []string{
		`{"model":"a","messages":[{"role":"user","content":[{"type":"text","text":"\"x\\"}]}],"options":{"keep":1}}`,
		`{"MODEL":"a","max_tokens":-1.5e+3}`, "{\"max_to\u212aens\":1,\"\u017ftop\":[]}", `{"m\u006fdel":{},"Options":[{}]}`,
	} {
		f.Add([]byte(seed))
	}
	type object map[string]json.RawMessage
	f.Fuzz(func(t *testing.T, body []byte) {
		var exact object
		if jsonbody.DecodeForwarded(body, &exact, someNames) != nil {
			return
		}
		var folded struct {
			Model     json.RawMessage `json:"model"`
			MaxTokens json.RawMessage `json:"max_tokens"`
			Stop      json.RawMessage `json:"stop"`
			Options   json.RawMessage `json:"options"`
			Messages  json.RawMessage `json:"messages"`
		}
		if err := json.Unmarshal(body, &folded); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		for name, got := range map[string]json.RawMessage{"model": folded.Model, "max_tokens": folded.MaxTokens, "stop": folded.Stop, "options": folded.Options, "messages": folded.Messages} {
			if string(got) != string(exact[name]) {
				t.Errorf("%q: encoding/json reads %s as %s, want %s", body, name, got, exact[name])
			}
		}
	})
}

func BenchmarkCheckNames(b *testing.B) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("The quick brown fox. ", 50_000) + `"}]}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if err := jsonbody.CheckNames("", body, someNames); err != nil {
			b.Fatal(err)
		}
	}
}
