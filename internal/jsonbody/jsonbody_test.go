package jsonbody_test

import (
	"encoding/json"
	"strings"
	"testing"

	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

type sample struct {
	Name   string                           `json:"name"`
	Count  *int64                           `json:"count"`
	List   []string                         `json:"list"`
	Budget *credits.Micro                   `json:"budget"`
	Inner  *sample                          `json:"inner"`
	Patch  jsonbody.Optional[credits.Micro] `json:"patch"`
}

func TestErrorsNameTheFieldAndTheExpectedType(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]struct{ code, param, says string }{
		`{"name":1}`:              {"invalid_parameter", "name", "a string"},
		`{"count":"1"}`:           {"invalid_parameter", "count", "a whole number"},
		`{"count":1.5}`:           {"invalid_parameter", "count", "whole number"},
		`{"list":{"a":1}}`:        {"invalid_parameter", "list", "an array"},
		`{"list":["a",2]}`:        {"invalid_parameter", "list[1]", "a string"},
		`{"inner":{"inner":[]}}`:  {"invalid_parameter", "inner.inner", "an object"},
		`{"budget":-1}`:           {"invalid_parameter", "budget", "from 0 to"},
		`{"budget":1e3}`:          {"invalid_parameter", "budget", "decimal number"},
		`{"patch":"x"}`:           {"invalid_parameter", "patch", "decimal number"},
		`{"inner":{"nmae":1}}`:    {"unknown_parameter", "inner.nmae", "Allowed fields: name, count, list, budget, inner, patch"},
		`{"name":"a","name":"b"}`: {"invalid_json", "name", "twice"},
		`{"name":`:                {"invalid_json", "", "not valid JSON"},
		`{"name":"a"}{}`:          {"invalid_json", "", "not valid JSON"},
		`[]`:                      {"invalid_json", "", "JSON object"},
		`null`:                    {"invalid_json", "", "JSON object"},
		"{\"name\":\"\xc3\"}":     {"invalid_json", "", "not valid JSON"},
	} {
		var v sample
		err := jsonbody.DecodeStrict([]byte(body), &v)
		f, ok := fault.As(err)
		if !ok || string(f.Code) != want.code || f.Param != want.param || !strings.Contains(f.Message, want.says) {
			t.Errorf("%s: %#v", body, f)
		}
	}
}

func TestOptionalDistinguishesAbsentFromNull(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]jsonbody.Optional[credits.Micro]{
		`{}`:             {},
		`{"patch":null}`: {Set: true, Null: true},
		`{"patch":1.5}`:  {Set: true, Value: 1_500_000},
	} {
		var v sample
		if err := jsonbody.DecodeStrict([]byte(body), &v); err != nil || v.Patch != want {
			t.Errorf("%s: %+v, %v", body, v.Patch, err)
		}
	}
}

func TestDepthIsCountedOutsideStrings(t *testing.T) {
	t.Parallel()
	for body, ok := range map[string]bool{
		strings.Repeat("[", 5) + strings.Repeat("]", 5): true,
		strings.Repeat("[", 6) + strings.Repeat("]", 6): false,
		`{"a":"[[[[[[[[[["}`:                            true,
		`{"a":"\"[[[[[[[[[["}`:                          true,
		`{"a":"\\\"[[[[[[[[[["}`:                        true,
		`{"a":"\\",` + strings.Repeat("[", 5):           false,
		`{"a":"[[[[[[`:                                  true,
		`"\`:                                            true,
		`[[[[[]]]],[[[[]]]]]`:                           true,
		strings.Repeat(`{"a":`, 6):                      false,
	} {
		if err := jsonbody.CheckDepth([]byte(body), 5); (err == nil) != ok {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// FuzzDepth: the depth is the one that is found byte by byte.
func FuzzDepth(f *testing.F) {
	for _, s := range []string{`{}`, `[[[[[[`, `{"a":"[\"[\\"}`, `"\`, `]]][[[[[["[`, `"\\\\\""[[[[[["`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		depth, deepest, inString, escaped := 0, 0, false, false
		for _, c := range body {
			switch {
			case escaped:
				escaped = false
			case inString:
				escaped, inString = c == '\\', c != '"'
			case c == '"':
				inString = true
			case c == '{' || c == '[':
				depth++
				deepest = max(deepest, depth)
			case c == '}' || c == ']':
				depth--
			}
		}
		if err := jsonbody.CheckDepth(body, 5); (err != nil) != (deepest > 5) {
			t.Errorf("%q has %d levels: %v", body, deepest, err)
		}
	})
}

// FuzzDecode: whatever comes in, the answer is a value or a fault with a
// message, and what is accepted is JSON by the standard library's judgement too.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{}`, `{"name":"x","count":1,"list":[],"budget":1.5,"inner":{},"patch":null}`, `{"name":`, "\xff", `[[[[`, `{"a":1,"a":2}`, `{"budget":1e999999}`, `null`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if jsonbody.CheckDepth(body, 128) != nil {
			return
		}
		var v sample
		err := jsonbody.DecodeStrict(body, &v)
		if err == nil {
			if !json.Valid(body) {
				t.Errorf("%q was accepted", body)
			}
			return
		}
		fe, ok := fault.As(err)
		if !ok || fe.Message == "" || fault.FamilyOf(fe.Code).Status != 400 {
			t.Errorf("%q: %v", body, err)
		}
	})
}
