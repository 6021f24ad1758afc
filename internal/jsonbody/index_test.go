package jsonbody_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/jsonbody"
)

func TestIndexFindsValues(t *testing.T) {
	t.Parallel()
	text := []byte(` {"a" : 1, "b":{"c":["x", {"d\u0065":"y\n"}, 2, [], null, "z"]} ,"e": null, "f":"" } `)
	root := jsonbody.NewIndex(text).Root()
	for name, want := range map[string]string{"a": "1", "b": `{"c":["x", {"d\u0065":"y\n"}, 2, [], null, "z"]}`, "e": "null", "f": `""`, "c": ""} {
		if got := root.Find(name); string(got.Text()) != want || got.Exists() != (want != "") {
			t.Errorf("%s is %q, want %q", name, got.Text(), want)
		}
	}
	var elements []string
	for e := range root.Find("b").Find("c").Elements() {
		elements = append(elements, string(e.Text()))
		if e.Kind() == '{' && string(e.Find("de").String()) != "y\n" {
			t.Errorf("de is %q", e.Find("de").String())
		}
	}
	if want := []string{`"x"`, `{"d\u0065":"y\n"}`, "[]", "null", `"z"`}; !reflect.DeepEqual(elements, want) {
		t.Errorf("got the elements %q, want %q", elements, want)
	}
	if got := (jsonbody.Value{}); got.Exists() || got.Kind() != 0 || got.Text() != nil || got.String() != nil || got.Find("a").Exists() {
		t.Error("the zero value isn't absent")
	}
}

func TestIndexOfAnotherTextIsNew(t *testing.T) {
	t.Parallel()
	text, same := []byte(`{"a":1}`), []byte(`{"a":2}`)
	x := jsonbody.NewIndex(text)
	if x.Of(text) != x {
		t.Error("the index of the same text is new")
	}
	for _, other := range [][]byte{same, text[:6], nil} {
		if x.Of(other) == x {
			t.Errorf("the index is also that of %q", other)
		}
	}
	if got := (*jsonbody.Index)(nil).Of(same).Root().Find("a").Text(); string(got) != "2" {
		t.Errorf("without an index: got %q", got)
	}
}

// FuzzIndex compares the values with those of the parser. Any other text has any values, which are inside of it.
func FuzzIndex(f *testing.F) {
	for _, seed := range []string{`{"a":1 ,"b\n":[{}],"c":"\\\"","d":[1,[true],"x",-2e1]}`, ` "x" `, `[`, `{"a"`, `{"a`, `{"a":`, `{"a":"`, `{"a":[}`, `{"a":\`, `{"\`, `}{`, `1`, `{"a"::"b"}`, `{[]:1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		root := jsonbody.NewIndex(text).Root()
		got := decoded(root)
		value := jsontext.Value(bytes.Clone(text))
		if !value.IsValid() || value.Kind() != '{' && value.Kind() != '[' {
			return
		}
		var want any
		if err := json.Unmarshal(value, &want); err != nil { // a number beyond float64
			return
		}
		if want = withoutNumbers(want); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	})
}

// decoded returns a value as the parser does.
func decoded(v jsonbody.Value) any {
	switch v.Kind() {
	case '{':
		out := map[string]any{}
		for name, member := range v.Members() {
			out[string(name)] = decoded(member)
		}
		return out
	case '[':
		out := []any{}
		for e := range v.Elements() {
			out = append(out, decoded(e))
		}
		return out
	case '"':
		return string(v.String())
	}
	var out any
	_ = json.Unmarshal(v.Text(), &out) // it may be no JSON
	return out
}

// withoutNumbers removes what an index leaves out of arrays.
func withoutNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = withoutNumbers(member)
		}
	case []any:
		out := []any{}
		for _, e := range v {
			if _, number := e.(float64); !number {
				out = append(out, withoutNumbers(e))
			}
		}
		return out
	}
	return v
}
