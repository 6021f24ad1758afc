// Package forwarding runs the built program in front of a provider that is not
// as careful as Turnpike, and checks what the provider gets.
package forwarding

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"turnpike/internal/gateway/messages"
	"turnpike/internal/jsonbody"
	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/test/chaos/program"
)

const settings = `
providers:
  - name: go
    type: openai
    base_url: %s
    models:
      - {id: small, upstream: small-1, price: {input: 1, output: 1}}
      - {id: embed, upstream: embed-1, kind: embedding, price: {input: 1}}
      - {id: guard, upstream: guard-1, kind: moderation, price: {input: 1}}
      - {id: rank, upstream: rank-1, kind: rerank, price: {per_search: 0.001}}
      - {id: paint, upstream: paint-1, kind: image, price: {per_image: 0.01}}
      - {id: say, upstream: say-1, kind: speech, price: {per_character: 0.001}}
      - {id: hear, upstream: hear-1, kind: transcription, price: {per_second: 0.001}}
      - {id: film, upstream: film-1, kind: video, price: {per_second: 0.01}}
`

func TestMain(m *testing.M) { program.Main(m) }

// server is the built program in front of the upstream.
type server struct {
	url, key string
	upstream *upstream
}

func start(t *testing.T) *server {
	t.Helper()
	binary, err := program.Self()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{upstream: newUpstream(t)}
	at := program.Place{Dir: t.TempDir()}
	file := filepath.Join(at.Dir, "turnpike.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, settings, s.upstream.url), 0o600); err != nil {
		t.Fatal(err)
	}
	running, err := binary.Serve(at, "--config="+file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		running.Kill()
		if t.Failed() {
			t.Logf("end of the server's log:\n%s", running.Log())
		}
	})
	out, errOut, err := binary.Run(at, "keys", "create", "--env", "live", "--json")
	if err != nil {
		t.Fatalf("keys create: %v\n%s", err, errOut)
	}
	var key struct{ Value string }
	if err := json.Unmarshal([]byte(out), &key); err != nil {
		t.Fatal(err)
	}
	s.url, s.key = running.URL, key.Value
	return s
}

// response is the server's.
type response struct {
	status int
	body   string
	Error  struct {
		Code, Param, Message string
		Details              struct{ Code, Param string } // in Anthropic's format
	}
}

func (s *server) post(t *testing.T, path, contentType string, body []byte) *response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Content-Type", contentType)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := &response{status: res.StatusCode, body: string(text)}
	_ = json.Unmarshal(text, out)
	if d := out.Error.Details; strings.HasPrefix(path, "/v1/messages") {
		out.Error.Code, out.Error.Param = d.Code, d.Param
	}
	return out
}

// content is a request body and its type.
type content struct {
	kind string
	body []byte
}

// refused sends a body that must not reach the provider.
func (s *server) refused(t *testing.T, path string, sent content, code, param string) {
	t.Helper()
	body := sent.body
	r := s.post(t, path, sent.kind, body)
	if r.status != 400 || r.Error.Code != code || r.Error.Param != param {
		t.Errorf("POST %s %.300s:\n got %d %.200s\nwant 400 %s for %s", path, body, r.status, r.body, code, param)
	}
	for _, o := range s.upstream.orders() {
		t.Errorf("POST %s %.300s:\nthe provider got model=%s n=%d max_tokens=%d: %s", path, body, o.Model, o.N, o.MaxTokens, o.body)
	}
}

const jsonType = "application/json"

// endpoint forwards JSON in OpenAI's format.
type endpoint struct {
	path  string
	body  string // without the closing bracket
	names jsonbody.Names
	want  order // at the provider
	drops bool  // it doesn't pass on fields that it doesn't know
}

