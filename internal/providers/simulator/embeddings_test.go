package simulator_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"testing"

	"turnpike/internal/fault"
	"turnpike/internal/providers/simulator"
)

type embeddingsAnswer struct {
	Object string
	Model  string
	Data   []struct {
		Object    string
		Index     int
		Embedding json.RawMessage
	}
	Usage struct {
		PromptTokens int64 `json:"prompt_tokens"`
		TotalTokens  int64 `json:"total_tokens"`
	}
}

func embeddings(t *testing.T, body string) embeddingsAnswer {
	t.Helper()
	a, err := simulator.New(simulator.Options{}).Embeddings(t.Context(), "text-embedding-3-small", []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	var out embeddingsAnswer
	if err := json.Unmarshal(a.Body, &out); err != nil {
		t.Fatal(err)
	}
	if out.Object != "list" || out.Model != "text-embedding-3-small" || out.Usage.PromptTokens != a.Usage.InputTokens || out.Usage.TotalTokens != a.Usage.InputTokens {
		t.Errorf("answered %s", a.Body[:200])
	}
	return out
}

func vector(t *testing.T, raw json.RawMessage) (v []float64) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func product(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

func TestEmbeddingsFollowFromTheText(t *testing.T) {
	t.Parallel()
	got := embeddings(t, `{"input":["the cat sat on the mat","the cat lay on the mat","quarterly revenue figures","the cat sat on the mat"]}`)
	var vs [][]float64
	for i, d := range got.Data {
		if d.Index != i || d.Object != "embedding" {
			t.Errorf("item %d is %+v", i, d.Index)
		}
		v := vector(t, d.Embedding)
		if len(v) != 1536 || math.Abs(product(v, v)-1) > 1e-4 {
			t.Errorf("vector %d has %d numbers and length² %v", i, len(v), product(v, v))
		}
		vs = append(vs, v)
	}
	if product(vs[0], vs[3]) < 0.999 {
		t.Error("the same text has two vectors")
	}
	if near, far := product(vs[0], vs[1]), product(vs[0], vs[2]); near < far+0.3 {
		t.Errorf("texts that share words are at %v, others at %v", near, far)
	}
	if got.Usage.PromptTokens != 22 {
		t.Errorf("%d tokens", got.Usage.PromptTokens)
	}
}

func TestEmbeddingsInBase64AndFewerDimensions(t *testing.T) {
	t.Parallel()
	plain := vector(t, embeddings(t, `{"input":"hello","dimensions":8}`).Data[0].Embedding)
	var text string
	if err := json.Unmarshal(embeddings(t, `{"input":"hello","dimensions":8,"encoding_format":"base64"}`).Data[0].Embedding, &text); err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) != 32 || len(plain) != 8 {
		t.Fatalf("%d bytes, %d numbers, %v", len(raw), len(plain), err)
	}
	for i, x := range plain {
		if got := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])); math.Abs(float64(got)-x) > 1e-6 {
			t.Errorf("number %d is %v and %v", i, x, got)
		}
	}
	if n := embeddings(t, `{"input":[[1,2,3],[4]]}`).Usage.PromptTokens; n != 4 {
		t.Errorf("four tokens were counted as %d", n)
	}
}

func TestInvalidEmbeddingsRequestIsRejected(t *testing.T) {
	t.Parallel()
	for body, param := range map[string]string{
		`{}`: "input", `{"input":""}`: "input", `{"input":[]}`: "input", `{"input":[""]}`: "input", `{"input":{}}`: "input", `{"input":[1,"a"]}`: "input", `{"input":[[]]}`: "input", `{"input":[[1],null]}`: "input",
		`{"input":"a","dimensions":0}`: "dimensions", `{"input":"a","dimensions":1537}`: "dimensions", `{"input":"a","encoding_format":"hex"}`: "encoding_format",
	} {
		_, err := simulator.New(simulator.Options{}).Embeddings(t.Context(), "text-embedding-3-small", []byte(body))
		if f, ok := fault.As(err); !ok || f.Param != param {
			t.Errorf("%s was answered with %v", body, err)
		}
	}
}
