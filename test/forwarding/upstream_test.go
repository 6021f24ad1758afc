package forwarding

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// upstream is a provider written in Go. Like Ollama it decodes requests with
// encoding/json, which folds case and takes the last of several members. It
// reads forms the same way.
type upstream struct {
	url  string
	mu   sync.Mutex
	seen []order
}

// order is what the provider understands of a request.
type order struct {
	path                string
	body                string
	Model               string          `json:"model"`
	Models              json.RawMessage `json:"models"`
	N                   int             `json:"n"`
	MaxTokens           int             `json:"max_tokens"`
	MaxCompletionTokens int             `json:"max_completion_tokens"`
	Predict             int             `json:"n_predict"`
	Stream              bool            `json:"stream"`
	Size                string          `json:"size"`
	ServiceTier         string          `json:"service_tier"`
	Input               json.RawMessage `json:"input"`
}

const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{}
	server := httptest.NewServer(http.HandlerFunc(u.serve))
	t.Cleanup(server.Close)
	u.url = server.URL + "/v1"
	return u
}

func (u *upstream) serve(w http.ResponseWriter, r *http.Request) {
	o, err := readOrder(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	u.mu.Lock()
	u.seen = append(u.seen, o)
	u.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	const usage = `"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}`
	switch {
	case strings.HasSuffix(o.path, "/chat/completions") && o.Stream:
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Yes."},"finish_reason":"stop"}]}`+"\n\n"+
			`data: {"id":"c","object":"chat.completion.chunk","choices":[],`+usage+"}\n\ndata: [DONE]\n\n")
	case strings.HasSuffix(o.path, "/v1/completions"):
		fmt.Fprint(w, `{"id":"c","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"Yes.","finish_reason":"stop"}],`+usage+`}`)
	case strings.HasSuffix(o.path, "/chat/completions"):
		fmt.Fprint(w, `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Yes."},"finish_reason":"stop"}],`+usage+`}`)
	case strings.HasSuffix(o.path, "/embeddings"):
		fmt.Fprint(w, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1]}],`+usage+`}`)
	case strings.HasSuffix(o.path, "/moderations"), strings.HasSuffix(o.path, "/rerank"):
		fmt.Fprint(w, `{"id":"m","model":"m","results":[]}`)
	case strings.Contains(o.path, "/images/"):
		fmt.Fprint(w, `{"created":1,"data":[{"b64_json":"`+pixel+`"}]}`)
	case strings.HasSuffix(o.path, "/audio/transcriptions"):
		fmt.Fprint(w, `{"text":"Yes."}`)
	case strings.HasSuffix(o.path, "/audio/speech"):
		w.Header().Set("Content-Type", "audio/mpeg")
		_, _ = w.Write([]byte("ID3"))
	default:
		http.NotFound(w, r)
	}
}

// readOrder reads JSON, or a form as the JSON that says the same.
func readOrder(r *http.Request) (order, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return order{}, err
	}
	o := order{path: r.URL.Path, body: string(text)}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "multipart/form-data" {
		r.Body = io.NopCloser(strings.NewReader(o.body))
		if err := r.ParseMultipartForm(1 << 20); err != nil {
			return o, err
		}
		for name, values := range r.MultipartForm.Value {
			value := values[len(values)-1]
			quoted, _ := json.Marshal(value)
			if json.Valid([]byte(value)) {
				quoted = []byte(value)
			}
			if err := json.Unmarshal(fmt.Appendf(nil, `{%q:%s}`, name, quoted), &o); err != nil {
				return o, err
			}
		}
		return o, nil
	}
	return o, json.Unmarshal(text, &o)
}

// orders returns what the provider has seen since the last call.
func (u *upstream) orders() []order {
	u.mu.Lock()
	defer u.mu.Unlock()
	seen := u.seen
	u.seen = nil
	return seen
}

func pixelFile() []byte {
	file, _ := base64.StdEncoding.DecodeString(pixel)
	return file
}
