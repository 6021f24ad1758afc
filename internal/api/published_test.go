package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"turnpike/internal/api"
)

func TestPublishedDocumentAcceptsWhatLaterVersionsAdd(t *testing.T) {
	t.Parallel()
	doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Errorf("the document is not valid: %v", err)
	}
	var root map[string]any
	if err := json.Unmarshal(api.OpenAPI(), &root); err != nil {
		t.Fatal(err)
	}
	seen, opened := map[string]bool{}, 0
	var walk func(at string, node any)
	walk = func(at string, node any) {
		switch node := node.(type) {
		case []any:
			for _, child := range node {
				walk(at, child)
			}
		case map[string]any:
			if ref, ok := node["$ref"].(string); ok && !seen[ref] {
				seen[ref] = true
				target := any(root)
				for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
					target = target.(map[string]any)[name]
				}
				walk(ref, target)
			}
			if node["additionalProperties"] == false {
				t.Errorf("%s: a response is closed", at)
			}
			if _, closed := node["enum"].([]any); closed {
				t.Errorf("%s: a value of a response is closed", at)
			}
			if node["x-extensible-enum"] != nil {
				opened++
			}
			for name, child := range node {
				if name != "if" && name != "example" && name != "examples" {
					walk(at+"/"+name, child)
				}
			}
		}
	}
	for path, item := range root["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			walk(method+" "+path, op.(map[string]any)["responses"])
		}
	}
	walk("webhooks", root["webhooks"])
	if opened < 20 {
		t.Errorf("only %d values are open", opened)
	}
}

func TestGeneratorsCanReadThePublishedDocument(t *testing.T) {
	t.Parallel()
	text := string(api.OpenAPI())
	for _, unreadable := range []string{`/properties/`, `"multipleOf"`} {
		if at := strings.Index(text, unreadable); at >= 0 {
			t.Errorf("the document contains %s: %.200s", unreadable, text[max(0, at-100):])
		}
	}
	var root struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct {
					Default     any
					Description string
				}
			}
		}
	}
	if err := json.Unmarshal(api.OpenAPI(), &root); err != nil {
		t.Fatal(err)
	}
	for name, schema := range root.Components.Schemas {
		for field, p := range schema.Properties {
			if p.Default != nil {
				t.Errorf("%s.%s has a default, so generators make it required", name, field)
			}
		}
	}
	if got := root.Components.Schemas["KeyCreate"].Properties["monthly_budget"].Description; !strings.HasSuffix(got, "Default: `null`.") {
		t.Errorf("the default is not described: %q", got)
	}
}

// TestPublishedNumbersAreDoubles protects amounts of credits, for which generators would otherwise choose 32 bits.
func TestPublishedNumbersAreDoubles(t *testing.T) {
	t.Parallel()
	var root map[string]any
	if err := json.Unmarshal(api.OpenAPI(), &root); err != nil {
		t.Fatal(err)
	}
	numbers := 0
	var walk func(at string, node any)
	walk = func(at string, node any) {
		switch node := node.(type) {
		case []any:
			for _, child := range node {
				walk(at, child)
			}
		case map[string]any:
			if node["type"] == "number" {
				numbers++
				if node["format"] != "double" {
					t.Errorf("%s: a number with the format %v", at, node["format"])
				}
			}
			for name, child := range node {
				walk(at+"/"+name, child)
			}
		}
	}
	walk("", root["components"].(map[string]any)["schemas"])
	if numbers == 0 {
		t.Error("the document has no numbers")
	}
}
