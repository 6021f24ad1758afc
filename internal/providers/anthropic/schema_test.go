package anthropic

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/openai"
)

func TestFreeFormObjectsAreNotClosed(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]bool{
		`{"type":"object","properties":{"a":{"type":"string"}}}`:                                 true,
		`{"type":"object","properties":{}}`:                                                      true,
		`{"type":"object","additionalProperties":false}`:                                         true,
		`{"type":"object","properties":{"a":{"type":"object"}}}`:                                 false,
		`{"type":"object","properties":{"a":{"type":["object","null"]}}}`:                        false,
		`{"type":"object","properties":{"a":{"type":"array","items":{"type":"object"}}}}`:        false,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{"enum":["x"]}}}`: true,
	} {
		if got := isClosed(openai.ParseOrdered(jsontext.Value(schema))); got != want {
			t.Errorf("%s: got closed %t, want %t", schema, got, want)
		}
	}
}
