package api_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"turnpike/internal/access"
	"turnpike/internal/agents"
	"turnpike/internal/api"
	"turnpike/internal/docsite"
	"turnpike/internal/fault"
	"turnpike/test/fakes/contract"
)

// publicPaths need no key, so they are not in the route table.
var publicPaths = []string{"GET /healthz", "GET /readyz", "GET /openapi.json", "GET /openapi.yaml", "GET /docs", "GET /files/{workspace}/{environment}/{sha256}/{name}",
	"POST /leaks/report", "POST /leaks/github", "GET /leaks/gitlab", "POST /leaks/gitlab", "POST /oauth/token"}

// modelCalls are not remembered under an Idempotency-Key.
var modelCalls = []string{"POST /v1/chat/completions", "POST /v1/completions", "POST /v1/responses", "POST /v1/responses/input_tokens", "POST /v1/messages",
	"POST /v1/messages/count_tokens", "POST /v1/embeddings", "POST /v1/moderations", "POST /v1/rerank",
	"POST /v1/images/generations", "POST /v1/images/edits", "POST /v1/audio/speech", "POST /v1/audio/transcriptions", "POST /v1/audio/translations"}

// referenceServer serves what needs neither a store nor a key.
func referenceServer(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(api.New(api.Deps{Now: time.Now}, api.Settings{Limits: api.Limits{Header: 32 << 10}}))
	t.Cleanup(s.Close)
	return s
}

// get fetches a path of the reference and checks the answer like any other.
func get(t *testing.T, s *httptest.Server, path string) (*http.Response, []byte) {
	t.Helper()
	c := &http.Client{Transport: contract.New(t).Transport(t, nil)}
	res, err := c.Get(s.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, res.StatusCode, body)
	}
	return res, body
}

// checkedDocument is loaded and checked once: the loader is not made to be used
// by several tests at a time.
var checkedDocument = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(api.ExactOpenAPI())
	if err != nil {
		return nil, err
	}
	return doc, doc.Validate(context.Background())
})

func loadDocument(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := checkedDocument()
	if err != nil {
		t.Fatalf("the document is not valid: %v", err)
	}
	return doc
}

// operations lists the document's operations by method and path.
func operations(t *testing.T) map[string]*openapi3.Operation {
	t.Helper()
	found := map[string]*openapi3.Operation{}
	for path, item := range loadDocument(t).Paths.Map() {
		for method, op := range item.Operations() {
			found[method+" "+path] = op
		}
	}
	return found
}

func TestDocumentIsValidOpenAPI31(t *testing.T) {
	t.Parallel()
	if doc := loadDocument(t); !strings.HasPrefix(doc.OpenAPI, "3.1.") {
		t.Errorf("openapi is %s, want 3.1", doc.OpenAPI)
	}
}

func TestRoutesAndDocumentAgree(t *testing.T) {
	t.Parallel()
	documented := operations(t)
	served := slices.Clone(publicPaths)
	for _, rt := range api.Routes() {
		name := rt.Method + " " + strings.ReplaceAll(rt.Path, "...}", "}")
		served = append(served, name)
		op := documented[name]
		if op == nil {
			t.Errorf("%s is not in the document", name)
			continue
		}
		if scope := op.Extensions["x-scope"]; scope != string(rt.Scope) {
			t.Errorf("%s needs the scope %s, but the document says %v", name, rt.Scope, scope)
		}
		if !strings.HasSuffix(strings.TrimSpace(op.Description), fmt.Sprintf("Requires the scope `%s`.", rt.Scope)) {
			t.Errorf("the description of %s does not end with its scope", name)
		}
	}
	for _, rt := range api.AdminRoutes() {
		name := rt.Method + " " + rt.Path
		served = append(served, name)
		op := documented[name]
		if op == nil || op.Security == nil || len(*op.Security) != 1 || (*op.Security)[0]["adminKey"] == nil || !strings.HasSuffix(strings.TrimSpace(op.Description), fmt.Sprintf("Requires an admin key with the scope `%s`.", rt.Scope)) {
			t.Errorf("%s is not in the document with an admin key and its scope %s", name, rt.Scope)
		}
	}
	for name, op := range documented {
		if !slices.Contains(served, name) {
			t.Errorf("%s is in the document but not served", name)
		}
		if open := op.Security != nil && len(*op.Security) == 0; open != slices.Contains(publicPaths, name) {
			t.Errorf("%s: the document is wrong about whether a key is needed", name)
		}
	}
}