var endpoints = []endpoint{
	{"/v1/chat/completions", `{"model":"small","messages":[{"role":"user","content":"Hi"}],"n":2,"max_tokens":50`, providers.ChatNames, order{Model: "small-1", N: 2, MaxTokens: 50}, false},
	{"/v1/completions", `{"model":"small","prompt":"Hi","n":2,"max_tokens":50`, openai.CompletionNames, order{Model: "small-1", N: 2, MaxTokens: 50}, false},
	{"/v1/embeddings", `{"model":"embed","input":"Hi"`, providers.EmbeddingNames, order{Model: "embed-1"}, false},
	{"/v1/moderations", `{"model":"guard","input":"Hi"`, providers.ModerationNames, order{Model: "guard-1"}, false},
	{"/v1/rerank", `{"model":"rank","query":"Hi","documents":["a"]`, providers.RerankNames, order{Model: "rank-1"}, false},
	{"/v1/images/generations", `{"model":"paint","prompt":"A dog","n":2,"size":"256x256"`, providers.ImageNames, order{Model: "paint-1", N: 2, Size: "256x256"}, false},
	{"/v1/audio/speech", `{"model":"say","input":"Hi","voice":"alloy"`, providers.SpeechNames, order{Model: "say-1"}, false},
	{"/v1/responses", `{"model":"small","input":"Hi","max_output_tokens":50`, responseNames, order{Model: "small-1"}, false},
	{"/v1/messages", `{"model":"small","messages":[{"role":"user","content":"Hi"}],"max_tokens":50`, messages.Names(), order{Model: "small-1", MaxTokens: 50}, true},
}

// responseNames are those of a response and, of a chat, those that a response
// passes on.
var responseNames = jsonbody.NewNames(`model models n n_predict max_tokens max_completion_tokens max_output_tokens messages stream tools functions
	response_format service_tier instructions truncation metadata store seed stop`, jsonbody.Names{
	"input": jsonbody.NewNames("type role call_id arguments", jsonbody.Names{"content": jsonbody.NewNames("type text image_url input_audio file_data", nil)}),
	"text":  jsonbody.Names{"format": jsonbody.NewNames("type schema", nil)}, "reasoning": jsonbody.NewNames("effort", nil),
	"stream_options": jsonbody.NewNames("include_usage", nil),
})

func TestProviderNeverGetsAnotherSpellingOfAField(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, e := range endpoints {
		t.Run(strings.ReplaceAll(e.path[4:], "/", " "), func(t *testing.T) {
			r := s.post(t, e.path, jsonType, []byte(e.body+`,"metadata":{"Model":"kept"},"other":{"Model":"kept"},"Other":1}`))
			got := s.upstream.orders()
			if r.status != 200 || len(got) != 1 {
				t.Fatalf("the plain request: %d %s, and the provider got %d", r.status, r.body, len(got))
			}
			if o := got[0]; o.Model != e.want.Model || o.N != e.want.N || o.Size != e.want.Size || o.MaxTokens != e.want.MaxTokens || strings.Contains(o.body, `"Other":1`) == e.drops {
				t.Errorf("the provider got %+v, want %+v", o, e.want)
			}
			for _, v := range variants(e.names) {
				// The last of several members wins at the provider. A nested one is all that its parent has.
				if name, _, nested := strings.Cut(v.param, "."); nested || strings.Contains(name, "[") {
					s.refused(t, e.path, content{jsonType, merge(e.body, v.json)}, "unknown_parameter", v.param)
					continue
				}
				s.refused(t, e.path, content{jsonType, []byte(e.body + "," + v.json[1:])}, "unknown_parameter", v.param)
			}
		})
	}
	t.Run("the only spelling", func(t *testing.T) {
		s.refused(t, "/v1/chat/completions", content{jsonType, []byte(`{"Model":"small","messages":[{"role":"user","content":"Hi"}]}`)}, "unknown_parameter", "Model")
		s.refused(t, "/v1/chat/completions", content{jsonType, []byte(`{"model":"small","Stream":true,"messages":[{"role":"user","content":"Hi"}]}`)}, "unknown_parameter", "Stream")
	})
	t.Run("escaped", func(t *testing.T) {
		s.refused(t, "/v1/chat/completions", content{jsonType, []byte(`{"model":"small","messages":[],"\u004dodel":"large"}`)}, "unknown_parameter", "Model")
	})
	t.Run("duplicates", func(t *testing.T) {
		for _, e := range endpoints {
			s.refused(t, e.path, content{jsonType, []byte(e.body + `,"model":"large"}`)}, "invalid_json", "model")
			s.refused(t, e.path, content{jsonType, []byte(e.body + `,"m\u006fdel":"large"}`)}, "invalid_json", "model")
			s.refused(t, e.path, content{jsonType, []byte(e.body + `,"x":{"y":1,"y":2}}`)}, "invalid_json", "x.y")
		}
	})
	t.Run("forms", s.forms)
	t.Run("jobs", s.jobs)
}

