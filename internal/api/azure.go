package api

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// azurePath is below which Azure's clients send their requests: /openai/v1/… as OpenAI's, and
// /openai/deployments/{deployment}/… with the name of the model in the path.
const azurePath = "/openai"

// azureRequest is what a request to one of Azure's paths has in addition to OpenAI's.
type azureRequest struct{ deployment string }

type azureKey struct{}

// azureOf returns nil for requests to other paths.
func azureOf(r *http.Request) *azureRequest {
	a, _ := r.Context().Value(azureKey{}).(*azureRequest)
	return a
}

// translateAzure returns a request to one of Azure's paths as a request to the same endpoint under /v1,
// where its key, its limits and its log entry are the same. Other requests are returned unchanged.
func translateAzure(r *http.Request) *http.Request {
	rest, ok := strings.CutPrefix(r.URL.Path, azurePath+"/")
	if !ok {
		return r
	}
	var a azureRequest
	if name, endpoint, found := strings.Cut(strings.TrimPrefix(rest, "deployments/"), "/"); found && strings.HasPrefix(rest, "deployments/") {
		a.deployment, rest = name, "v1/"+endpoint
	}
	if !strings.HasPrefix(rest, "v1/") {
		return r
	}
	out := r.WithContext(context.WithValue(r.Context(), azureKey{}, &a))
	u := *r.URL
	u.Path, u.RawPath = "/"+rest, ""
	query := u.Query()
	query.Del("api-version") // all versions are served alike
	u.RawQuery = query.Encode()
	out.URL = &u
	return out
}

// translateCohere returns a request of Cohere's current clients as the same request under /v1.
func translateCohere(r *http.Request) *http.Request {
	if r.URL.Path != "/v2/rerank" {
		return r
	}
	out, u := r.Clone(r.Context()), *r.URL
	u.Path, u.RawPath = "/v1/rerank", ""
	out.URL = &u
	return out
}

// withDeployment sets the model of a body to the deployment of the path, which decides at Azure.
func (c *Call) withDeployment(body []byte) []byte {
	a := azureOf(c.R)
	if a == nil || a.deployment == "" {
		return body
	}
	name, err := jsontext.AppendQuote(nil, a.deployment)
	if err != nil {
		return body // the path has been checked
	}
	d := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true)) // which the handler rejects
	if d.PeekKind() != '{' {
		return body
	}
	_, _ = d.ReadToken()
	start := d.InputOffset()
	for d.PeekKind() == '"' {
		token, err := d.ReadToken()
		if err != nil {
			return body
		}
		isModel := token.String() == "model"
		value, err := d.ReadValue()
		if err != nil {
			return body
		}
		if end := d.InputOffset(); isModel {
			return slices.Concat(body[:end-int64(len(value))], name, body[end:])
		}
	}
	comma := ","
	if d.PeekKind() == '}' && start == d.InputOffset() {
		comma = ""
	}
	return slices.Concat(body[:start], []byte(`"model":`), name, []byte(comma), body[start:])
}

// setDeployment is withDeployment for a form.
func (c *Call) setDeployment(values url.Values) {
	if a := azureOf(c.R); a != nil && a.deployment != "" {
		values["model"] = []string{a.deployment}
	}
}