func TestEveryOperationIsFullyDescribed(t *testing.T) {
	t.Parallel()
	doc := loadDocument(t)
	seen := map[string]string{}
	camelCase := regexp.MustCompile(`^[a-z]+([A-Z][A-Za-z]*)*$`)
	for name, op := range operations(t) {
		if !camelCase.MatchString(op.OperationID) || seen[op.OperationID] != "" {
			t.Errorf("%s: the operationId %q is not in camelCase, or %s has it too", name, op.OperationID, seen[op.OperationID])
		}
		seen[op.OperationID] = name
		if op.Summary == "" || op.Description == "" {
			t.Errorf("%s has no summary or no description", name)
		}
		if len(op.Tags) != 1 || doc.Tags.Get(op.Tags[0]) == nil {
			t.Errorf("%s has the tags %v, want one that is described", name, op.Tags)
		}
		underV1 := strings.Contains(name, " /v1/")
		needsKey := underV1 || strings.Contains(name, " /mcp")
		want := map[string]bool{"Service-Project": needsKey,
			"Idempotency-Key": underV1 && strings.HasPrefix(name, "POST ") && (!slices.Contains(modelCalls, name) || name == "POST /v1/responses")} // for background responses
		for header, wanted := range want {
			if has := op.Parameters.GetByInAndName("header", header) != nil; has != wanted {
				t.Errorf("%s: the header %s is documented: %t, want %t", name, header, has, wanted)
			}
		}
		for status, r := range op.Responses.Map() {
			if status == "200" {
				continue
			}
			if have := r.Value.Extensions["x-status"]; fmt.Sprint(have) != status {
				t.Errorf("%s: the response of %s is the one for %v", name, status, have)
			}
		}
		for _, status := range []int{400, 401, 403, 409, 413, 429, 500, 503} { // what any request can meet on its way in
			if needsKey && op.Responses.Status(status) == nil {
				t.Errorf("%s does not document %d", name, status)
			}
		}
	}
}

