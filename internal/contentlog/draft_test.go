package contentlog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// read returns the stored parts of a request as JSON.
func read(t *testing.T, d *Draft) (request, response map[string]any) {
	t.Helper()
	c := d.content()
	if err := json.Unmarshal([]byte(c.Request.Body), &request); c.Request.Body != "" && err != nil {
		t.Fatalf("request %s: %v", c.Request.Body, err)
	}
	if err := json.Unmarshal([]byte(c.Response.Body), &response); err != nil {
		t.Fatalf("response %s: %v", c.Response.Body, err)
	}
	return request, response
}

func TestSecretsAreMaskedWhereverTheyAre(t *testing.T) {
	t.Parallel()
	openai := "sk-proj-" + strings.Repeat("a1B2", 10)
	secrets := []string{openai, "sk-ant-api03-" + strings.Repeat("xY9_", 10), "tp_live_" + strings.Repeat("Zz8", 10), "ghp_" + strings.Repeat("q", 36), "glpat-" + strings.Repeat("w", 20),
		"AKIAABCDEFGHIJKLMNOP", "AIza" + strings.Repeat("s", 35), "xoxb-1234567890-abcdef", "whsec_" + strings.Repeat("k", 32), "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "hf_" + strings.Repeat("h", 30)}
	for _, s := range secrets {
		body := fmt.Sprintf(`{"messages":[{"role":"user","content":"my key is %s, thanks"}],"metadata":{%q:"x"}}`, s, s)
		text, _ := cleanJSON([]byte(body))
		if strings.Contains(text, s) || !strings.Contains(text, ", thanks") {
			t.Errorf("%s is stored in %s", s, text)
		}
	}
	hidden := []string{
		`{"content":"\u0073k-proj-` + strings.Repeat("a1B2", 10) + `"}`,
		`{"tools":[{"type":"mcp","headers":{"X-Custom":"` + "a1B2a1B2" + `"}}]}`,
		`{"tools":[{"type":"mcp","authorization":"` + "a1B2a1B2" + `"}]}`,
		`{"api_key":"a1B2a1B2"}`,
		`{"arguments":"{\"password\": \"a1B2a1B2\"}"}`,
		`{"content":"export DB_PASSWORD=a1B2a1B2"}`,
		`{"content":"Authorization: Bearer a1B2a1B2a1B2a1B2"}`,
		`{"content":"postgres://app:a1B2a1B2@db/app"}`,
		`{"content":"-----BEGIN RSA PRIVATE KEY-----\na1B2a1B2\n-----END RSA PRIVATE KEY-----"}`,
		`not JSON, sk-proj-` + strings.Repeat("a1B2", 10),
	}
	for _, body := range hidden {
		if text, _ := cleanJSON([]byte(body)); strings.Contains(text, "a1B2") {
			t.Errorf("%s is stored as %s", body, text)
		}
	}
	for _, body := range []string{`{"content":"a risk-free-and-long-compound-word, task-oriented-programming-language"}`, `{"max_tokens":5,"input":[1,2,3],"tool":{"properties":{"password":{"type":"string"}}}}`} {
		if text, _ := cleanJSON([]byte(body)); text != body {
			t.Errorf("%s is stored as %s", body, text)
		}
	}
}

func TestSecretInPiecesOfAStreamIsMasked(t *testing.T) {
	t.Parallel()
	secret := "sk-proj-" + strings.Repeat("a1B2", 10)
	for name, event := range map[string]func(piece string) (string, string){
		"chat": func(p string) (string, string) {
			return "", fmt.Sprintf(`{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":%q}}]}`, p)
		},
		"chat tools": func(p string) (string, string) {
			return "", fmt.Sprintf(`{"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":%q}}]}}]}`, p)
		},
		"completions": func(p string) (string, string) {
			return "", fmt.Sprintf(`{"id":"c","choices":[{"index":0,"text":%q}]}`, p)
		},
		"messages": func(p string) (string, string) {
			return "content_block_delta", fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%q}}`, p)
		},
		"message tools": func(p string) (string, string) {
			return "content_block_delta", fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":%q}}`, p)
		},
		"responses": func(p string) (string, string) {
			return "response.output_text.delta", fmt.Sprintf(`{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":%q}`, p)
		},
	} {
		d := NewDraft(1)
		for _, piece := range []string{"here: ", secret[:3], secret[3:20], secret[20:], " bye"} {
			name, data := event(piece)
			d.AddEvent(name, []byte(data))
		}
		body := d.content().Response.Body
		if strings.Contains(body, "a1B2") || !strings.Contains(body, "here: sk-proj-*** bye") {
			t.Errorf("%s: stored %s", name, body)
		}
	}
}

