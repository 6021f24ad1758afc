package contract

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"turnpike/internal/api"
)

// document is the OpenAPI document with a compiler for its schemas.
type document struct {
	root     map[string]any
	compiler *jsonschema.Compiler
}

const documentURL = "https://turnpike.invalid/openapi.json"

func newValidator() (*Validator, error) {
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(api.ExactOpenAPI()))
	if err != nil {
		return nil, err
	}
	d := &document{root.(map[string]any), jsonschema.NewCompiler()}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	if err := d.compiler.AddResource(documentURL, root); err != nil {
		return nil, err
	}
	v := &Validator{routes: http.NewServeMux(), shared: map[int]*response{}, retryable: map[string]bool{}}
	for _, c := range d.root["x-error-codes"].([]any) {
		c := c.(map[string]any)
		v.retryable[c["code"].(string)] = c["retryable"] == true
	}
	if v.anthropicError, err = d.schema("components", "schemas", "AnthropicError"); err != nil {
		return nil, err
	}
	v.anthropicModels = map[string]*jsonschema.Schema{}
	for path, name := range map[string]string{"/v1/models": "AnthropicModelList", "/v1/models/{id}": "AnthropicModel"} {
		if v.anthropicModels[path], err = d.schema("components", "schemas", name); err != nil {
			return nil, err
		}
	}
	for name, r := range d.object("components", "responses") {
		if strings.HasPrefix(name, "Message") { // errors in Anthropic's format, see isAnthropic
			continue
		}
		status, err := strconv.Atoi(fmt.Sprint(r.(map[string]any)["x-status"]))
		if err != nil {
			return nil, fmt.Errorf("response %s: x-status: %w", name, err)
		}
		if v.shared[status], err = d.response("components", "responses", name); err != nil {
			return nil, err
		}
	}
	for path, methods := range d.object("paths") {
		for method := range methods.(map[string]any) {
			op, pattern, err := d.operation(path, method)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", method, path, err)
			}
			v.routes.Handle(strings.ToUpper(method)+" "+pattern, op)
		}
	}
	return v, nil
}

// object follows names from the root and resolves references.
func (d *document) object(names ...string) map[string]any {
	o := d.root
	for _, name := range names {
		o, _ = o[name].(map[string]any)
		if ref, ok := o["$ref"].(string); ok {
			o = d.object(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
		}
	}
	return o
}

// schema compiles the schema at a path. It returns nil if there is none.
func (d *document) schema(place ...string) (*jsonschema.Schema, error) {
	last := len(place) - 1
	if d.object(place[:last]...)[place[last]] == nil {
		return nil, nil
	}
	pointer := ""
	at := d.root
	for _, name := range place {
		pointer += "/" + url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
		at, _ = at[name].(map[string]any)
		if ref, ok := at["$ref"].(string); ok { // also outside schemas, where the compiler doesn't resolve it
			pointer = strings.TrimPrefix(ref, "#")
			at = d.object(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
		}
	}
	return d.compiler.Compile(documentURL + "#" + pointer)
}

func (d *document) operation(path, method string) (*operation, string, error) {
	op := &operation{responses: map[int]*response{}}
	var err error
	if op.request, err = d.schema("paths", path, method, "requestBody", "content", "application/json", "schema"); err != nil {
		return nil, "", err
	}
	for _, kind := range formTypes {
		form, err := d.schema("paths", path, method, "requestBody", "content", kind, "schema")
		if err != nil {
			return nil, "", err
		}
		if form != nil {
			op.form = form
		}
	}
	if op.request != nil {
		op.foreign = target(op.request).AdditionalProperties != false
	}
	for status := range d.object("paths", path, method, "responses") {
		code, err := strconv.Atoi(status)
		if err != nil {
			return nil, "", err
		}
		if op.responses[code], err = d.response("paths", path, method, "responses", status); err != nil {
			return nil, "", fmt.Errorf("%s: %w", status, err)
		}
	}
	parameters, _ := d.object("paths", path, method)["parameters"].([]any)
	for _, p := range parameters {
		if p := p.(map[string]any); p["x-may-contain-slashes"] == true {
			path = strings.ReplaceAll(path, fmt.Sprintf("{%s}", p["name"]), fmt.Sprintf("{%s...}", p["name"]))
		}
	}
	return op, path, nil
}

// target resolves references to a schema.
func target(s *jsonschema.Schema) *jsonschema.Schema {
	for s.Ref != nil {
		s = s.Ref
	}
	return s
}

func (d *document) response(place ...string) (*response, error) {
	r := &response{headers: map[string]header{}, content: map[string]media{}}
	at := func(more ...string) []string { return append(slices.Clone(place), more...) }
	for name := range d.object(at("headers")...) {
		schema, err := d.schema(at("headers", name, "schema")...)
		if err != nil {
			return nil, err
		}
		r.headers[http.CanonicalHeaderKey(name)] = header{d.object(at("headers", name)...)["required"] == true, schema}
	}
	for contentType, o := range d.object(at("content")...) {
		var m media
		var err error
		if m.schema, err = d.schema(at("content", contentType, "schema")...); err != nil {
			return nil, err
		}
		if m.event, err = d.schema(at("content", contentType, "x-event-schema")...); err != nil {
			return nil, err
		}
		m.columns, m.last = texts(o, "x-columns"), texts(o, "x-last-events")
		m.unnamed = o.(map[string]any)["x-unnamed-events"] == true
		m.numbered = o.(map[string]any)["x-numbered-events"] == true
		r.content[contentType] = m
	}
	return r, nil
}

// texts returns an array of strings in an object, if present.
func texts(object any, name string) (out []string) {
	list, _ := object.(map[string]any)[name].([]any)
	for _, text := range list {
		out = append(out, text.(string))
	}
	return out
}