func TestErrorCodesAndDocumentAgree(t *testing.T) {
	t.Parallel()
	var doc struct {
		Codes []struct {
			Code      fault.Code
			Status    int
			Type      string
			Retryable bool
		} `json:"x-error-codes"`
		Components struct {
			Schemas struct {
				Error struct {
					Properties struct {
						Error struct {
							Properties map[string]struct{ Enum []string }
						}
					}
				}
			}
			Responses map[string]struct {
				Status  int `json:"x-status"`
				Content map[string]struct {
					Schema struct {
						AllOf []struct {
							Properties struct {
								Error struct {
									Properties struct {
										Code struct{ Enum []string }
										Type struct{ Const string }
									}
								}
							}
						}
					}
				}
			}
		}
	}
	if err := json.Unmarshal(api.ExactOpenAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	table := map[fault.Code]fault.Family{}
	byStatus := map[int][]string{}
	types := map[string]bool{}
	for _, c := range doc.Codes {
		table[c.Code] = fault.Family{Status: c.Status, Type: c.Type}
		if c.Retryable != c.Code.Retryable() {
			t.Errorf("%s is retryable in the document's table: %t", c.Code, c.Retryable)
		}
		byStatus[c.Status] = append(byStatus[c.Status], string(c.Code))
		types[c.Type] = true
	}
	for code, family := range fault.Codes() {
		if got, ok := table[code]; !ok || got != family {
			t.Errorf("%s is %+v in the code and %+v in the document's table (there: %t)", code, family, got, ok)
		}
	}
	if len(table) != len(fault.Codes()) || len(doc.Codes) != len(table) {
		t.Errorf("the document's table has %d rows with %d codes, the code has %d", len(doc.Codes), len(table), len(fault.Codes()))
	}
	fields := doc.Components.Schemas.Error.Properties.Error.Properties
	sameSet(t, "the codes of the error schema", fields["code"].Enum, slices.Collect(func(yield func(string) bool) {
		for code := range fault.Codes() {
			if !yield(string(code)) {
				return
			}
		}
	}))
	sameSet(t, "the types of the error schema", fields["type"].Enum, slices.Collect(maps.Keys(types)))
	statuses := map[int]bool{}
	for name, r := range doc.Components.Responses {
		statuses[r.Status] = true
		if strings.HasPrefix(name, "Message") { // in Anthropic's format, without codes
			continue
		}
		narrowed := r.Content["application/json"].Schema.AllOf[1].Properties.Error.Properties
		sameSet(t, "the codes of the response "+name, narrowed.Code.Enum, byStatus[r.Status])
		if want := table[fault.Code(byStatus[r.Status][0])].Type; narrowed.Type.Const != want {
			t.Errorf("the response %s has the type %s, want %s", name, narrowed.Type.Const, want)
		}
	}
	if len(statuses) != len(byStatus) {
		t.Errorf("there are responses for %d statuses, but codes for %d", len(statuses), len(byStatus))
	}
}

func TestScopesAndDocumentAgree(t *testing.T) {
	t.Parallel()
	var documented, known []string
	for _, s := range loadDocument(t).Components.Schemas["Scope"].Value.Enum {
		documented = append(documented, s.(string))
	}
	for _, s := range access.Scopes() {
		known = append(known, string(s))
	}
	sameSet(t, "the scopes", documented, known)
}

func TestStatesOfRunsAndDocumentAgree(t *testing.T) {
	t.Parallel()
	var documented, known []string
	for _, s := range loadDocument(t).Components.Schemas["AgentRunStatus"].Value.Enum {
		documented = append(documented, s.(string))
	}
	for _, s := range agents.Statuses {
		known = append(known, string(s))
	}
	sameSet(t, "the states of runs", documented, known)
}

func sameSet(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("%s are\n%v, want\n%v", what, got, want)
	}
}

// Wherever an example stands beside a schema, or in one, it must satisfy it.
func TestExamplesSatisfyTheirSchemas(t *testing.T) {
	t.Parallel()
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(api.ExactOpenAPI()))
	if err != nil {
		t.Fatal(err)
	}
	const at = "https://turnpike.invalid/openapi.json"
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(at, root); err != nil {
		t.Fatal(err)
	}
	checked := 0
	check := func(pointer string, example any) {
		schema, err := compiler.Compile(at + "#" + pointer)
		if err == nil {
			err = schema.Validate(example)
		}
		if err != nil {
			t.Errorf("an example at %s: %v", pointer, err)
		}
		checked++
	}
	var walk func(pointer string, node any)
	walk = func(pointer string, node any) {
		switch node := node.(type) {
		case []any:
			for i, child := range node {
				walk(pointer+"/"+strconv.Itoa(i), child)
			}
		case map[string]any:
			if example, ok := node["example"]; ok {
				check(pointer+"/schema", example)
			}
			switch examples := node["examples"].(type) {
			case []any: // of a schema
				for _, example := range examples {
					check(pointer, example)
				}
			case map[string]any: // of a body
				for _, example := range examples {
					check(pointer+"/schema", example.(map[string]any)["value"])
				}
			}
			for name, child := range node {
				if name != "example" && name != "examples" {
					walk(pointer+"/"+url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(name)), child)
				}
			}
		}
	}
	walk("", root)
	if checked < 40 {
		t.Errorf("only %d examples were found", checked)
	}
}

// The example of a stream is text, so it is checked as an answer.
func TestStreamExamplesAreValid(t *testing.T) {
	t.Parallel()
	for name, headers := range map[string]http.Header{
		"POST /v1/chat/completions":       {"Service-Model": {"gpt-4o-mini"}, "Service-Provider": {"simulator"}},
		"POST /v1/responses":              {"Service-Model": {"gpt-4o-mini"}, "Service-Provider": {"simulator"}},
		"POST /v1/messages":               {"Service-Model": {"claude-sonnet-4-5"}, "Service-Provider": {"simulator"}},
		"GET /v1/agents/runs/{id}/events": {},
	} {
		method, path, _ := strings.Cut(name, " ")
		content := operations(t)[name].Responses.Status(200).Value.Content["text/event-stream"]
		headers.Set("Content-Type", "text/event-stream; charset=utf-8")
		headers.Set("X-Request-Id", "req_01h455vb4pex5vsknk084sn02q")
		res := &http.Response{StatusCode: http.StatusOK, Header: headers}
		contract.New(t).Check(t, httptest.NewRequest(method, strings.ReplaceAll(path, "{id}", "run_1"), nil), res, []byte(content.Example.(string)))
	}
}

