package gemini

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/test/fakes/openaitest"
	"turnpike/test/fakes/upstreams"
)

func embed(t *testing.T, body string, replies ...upstreams.GeminiReply) (*providers.Response, []upstreams.GeminiRequest) {
	t.Helper()
	p, server := start(t)
	server.Queue(replies...)
	answer, err := p.Embeddings(t.Context(), "gemini-embedding-001", []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return answer, server.Requests()
}

func TestEmbeddingsAreTranslated(t *testing.T) {
	t.Parallel()
	eachFile(t, "embeddings/*.json", func(t *testing.T, input []byte) []byte {
		answer, requests := embed(t, string(input))
		out := fmt.Appendf(nil, "%s\n", requests[0].Path)
		out = append(out, openaitest.Indent(t, requests[0].Body)...)
		out = append(out, openaitest.Indent(t, answer.Body)...)
		return fmt.Appendf(out, "%+v\n", answer.Usage)
	})
}

func TestManyTextsAreSentInBatches(t *testing.T) {
	t.Parallel()
	texts := make([]string, 250)
	for i := range texts {
		texts[i] = strings.Repeat("x", i+1)
	}
	input, err := json.Marshal(map[string]any{"input": texts})
	if err != nil {
		t.Fatal(err)
	}
	answer, requests := embed(t, string(input))
	var list struct {
		Data []struct {
			Index     int       `json:"index"`
			Embedding []float64 `json:"embedding"`
		} `json:"data"`
	}
	if err := json.Unmarshal(answer.Body, &list); err != nil {
		t.Fatal(err)
	}
	if len(requests) != 3 || len(list.Data) != 250 || answer.Usage.InputTokens != 750 {
		t.Fatalf("%d calls, %d vectors, usage %+v", len(requests), len(list.Data), answer.Usage)
	}
	for i, d := range list.Data {
		if d.Index != i || d.Embedding[0] != float64(i+1)/10 {
			t.Errorf("vector %d is %+v", i, d)
		}
	}
}

func TestBase64HasTheSameNumbers(t *testing.T) {
	t.Parallel()
	answer, _ := embed(t, `{"input":"x","encoding_format":"base64"}`, upstreams.GeminiReply{Body: `{"embedding":{"values":[0.5,-2,1e-3]}}`})
	var list struct {
		Data []struct {
			Embedding string `json:"embedding"`
		} `json:"data"`
	}
	if err := json.Unmarshal(answer.Body, &list); err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(list.Data[0].Embedding)
	if err != nil || len(raw) != 12 {
		t.Fatalf("%d bytes, %v", len(raw), err)
	}
	for i, want := range []float32{0.5, -2, 1e-3} {
		if got := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])); got != want {
			t.Errorf("number %d is %v, want %v", i, got, want)
		}
	}
}

func TestShortenedVectorsHaveLengthOne(t *testing.T) {
	t.Parallel()
	vector := upstreams.GeminiReply{Body: `{"embedding":{"values":[3,4]}}`}
	for body, want := range map[string]string{`{"input":"x","dimensions":2}`: `[0.6,0.8]`, `{"input":"x"}`: `[3,4]`} {
		answer, _ := embed(t, body, vector)
		if !strings.Contains(string(answer.Body), `"embedding":`+want) {
			t.Errorf("%s: %s", body, answer.Body)
		}
	}
	answer, _ := embed(t, `{"input":"x","dimensions":2}`, upstreams.GeminiReply{Body: `{"embedding":{"values":[0,0]}}`})
	if !strings.Contains(string(answer.Body), `[0,0]`) {
		t.Errorf("zeroes: %s", answer.Body)
	}
}

func TestInvalidEmbeddingsRequestsAreRejected(t *testing.T) {
	t.Parallel()
	many := strings.TrimSuffix(strings.Repeat(`"x",`, 2049), ",")
	for body, param := range map[string]string{
		`{}`:                                    "input",
		`{"input":""}`:                          "input",
		`{"input":["a"," "]}`:                   "input",
		`{"input":[]}`:                          "input",
		`{"input":[1,2]}`:                       "input",
		`{"input":[[1,2]]}`:                     "input",
		`{"input":7}`:                           "input",
		`{"input":[` + many + `]}`:              "input",
		`{"input":"x","dimensions":0}`:          "dimensions",
		`{"input":"x","dimensions":"two"}`:      "dimensions",
		`{"input":"x","encoding_format":"hex"}`: "encoding_format",
	} {
		p, server := start(t)
		_, err := p.Embeddings(t.Context(), "m", []byte(body))
		if f, ok := fault.As(err); !ok || f.Param != param || len(server.Requests()) != 0 {
			t.Errorf("%.60s: %v", body, err)
		}
	}
}

func TestMissingVectorsAreAProtocolFailure(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{}`, `{"embeddings":[]}`, `{"embeddings":[{"values":[1]},{"values":[1]}]}`, `{"embedding":7}`, `nonsense`} {
		p, server := start(t)
		server.Queue(upstreams.GeminiReply{Body: body})
		_, err := p.Embeddings(t.Context(), "m", []byte(`{"input":"x"}`))
		if f := failureOf(t, err); f.Kind != providers.KindProtocol {
			t.Errorf("%s: %v", body, f)
		}
	}
}
