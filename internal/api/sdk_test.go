package api_test

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"turnpike/internal/api"
	"turnpike/internal/docsite"
)

var update = flag.Bool("update", false, "rewrite sdk/openapi.json")

// sdkPaths are the beginnings of the paths that the SDKs cover. OpenAI's SDKs cover the others, except for videos,
// which are here because they are jobs.
var sdkPaths = []string{
	"/v1/agents/runs", "/v1/audit", "/v1/billing", "/v1/deliveries", "/v1/events", "/v1/images/batches", "/v1/keys", "/v1/projects",
	"/v1/replays", "/v1/routes", "/v1/scoped_tokens", "/v1/tool_servers", "/v1/usage", "/v1/videos", "/v1/voice/renders", "/v1/voice/transcriptions", "/v1/webhooks",
}

// TestSDKDocumentIsCurrent fails if the SDKs were generated from an older document. `make sdk` updates both.
func TestSDKDocumentIsCurrent(t *testing.T) {
	t.Parallel()
	const path = "../../sdk/openapi.json"
	want := sdkDocument(t)
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("sdk/openapi.json and the SDKs don't match openapi.yaml. Run make sdk.")
	}
}

// sdkDocument returns the published document, reduced to the code that generators write for the SDKs: every error is
// the default response, because all have the same body, and examples and response headers are left out. Schemas don't
// list alternatives where one type is enough.
func sdkDocument(t *testing.T) []byte {
	t.Helper()
	var file yaml.Node
	if err := yaml.Unmarshal(api.OpenAPI(), &file); err != nil { // JSON is YAML, which keeps the order
		t.Fatal(err)
	}
	root := file.Content[0]
	keep(root, func(name string, _ *yaml.Node) bool { return name != "tags" && !strings.HasPrefix(name, "x-") })
	keep(field(root, "info"), func(name string, _ *yaml.Node) bool { return name != "description" })
	keep(field(root, "paths"), func(path string, _ *yaml.Node) bool {
		// The SDKs read JSON. A video has a signed URL.
		return path != "/v1/videos/{id}/content" && slices.ContainsFunc(sdkPaths, func(prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") })
	})
	failed := &yaml.Node{}
	if err := failed.Encode(map[string]any{"description": "An error.", "content": map[string]any{"application/json": map[string]any{"schema": map[string]any{"$ref": "#/components/schemas/Error"}}}}); err != nil {
		t.Fatal(err)
	}
	each(field(root, "paths"), func(_ string, item *yaml.Node) {
		each(item, func(_ string, operation *yaml.Node) {
			responses := field(operation, "responses")
			keep(responses, func(status string, _ *yaml.Node) bool { return strings.HasPrefix(status, "2") })
			each(responses, func(_ string, response *yaml.Node) {
				keep(response, func(name string, _ *yaml.Node) bool { return name != "headers" })
			})
			responses.Content = append(responses.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "default"}, failed)
		})
	})
	hooks, components := field(root, "webhooks"), field(root, "components")
	each(hooks, func(_ string, item *yaml.Node) {
		each(item, func(_ string, operation *yaml.Node) {
			keep(operation, func(name string, _ *yaml.Node) bool { return name != "parameters" && name != "tags" })
		})
	})
	used := map[string]bool{}
	for _, part := range []*yaml.Node{field(root, "paths"), hooks, components} {
		dropExamples(part)
		mergeAlternatives(root, part)
	}
	markReferences(root, field(root, "paths"), used)
	markReferences(root, hooks, used)
	keep(field(components, "securitySchemes"), func(name string, _ *yaml.Node) bool { return name != "adminKey" }) // of paths that the SDKs don't cover
	each(components, func(section string, entries *yaml.Node) {
		if section != "securitySchemes" {
			keep(entries, func(name string, _ *yaml.Node) bool { return used["#/components/"+section+"/"+name] })
		}
	})
	keep(components, func(_ string, entries *yaml.Node) bool { return len(entries.Content) > 0 })
	document, err := docsite.JSON(root, " ")
	if err != nil {
		t.Fatal(err)
	}
	return append(bytes.TrimSpace(document), '\n')
}

// field returns the value of a mapping's field.
func field(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return &yaml.Node{Kind: yaml.MappingNode}
}

func each(n *yaml.Node, visit func(name string, value *yaml.Node)) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		visit(n.Content[i].Value, n.Content[i+1])
	}
}

// keep removes the fields of a mapping for which a function returns false.
func keep(n *yaml.Node, wanted func(name string, value *yaml.Node) bool) {
	var kept []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if wanted(n.Content[i].Value, n.Content[i+1]) {
			kept = append(kept, n.Content[i], n.Content[i+1])
		}
	}
	n.Content = kept
}

// dropExamples removes the examples below a node. A field of an object can have the same name: it is a mapping in
// properties, which has no examples itself.
func dropExamples(n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		keep(n, func(name string, _ *yaml.Node) bool { return name != "example" && name != "examples" })
		each(n, func(name string, value *yaml.Node) {
			if name != "properties" {
				dropExamples(value)
				return
			}
			each(value, func(_ string, property *yaml.Node) { dropExamples(property) })
		})
		return
	}
	for _, child := range n.Content {
		dropExamples(child)
	}
}

// mergeAlternatives removes alternatives that only restrict the fields of an object, and makes alternatives that are all
// strings one string. Generators write a type and several functions for each alternative.
func mergeAlternatives(root, n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		alternatives := field(n, "anyOf").Content
		values, isString := known(root, alternatives)
		switch {
		case len(alternatives) == 0:
		case len(field(n, "properties").Content) > 0:
			keep(n, func(name string, _ *yaml.Node) bool { return name != "anyOf" })
		case isString:
			keep(n, func(name string, _ *yaml.Node) bool { return name != "anyOf" })
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "type"}, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "string"},
				&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "x-extensible-enum"}, &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: values})
		}
	}
	for _, child := range n.Content {
		mergeAlternatives(root, child)
	}
}

// known returns the known values of alternatives, and whether all of them are strings.
func known(root *yaml.Node, alternatives []*yaml.Node) (values []*yaml.Node, isString bool) {
	for _, a := range alternatives {
		if ref := field(a, "$ref"); ref.Kind == yaml.ScalarNode {
			a = resolve(root, ref.Value)
		}
		if field(a, "type").Value != "string" {
			return nil, false
		}
		values = append(values, field(a, "x-extensible-enum").Content...)
	}
	return values, len(alternatives) > 0
}

func resolve(root *yaml.Node, reference string) *yaml.Node {
	for name := range strings.SplitSeq(strings.TrimPrefix(reference, "#/"), "/") {
		root = field(root, name)
	}
	return root
}

// markReferences collects what a node refers to, directly or not.
func markReferences(root, n *yaml.Node, used map[string]bool) {
	if ref := field(n, "$ref"); n.Kind == yaml.MappingNode && ref.Kind == yaml.ScalarNode && !used[ref.Value] {
		used[ref.Value] = true
		markReferences(root, resolve(root, ref.Value), used)
	}
	for _, child := range n.Content {
		markReferences(root, child, used)
	}
}