func TestDocumentIsServedToEveryOrigin(t *testing.T) {
	t.Parallel()
	s := referenceServer(t)
	res, body := get(t, s, "/openapi.json")
	if res.Header.Get("Access-Control-Allow-Origin") != "*" || res.Header.Get("Cache-Control") == "" {
		t.Errorf("headers are %v", res.Header)
	}
	if !json.Valid(body) || !bytes.Equal(body, api.OpenAPI()) {
		t.Error("/openapi.json is not the document")
	}
	_, body = get(t, s, "/openapi.yaml")
	var fromYAML, fromJSON any
	if err := errors.Join(yaml.Unmarshal(body, &fromYAML), yaml.Unmarshal(api.OpenAPI(), &fromJSON)); err != nil || !reflect.DeepEqual(fromYAML, fromJSON) {
		t.Errorf("/openapi.yaml is not the document of /openapi.json (%v)", err)
	}
	if shared := regexp.MustCompile(`(?m)<<:|x-common|: [&*][a-z]+[A-Z]`).Find(body); shared != nil {
		t.Errorf("/openapi.yaml contains %q, want aliases expanded", shared)
	}
}

func TestDocsShowEveryOperationScopeAndErrorCode(t *testing.T) {
	t.Parallel()
	s := referenceServer(t)
	res, body := get(t, s, "/docs/api")
	if policy := res.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; style-src 'self'; script-src 'self';") {
		t.Errorf("the policy is %q", policy)
	}
	for _, scope := range access.Scopes() {
		if !strings.Contains(string(body), "<li><code>"+string(scope)+"</code></li>") {
			t.Errorf("/docs/api lacks the scope %s", scope)
		}
	}
	var pages strings.Builder
	for _, m := range regexp.MustCompile(`href="(/docs/api/[^"#]+)"`).FindAllStringSubmatch(string(body), -1) {
		_, page := get(t, s, m[1])
		if len(page) > 256<<10 { // a tenth of that on the wire
			t.Errorf("%s has %d bytes", m[1], len(page))
		}
		pages.Write(page)
	}
	for name, op := range operations(t) {
		for _, want := range []string{`id="` + op.OperationID + `"`, `href="#` + op.OperationID + `"`, "<code>" + strings.SplitN(name, " ", 2)[1] + "</code>"} {
			if !strings.Contains(pages.String(), want) {
				t.Errorf("the reference lacks %s of %s", want, name)
			}
		}
	}
	_, body = get(t, s, docsite.ErrorsPage)
	for code := range fault.Codes() {
		if !strings.Contains(string(body), ` id="`+string(code)+`"`) {
			t.Errorf("%s lacks an anchor for %s", docsite.ErrorsPage, code)
		}
	}
}

func TestDocsAreCompressedOnRequest(t *testing.T) {
	t.Parallel()
	s := referenceServer(t)
	_, plain := get(t, s, "/docs")
	for accept, want := range map[string]bool{"gzip": true, "deflate, gzip;q=0.8": true, "br, GZIP": true, "": false, "identity": false, "gzip;q=0": false, "br": false} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/docs", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", accept) // set by hand, the client leaves the answer as it is
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		var body io.Reader = res.Body
		if zipped := res.Header.Get("Content-Encoding") == "gzip"; zipped != want {
			t.Errorf("Accept-Encoding: %s gave zipped %t", accept, zipped)
		} else if zipped {
			if body, err = gzip.NewReader(res.Body); err != nil {
				t.Fatal(err)
			}
		}
		got, err := io.ReadAll(body)
		_ = res.Body.Close()
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("Accept-Encoding: %s gave another page (%v)", accept, err)
		}
	}
}