func TestStreamIsStoredAsTheWholeResponse(t *testing.T) {
	t.Parallel()
	d := NewDraft(1)
	for _, data := range []string{
		`{"id":"c1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}},{"index":1,"delta":{"content":"A"}}]}`,
		`{"id":"c1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"lo"},"logprobs":{"content":[]}}]}`,
		`{"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t","type":"function","function":{"name":"f","arguments":"{\"a\""}}]}}]}`,
		`{"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]},"finish_reason":"tool_calls"}]}`,
		`{"id":"c1","choices":[],"usage":{"prompt_tokens":1}}`, `[DONE]`} {
		d.AddEvent("", []byte(data))
	}
	want := `{"choices":[{"finish_reason":"tool_calls","index":0,"message":{"content":"Hello","role":"assistant","tool_calls":[{"function":{"arguments":"{\"a\":1}","name":"f"},"id":"t","index":0,"type":"function"}]}},` +
		`{"index":1,"message":{"content":"A"}}],"id":"c1","model":"m","object":"chat.completion","usage":{"prompt_tokens":1}}`
	if p := d.content().Response; p.Body != want || !p.Streamed || p.Truncated || p.Size == 0 {
		t.Errorf("stored %+v, want %s", p, want)
	}

	d = NewDraft(1)
	for _, data := range []string{
		`{"type":"message_start","message":{"id":"m1","role":"assistant","content":[],"usage":{"input_tokens":3,"output_tokens":1}}}`, `{"type":"ping"}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi "}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"there"}}`,
		`{"type":"content_block_stop","index":0}`, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}`, `{"type":"message_stop"}`} {
		d.AddEvent("x", []byte(data))
	}
	_, response := read(t, d)
	text, _ := json.Marshal(response, json.Deterministic(true))
	if want := `{"content":[{"index":0,"text":"Hi there","type":"text"}],"id":"m1","role":"assistant","stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}`; string(text) != want {
		t.Errorf("stored %s, want %s", text, want)
	}

	d = NewDraft(1)
	d.AddEvent("response.output_text.delta", []byte(`{"type":"response.output_text.delta","delta":"H"}`))
	d.AddEvent("response.completed", []byte(`{"type":"response.completed","response":{"id":"r","output":[{"text":"Hi"}]}}`))
	if got := d.content().Response.Body; got != `{"id":"r","output":[{"text":"Hi"}]}` {
		t.Errorf("stored %s", got)
	}
}

func TestBinaryDataIsStoredAsItsSize(t *testing.T) {
	t.Parallel()
	data := strings.Repeat("QUJD", 1000)
	d := NewDraft(1)
	d.SetRequest([]byte(`{"image_url":"data:image/png;base64,` + data + `","audio":{"data":"` + data + `"},"text":"` + strings.Repeat("word ", 300) + `"}`))
	d.SetResponse("application/json", []byte(`{"data":[{"b64_json":"`+data+`"},{"embedding":[0.1,0.2,0.3]}]}`))
	request, response := read(t, d)
	if request["image_url"] != "[image/png, 3000 bytes]" || fmt.Sprint(request["audio"]) != "map[data:[binary, 3000 bytes]]" || len(request["text"].(string)) != 1500 {
		t.Errorf("request %v", request)
	}
	if got := fmt.Sprint(response["data"]); got != "[map[b64_json:[binary, 3000 bytes]] map[embedding:[3 numbers]]]" {
		t.Errorf("response %s", got)
	}
	d.SetForm(map[string][]string{"prompt": {"p"}}, []FormFile{{"image", "image/png", 7}})
	d.SetBinary("audio/mpeg", 99)
	if c := d.content(); c.Request.Body != `{"image":["[image/png, 7 bytes]"],"prompt":["p"]}` || c.Response.Body != "[audio/mpeg, 99 bytes]" || c.Response.Size != 99 {
		t.Errorf("form %+v", c)
	}
	d = NewDraft(1)
	for range 20 { // more than is kept of a stream
		d.AddEvent("image_generation.partial_image", []byte(`{"type":"image_generation.partial_image","b64_json":"`+strings.Repeat(data, 20)+`"}`))
	}
	if p := d.content().Response; p.Truncated || strings.Count(p.Body, "[binary, 60000 bytes]") != 20 {
		t.Errorf("images %+v", p)
	}
}

func TestLongContentIsCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é word ", maxBody/7)
	d := NewDraft(1)
	d.SetRequest([]byte(`{"content":"` + long + `"}`))
	for range 3 {
		d.AddEvent("", []byte(`{"choices":[{"index":0,"delta":{"content":"`+long+`"}}]}`))
	}
	c := d.content()
	for name, p := range map[string]Part{"request": c.Request, "response": c.Response} {
		if !p.Truncated || len(p.Body) > maxBody || len(p.Body) < maxBody-4 || p.Size < maxBody {
			t.Errorf("the %s has %d bytes of %d, truncated %t", name, len(p.Body), p.Size, p.Truncated)
		}
	}
	short := NewDraft(1)
	short.SetRequest([]byte(`{"content":"word"}`))
	if p := short.content().Request; p.Truncated {
		t.Errorf("a short request is %+v", p)
	}
}