// forms have names that are spelled otherwise, too.
func (s *server) forms(t *testing.T) {
	edit := func(fields ...string) (string, []byte) {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		part, _ := form.CreateFormFile("image", "a.png")
		_, _ = part.Write(pixelFile())
		for _, f := range append([]string{"model=paint", "prompt=A dog", "n=2"}, fields...) {
			name, value, _ := strings.Cut(f, "=")
			_ = form.WriteField(name, value)
		}
		_ = form.Close()
		return form.FormDataContentType(), body.Bytes()
	}
	kind, body := edit("quality=high")
	if r, got := s.post(t, "/v1/images/edits", kind, body), s.upstream.orders(); r.status != 200 || len(got) != 1 || got[0].Model != "paint-1" || got[0].N != 2 {
		t.Fatalf("the plain form: %d %s, and the provider got %+v", r.status, r.body, got)
	}
	for name := range providers.ImageNames {
		if name == "image[]" { // the same as image in a form
			continue
		}
		for _, other := range spellings(name) {
			kind, body := edit(other + "=9")
			s.refused(t, "/v1/images/edits", content{kind, body}, "unknown_parameter", other)
		}
	}
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	for _, name := range []string{"image", "markup"} {
		part, _ := parts.CreateFormFile(name, name+".png")
		_, _ = part.Write(pixelFile())
	}
	_ = parts.WriteField("model", "paint")
	_ = parts.WriteField("prompt", "A dog")
	_ = parts.Close()
	if r, got := s.post(t, "/v1/images/edits", parts.FormDataContentType(), form.Bytes()), s.upstream.orders(); r.status != 200 || len(got) != 1 || !strings.Contains(got[0].body, `name="markup"; filename="markup.png"`) {
		t.Errorf("with another file: %d %s, and the provider got %.300v", r.status, r.body, got)
	}
	for name, code := range map[string]string{"n": "invalid_parameter", "Image": "unknown_parameter"} {
		var form bytes.Buffer
		parts := multipart.NewWriter(&form)
		for _, name := range []string{"image", name} {
			part, _ := parts.CreateFormFile(name, "a.png")
			_, _ = part.Write(pixelFile())
		}
		_ = parts.WriteField("model", "paint")
		_ = parts.WriteField("prompt", "A dog")
		_ = parts.Close()
		s.refused(t, "/v1/images/edits", content{parts.FormDataContentType(), form.Bytes()}, code, name)
	}
	kind, body = edit("Model[]=large")
	s.refused(t, "/v1/images/edits", content{kind, body}, "unknown_parameter", "Model")
	for _, twice := range []string{"model=large", "model[]=large", "n=9"} {
		kind, body := edit(twice)
		name, _, _ := strings.Cut(strings.Replace(twice, "[]", "", 1), "=")
		s.refused(t, "/v1/images/edits", content{kind, body}, "invalid_parameter", name)
	}
	s.transcriptions(t)
	for _, other := range []string{"Seconds", "MODEL", "\u017fize"} {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		for _, name := range []string{"model", "prompt", "seconds", other} {
			_ = form.WriteField(name, "4")
		}
		_ = form.Close()
		s.refused(t, "/v1/videos", content{form.FormDataContentType(), body.Bytes()}, "unknown_parameter", other)
	}
}

