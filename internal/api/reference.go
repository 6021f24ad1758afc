package api

import (
	"bytes"
	_ "embed"
	"fmt"
	"net/http"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"turnpike/internal/assets"
)

// The reference: openapi.yaml is written by hand, and everything else is made
// from it once, at the start.
var (
	//go:embed openapi.yaml
	openAPIYAML []byte
	//go:embed docs.css
	docsCSS []byte
)

// asset is a file with the headers that go with it.
type asset struct {
	*assets.File
	header map[string]string
}

type referenceAssets struct{ json, yaml, page, css *asset }

// reference makes the assets. What it reads is part of the program, so a fault
// in it is one of the build, which the tests find.
var reference = sync.OnceValue(func() *referenceAssets {
	r, err := newReference()
	if err != nil {
		panic(fmt.Errorf("embedded API reference: %w", err))
	}
	return r
})

// OpenAPI is the interface's OpenAPI 3.1 document, as JSON.
func OpenAPI() []byte { return reference().json.Body() }

// The page runs no script and loads nothing from elsewhere.
const docsPolicy = "default-src 'none'; style-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func newReference() (*referenceAssets, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(openAPIYAML, &root); err != nil {
		return nil, err
	}
	asJSON, err := jsonOf(&root, "")
	if err != nil {
		return nil, err
	}
	css := assets.New("text/css; charset=utf-8", docsCSS)
	page, err := renderDocs(&root, "/docs/docs.css?v="+css.Version())
	if err != nil {
		return nil, err
	}
	document := map[string]string{"Cache-Control": "public, max-age=300", "Access-Control-Allow-Origin": "*"}
	return &referenceAssets{
		json: &asset{assets.New(jsonType, asJSON), document},
		yaml: &asset{assets.New("application/yaml", openAPIYAML), document},
		page: &asset{assets.New("text/html; charset=utf-8", page), map[string]string{"Cache-Control": "public, max-age=300",
			"Content-Security-Policy": docsPolicy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}},
		// The page names the style sheet by its content, so it may be kept for good.
		css: &asset{css, map[string]string{"Cache-Control": "public, max-age=31536000, immutable",
			"X-Content-Type-Options": "nosniff"}},
	}, nil
}

func (a *asset) serve(c *Call) {
	h := c.w.Header()
	for name, value := range a.header {
		h.Set(name, value)
	}
	contentType, body := a.For(c.r, h)
	c.send(http.StatusOK, contentType, body)
}

// jsonOf writes YAML as JSON and keeps the order in which things were written.
func jsonOf(n *yaml.Node, indent string) ([]byte, error) {
	var out bytes.Buffer
	e := jsontext.NewEncoder(&out, jsontext.WithIndent(indent), jsontext.Multiline(indent != ""), jsontext.SpaceAfterColon(indent != ""))
	if err := writeJSON(e, n); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

func writeJSON(e *jsontext.Encoder, n *yaml.Node) error {
	begin, end := jsontext.BeginObject, jsontext.EndObject
	switch n.Kind {
	case yaml.DocumentNode:
		return writeJSON(e, n.Content[0])
	case yaml.MappingNode:
	case yaml.SequenceNode:
		begin, end = jsontext.BeginArray, jsontext.EndArray
	case yaml.ScalarNode:
		switch tag := n.ShortTag(); tag {
		case "!!str":
			return e.WriteToken(jsontext.String(n.Value))
		case "!!null":
			return e.WriteToken(jsontext.Null)
		case "!!bool", "!!int", "!!float":
			return e.WriteValue(jsontext.Value(n.Value)) // JSON's own notation, or an error
		default:
			return fmt.Errorf("line %d: %s has no form in JSON", n.Line, tag)
		}
	default:
		return fmt.Errorf("line %d: anchors are not supported", n.Line)
	}
	if err := e.WriteToken(begin); err != nil {
		return err
	}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			if err := e.WriteToken(jsontext.String(child.Value)); err != nil {
				return err
			}
			continue
		}
		if err := writeJSON(e, child); err != nil {
			return err
		}
	}
	return e.WriteToken(end)
}
