package upstreams

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Gemini serves Gemini's v1beta format. It rejects other keys than its own and
// unknown fields. It returns the replies that the test has queued, and otherwise
// repeats the last text or returns a small file.
type Gemini struct {
	server  *httptest.Server
	key     string
	closing chan struct{}

	mu       sync.Mutex
	replies  []GeminiReply
	requests []GeminiRequest
	arrived  *sync.Cond
	renders  map[string]*geminiRender
	running  int // media requests in progress
	most     int // maximum of running
}

// GeminiReply is a response set by a test.
type GeminiReply struct {
	Status int         // default: 200
	Header http.Header // additional headers
	Body   string      // of a plain response
	Events []string    // of a stream: the data of each
	Cut    bool        // break the connection after them
	Stall  bool        // stop sending after them
	Media  GeminiMedia // for images, speech or a video, if Body is empty
}

type GeminiRequest struct {
	Method string
	Path   string // escaped
	Query  url.Values
	Header http.Header
	Body   []byte
	Gone   <-chan struct{} // closed when the request has ended
}

// NewGemini starts a server that runs until the test ends.
func NewGemini(t testing.TB, key string) *Gemini {
	g := &Gemini{key: key, closing: make(chan struct{})}
	g.arrived = sync.NewCond(&g.mu)
	g.server = httptest.NewServer(g)
	t.Cleanup(func() {
		close(g.closing)
		g.server.Close()
	})
	return g
}

// BaseURL returns the URL with the version.
func (g *Gemini) BaseURL() string { return g.server.URL + "/v1beta" }

func (g *Gemini) Queue(replies ...GeminiReply) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.replies = append(g.replies, replies...)
}

func (g *Gemini) Requests() []GeminiRequest {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]GeminiRequest(nil), g.requests...)
}

// GeminiError returns an error body in Google's format. details is a JSON array or empty.
func GeminiError(code int, status, message, details string) string {
	if details == "" {
		details = "[]"
	}
	return fmt.Sprintf(`{"error":{"code":%d,"message":%q,"status":%q,"details":%s}}`, code, message, status, details)
}

func (g *Gemini) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has disconnected
	}
	g.mu.Lock()
	g.requests = append(g.requests, GeminiRequest{Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.Query(), Header: r.Header.Clone(), Body: body, Gone: r.Context().Done()})
	g.arrived.Broadcast()
	var reply *GeminiReply
	if len(g.replies) > 0 {
		reply, g.replies = &g.replies[0], g.replies[1:]
	}
	g.mu.Unlock()

	if r.Header.Get("X-Goog-Api-Key") != g.key {
		g.send(w, r, GeminiReply{Status: 400, Body: GeminiError(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.",
			`[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}]`)})
		return
	}
	if answer, ok := g.media(r, body, reply); ok {
		g.send(w, r, answer)
		return
	}
	model, method, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/v1beta/models/"), ":")
	echo, err := geminiEcho(model, method, body)
	switch {
	case err != nil:
		g.send(w, r, GeminiReply{Status: 400, Body: GeminiError(400, "INVALID_ARGUMENT", err.Error(), "")})
	case reply != nil:
		g.send(w, r, *reply)
	default:
		g.send(w, r, echo)
	}
}

func (g *Gemini) send(w http.ResponseWriter, r *http.Request, reply GeminiReply) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	if reply.Events != nil {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	for name, values := range reply.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(max(200, reply.Status))
	_, _ = io.WriteString(w, reply.Body)
	for _, event := range reply.Events {
		_, _ = io.WriteString(w, "data: "+event+"\r\n\r\n")
		_ = http.NewResponseController(w).Flush()
	}
	if reply.Cut {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	if reply.Stall {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-g.closing:
		}
	}
}