func (s *server) transcriptions(t *testing.T) {
	const path = "/v1/audio/transcriptions"
	form := func(fields ...string) content {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		part, _ := form.CreateFormFile("file", "a.wav")
		_, _ = part.Write(append([]byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00data\x00\x00\x00\x00"), make([]byte, 1000)...))
		for _, f := range append([]string{"model=hear"}, fields...) {
			name, value, _ := strings.Cut(f, "=")
			_ = form.WriteField(name, value)
		}
		_ = form.Close()
		return content{form.FormDataContentType(), body.Bytes()}
	}
	plain := form("other=1", "Other=2")
	if r, got := s.post(t, path, plain.kind, plain.body), s.upstream.orders(); r.status != 200 || len(got) != 1 || got[0].Model != "hear-1" || !strings.Contains(got[0].body, `"Other"`) {
		t.Fatalf("the plain form: %d %s, and the provider got %+v", r.status, r.body, got)
	}
	for name := range providers.TranscriptionNames {
		for _, other := range spellings(name) {
			s.refused(t, path, form(other+"=9"), "unknown_parameter", other)
			s.refused(t, path, form(other+"[]=9"), "unknown_parameter", other)
		}
	}
	for _, twice := range []string{"model=large", "model[]=large"} {
		s.refused(t, path, form(twice), "invalid_parameter", "model")
	}
}

// jobs forward later what they are ordered with, so the order is refused.
func (s *server) jobs(t *testing.T) {
	for _, c := range []struct{ path, body, param string }{
		{"/v1/images/batches", `{"model":"paint","requests":[{"custom_id":"a","body":{"prompt":"x"}},{"custom_id":"b","body":{"prompt":"x","N":10}}]}`, "requests[1].body.N"},
		{"/v1/images/batches", `{"model":"paint","requests":[{"custom_id":"a","body":{"prompt":"x","Model":"large"}}]}`, "requests[0].body.Model"},
		{"/v1/images/batches", `{"model":"paint","Model":"large","requests":[{"custom_id":"a","body":{"prompt":"x"}}]}`, "Model"},
		{"/v1/videos", `{"model":"film","prompt":"x","Seconds":"60"}`, "Seconds"},
		{"/v1/voice/renders", `{"model":"say","input":"x","voice":"alloy","Model":"large"}`, "Model"},
		{"/v1/agents/runs", `{"model":"small","input":"x","Model":"large"}`, "Model"},
		{"/v1/agents/runs", `{"model":"small","input":[{"role":"user","content":"x","Content":"y"}]}`, "input[0].Content"},
		{"/v1/agents/runs", `{"model":"small","input":[{"Role":"user","content":"x"}]}`, "input[0].Role"},
		{"/v1/agents/runs", `{"model":"small","input":[{"role":"user","content":[{"type":"text","text":"x","IMAGE_URL":{"url":"https://example.com/a.png"}}]}]}`, "input[0].content[0].IMAGE_URL"},
	} {
		s.refused(t, c.path, content{jsonType, []byte(c.body)}, "unknown_parameter", c.param)
	}
}

// variant is a body that has one member in another spelling, and where.
type variant struct{ param, json string }

// variants are the other spellings of each of the names.
func variants(names jsonbody.Names) (all []variant) {
	for name, inside := range names {
		for _, other := range spellings(name) {
			all = append(all, variant{other, fmt.Sprintf(`{%q:%s}`, other, sampleOf(name))})
		}
		for _, v := range variants(inside) {
			if lists[name] {
				all = append(all, variant{name + "[0]." + v.param, fmt.Sprintf(`{%q:[%s]}`, name, v.json)})
			} else {
				all = append(all, variant{name + "." + v.param, fmt.Sprintf(`{%q:%s}`, name, v.json)})
			}
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].param < all[j].param })
	return all
}

var lists = map[string]bool{"messages": true, "content": true, "tool_calls": true, "tools": true, "input": true, "documents": true}

// sampleOf is a value that a provider would take.
func sampleOf(name string) string {
	switch name {
	case "model", "size", "service_tier", "role", "type", "text":
		return `"large"`
	case "stream", "include_usage":
		return "true"
	case "n", "max_tokens", "max_completion_tokens", "n_predict":
		return "99"
	}
	return "null"
}

// spellings are other ones of a name that encoding/json takes for it.
func spellings(name string) []string {
	list := []string{strings.ToUpper(name), strings.ToUpper(name[:1]) + name[1:]}
	if i := strings.IndexAny(name, "ks"); i >= 0 {
		list = append(list, name[:i]+map[byte]string{'k': "\u212a", 's': "\u017f"}[name[i]]+name[i+1:])
	}
	if list[0] == list[1] {
		list = list[1:]
	}
	return list
}

// merge puts a member into a body, in place of the one with its name.
func merge(body, member string) []byte {
	var out, more map[string]json.RawMessage
	if json.Unmarshal([]byte(body+"}"), &out) != nil || json.Unmarshal([]byte(member), &more) != nil {
		panic(body + member)
	}
	for name, value := range more {
		out[name] = value
	}
	text, _ := json.Marshal(out)
	return text
}
