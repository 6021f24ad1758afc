package api

import (
	_ "embed"
	"fmt"
	"net/http"
	"sync"

	"go.yaml.in/yaml/v3"

	"turnpike/docs"
	"turnpike/internal/docsite"
	"turnpike/internal/fault"
	"turnpike/internal/web"
)

//go:embed openapi.yaml
var openAPIYAML []byte

// documentation is built once, on first use: the OpenAPI document and the pages.
type documentation struct {
	json, yaml *web.Asset
	exact      []byte // before publish
	site       docsite.Site
}

// loadDocumentation panics on errors, because the documents are part of the program and the
// tests load them.
var loadDocumentation = sync.OnceValue(func() *documentation {
	d, err := newDocumentation()
	if err != nil {
		panic(fmt.Errorf("embedded documentation: %w", err))
	}
	return d
})

// OpenAPI returns the API's OpenAPI 3.1 document, as JSON.
func OpenAPI() []byte { return loadDocumentation().json.Body() }

// ExactOpenAPI returns the document with exactly the fields and values that this version returns.
func ExactOpenAPI() []byte { return loadDocumentation().exact }

func newDocumentation() (*documentation, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(openAPIYAML, &root); err != nil {
		return nil, err
	}
	document := docsite.ExpandAliases(&root)
	exact, err := docsite.JSON(document, "")
	if err != nil {
		return nil, err
	}
	site, err := docsite.New(document, docs.Files)
	if err != nil {
		return nil, err
	}
	publish(document)
	asJSON, err := docsite.JSON(document, "")
	if err != nil {
		return nil, err
	}
	asYAML, err := yaml.Marshal(document)
	if err != nil {
		return nil, err
	}
	return &documentation{exact: exact, json: web.NewAsset(jsonType, asJSON), yaml: web.NewAsset("application/yaml", asYAML), site: site}, nil
}

// docsPolicy forbids inline scripts and resources of other hosts.
const docsPolicy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// serveOpenAPI serves the document to any website, for tools that run in a browser.
func serveOpenAPI(format func(*documentation) *web.Asset) handler {
	return func(c *Call) error {
		c.W.Header().Set("Access-Control-Allow-Origin", "*")
		return c.serveAsset(format(loadDocumentation()))
	}
}

// serveDocs serves the documentation. URLs with a version never change their content.
func serveDocs(c *Call) error {
	path := c.R.URL.Path
	a, found := loadDocumentation().site[path]
	if !found {
		return fault.New(fault.NotFound, "There is no page %s. See /docs.", web.Sanitize(path, web.MaxLoggedText))
	}
	h := c.W.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", docsPolicy)
	if c.R.URL.Query().Get("v") == a.Version() {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	return c.serveAsset(a)
}

func (c *Call) serveAsset(a *web.Asset) error {
	h := c.W.Header()
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "public, max-age=300")
	}
	contentType, body := a.Negotiate(c.R, h)
	c.send(http.StatusOK, contentType, body)
	return nil
}