// The fields of Google's format that Turnpike can send.
type (
	geminiGenerate struct {
		Contents          []geminiContent `json:"contents"`
		SystemInstruction *geminiContent  `json:"systemInstruction"`
		Tools             []struct {
			FunctionDeclarations []struct {
				Name                 string         `json:"name"`
				Description          string         `json:"description"`
				ParametersJSONSchema jsontext.Value `json:"parametersJsonSchema"`
			} `json:"functionDeclarations"`
		} `json:"tools"`
		ToolConfig struct {
			FunctionCallingConfig struct {
				Mode                 string   `json:"mode"`
				AllowedFunctionNames []string `json:"allowedFunctionNames"`
			} `json:"functionCallingConfig"`
		} `json:"toolConfig"`
		GenerationConfig struct {
			Temperature        float64        `json:"temperature"`
			TopP               float64        `json:"topP"`
			CandidateCount     int32          `json:"candidateCount"`
			MaxOutputTokens    int32          `json:"maxOutputTokens"`
			StopSequences      []string       `json:"stopSequences"`
			PresencePenalty    float64        `json:"presencePenalty"`
			FrequencyPenalty   float64        `json:"frequencyPenalty"`
			Seed               int32          `json:"seed"`
			ResponseMimeType   string         `json:"responseMimeType"`
			ResponseJSONSchema jsontext.Value `json:"responseJsonSchema"`
			ThinkingConfig     struct {
				IncludeThoughts bool   `json:"includeThoughts"`
				ThinkingBudget  int32  `json:"thinkingBudget"`
				ThinkingLevel   string `json:"thinkingLevel"`
			} `json:"thinkingConfig"`
		} `json:"generationConfig"`
	}
	geminiContent struct {
		Role  string       `json:"role"`
		Parts []geminiPart `json:"parts"`
	}
	geminiPart struct {
		Text       *string `json:"text"`
		InlineData *struct {
			MimeType string `json:"mimeType"`
			Data     []byte `json:"data"`
		} `json:"inlineData"`
		FileData *struct {
			MimeType string `json:"mimeType"`
			FileURI  string `json:"fileUri"`
		} `json:"fileData"`
		FunctionCall *struct {
			ID   string                    `json:"id"`
			Name string                    `json:"name"`
			Args map[string]jsontext.Value `json:"args"`
		} `json:"functionCall"`
		FunctionResponse *struct {
			ID       string                    `json:"id"`
			Name     string                    `json:"name"`
			Response map[string]jsontext.Value `json:"response"`
		} `json:"functionResponse"`
		ThoughtSignature string `json:"thoughtSignature"`
	}
	geminiEmbed struct {
		Model                string        `json:"model"`
		Content              geminiContent `json:"content"`
		OutputDimensionality int           `json:"outputDimensionality"`
	}
)

// geminiEcho checks a request and returns a response that repeats it.
func geminiEcho(model, method string, body []byte) (GeminiReply, error) {
	strict := json.RejectUnknownMembers(true)
	switch method {
	case "generateContent", "streamGenerateContent":
		var r geminiGenerate
		if err := json.Unmarshal(body, &r, strict); err != nil {
			return GeminiReply{}, fmt.Errorf("invalid JSON payload received: %w", err)
		}
		if err := r.checkModel(model); err != nil {
			return GeminiReply{}, err
		}
		text, err := r.check()
		if err != nil {
			return GeminiReply{}, err
		}
		return geminiSay(text, method == "streamGenerateContent"), nil
	case "embedContent":
		var r geminiEmbed
		if err := json.Unmarshal(body, &r, strict); err != nil {
			return GeminiReply{}, fmt.Errorf("invalid JSON payload received: %w", err)
		}
		return GeminiReply{Body: `{"embedding":` + r.vector() + `}`}, nil
	case "batchEmbedContents":
		var r struct {
			Requests []geminiEmbed `json:"requests"`
		}
		if err := json.Unmarshal(body, &r, strict); err != nil {
			return GeminiReply{}, fmt.Errorf("invalid JSON payload received: %w", err)
		}
		if len(r.Requests) > 100 {
			return GeminiReply{}, fmt.Errorf("at most 100 requests can be in one batch")
		}
		vectors := make([]string, len(r.Requests))
		for i, one := range r.Requests {
			vectors[i] = one.vector()
		}
		return GeminiReply{Body: `{"embeddings":[` + strings.Join(vectors, ",") + `],"usageMetadata":{"promptTokenCount":` + fmt.Sprint(3*len(vectors)) + `}}`}, nil
	}
	return GeminiReply{}, fmt.Errorf("unknown method %q", method)
}

