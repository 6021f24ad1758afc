package jsonbody_test

import (
	"bytes"
	"io"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/jsonbody"
)

func TestMembersHaveTheirNamesAndValues(t *testing.T) {
	t.Parallel()
	const body = ` { "a" : "x,\"}" , "b\u0063":[{"a":1},2] ,"":{"a":{}}, "n": -1.5e3 , "t":true} `
	want := []string{`a="x,\"}"`, `bc=[{"a":1},2]`, `={"a":{}}`, `n=-1.5e3`, `t=true`}
	var got []string
	for m := range jsonbody.Members([]byte(body)) {
		got = append(got, string(m.Name)+"="+body[m.Start:m.End])
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if m, found := jsonbody.FindMember([]byte(body), "bc"); !found || body[m.Start:m.End] != `[{"a":1},2]` {
		t.Errorf("got %v, %v", m, found)
	}
	for _, other := range []string{"", "null", "[]", `"a"`, "{}", " {\n}"} {
		if m, found := jsonbody.FindMember([]byte(other), "a"); found {
			t.Errorf("%q: got %v, want no member", other, m)
		}
	}
}

// FuzzMembers compares with the parser. Invalid text has any members, which are inside of it.
func FuzzMembers(f *testing.F) {
	for _, seed := range []string{`{"a":1 ,"b\n":[{}],"c":"\\\""}`, `{"a"`, `{"a`, `{"a":`, `{"a":"`, `{"a":[}`, `{"a":\`, `{"\`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var got []jsonbody.Member
		for m := range jsonbody.Members(body) {
			_ = body[m.Start:m.End]
			got = append(got, m)
		}
		if !jsontext.Value(body).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) || jsontext.Value(body).Kind() != '{' {
			return
		}
		d := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
		if _, err := d.ReadToken(); err != nil {
			t.Fatal(err)
		}
		for d.PeekKind() == '"' {
			name, err := d.ReadToken()
			if err != nil {
				t.Fatal(err)
			}
			text := name.String()
			value, err := d.ReadValue()
			if err != nil {
				t.Fatal(err)
			}
			if len(got) == 0 || string(bytes.ToValidUTF8(got[0].Name, []byte("\uFFFD"))) != string(bytes.ToValidUTF8([]byte(text), []byte("\uFFFD"))) || string(body[got[0].Start:got[0].End]) != string(value) {
				t.Fatalf("%q: got %v, want %q and %q", body, got, text, value)
			}
			got = got[1:]
		}
		if _, err := d.ReadToken(); err != nil && err != io.EOF || len(got) > 0 {
			t.Fatalf("%q: got %d more members, %v", body, len(got), err)
		}
	})
}