// check rejects what Google rejects and returns the last text.
func (r *geminiGenerate) check() (last string, err error) {
	if len(r.Contents) == 0 {
		return "", fmt.Errorf("* GenerateContentRequest.contents: contents is not specified")
	}
	contents := r.Contents
	if r.SystemInstruction != nil {
		contents = append([]geminiContent{{Role: "user", Parts: r.SystemInstruction.Parts}}, contents...)
	}
	for i, c := range contents {
		if c.Role != "user" && c.Role != "model" {
			return "", fmt.Errorf("please use a valid role: user, model")
		}
		if len(c.Parts) == 0 {
			return "", fmt.Errorf("* GenerateContentRequest.contents[%d].parts: contents.parts must not be empty", i)
		}
		for j, p := range c.Parts {
			set := 0
			for _, has := range []bool{p.Text != nil, p.InlineData != nil, p.FileData != nil, p.FunctionCall != nil, p.FunctionResponse != nil} {
				if has {
					set++
				}
			}
			if set != 1 {
				return "", fmt.Errorf("* GenerateContentRequest.contents[%d].parts[%d].data: required oneof field 'data' must have one initialized field", i, j)
			}
			if p.Text != nil {
				last = *p.Text
			}
		}
	}
	return last, nil
}

// checkModel rejects what some models reject.
func (r *geminiGenerate) checkModel(model string) error {
	var version float64
	_, _ = fmt.Sscanf(model, "gemini-%f", &version)
	config, last := r.GenerationConfig, r.Contents[max(0, len(r.Contents)-1):]
	switch {
	case version == 0:
	case version < 3 && len(r.Tools) > 0 && config.ResponseMimeType == "application/json":
		return fmt.Errorf("function calling with a response mime type: 'application/json' is unsupported")
	case version >= 2.5 && (config.PresencePenalty != 0 || config.FrequencyPenalty != 0):
		return fmt.Errorf("penalty is not enabled for models/%s", model)
	case version >= 3 && config.CandidateCount > 1:
		return fmt.Errorf("multiple candidates is not enabled for models/%s", model)
	case version >= 3.6 && len(last) > 0 && last[0].Role == "model":
		return fmt.Errorf("requests ending with a model turn are not supported unless the last part is a function response")
	}
	for i := 1; i < len(r.Contents); i++ {
		for _, p := range r.Contents[i].Parts {
			if p.FunctionCall != nil && r.Contents[i-1].Role != "user" {
				return fmt.Errorf("please ensure that function call turn comes immediately after a user turn or after a function response turn")
			}
		}
	}
	return nil
}

// geminiSay returns a response with a text. A stream has one event for each word.
func geminiSay(text string, stream bool) GeminiReply {
	const tail = `"modelVersion":"gemini-test","responseId":"mock-response-id"`
	event := func(text, finish string, tokens int) string {
		quoted, _ := jsontext.AppendQuote(nil, text)
		return fmt.Sprintf(`{"candidates":[{"content":{"parts":[{"text":%s}],"role":"model"},%s"index":0}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":%d,"totalTokenCount":%d},%s}`,
			quoted, finish, tokens, 10+tokens, tail)
	}
	const stop = `"finishReason":"STOP",`
	words := strings.SplitAfter("You said: "+text, " ")
	if !stream {
		return GeminiReply{Body: event(strings.Join(words, ""), stop, len(words))}
	}
	var reply GeminiReply
	for i, word := range words {
		finish := ""
		if i == len(words)-1 {
			finish = stop
		}
		reply.Events = append(reply.Events, event(word, finish, i+1))
	}
	return reply
}

// vector returns a vector that follows from the length of the text.
func (r *geminiEmbed) vector() string {
	var size int
	for _, p := range r.Content.Parts {
		if p.Text != nil {
			size += len(*p.Text)
		}
	}
	values := make([]string, max(2, r.OutputDimensionality))
	for i := range values {
		values[i] = fmt.Sprint(float64(size+i) / 10)
	}
	return `{"values":[` + strings.Join(values, ",") + `]}`
}
