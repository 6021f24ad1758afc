package gemini

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

const (
	// maxInputs is OpenAI's limit.
	maxInputs = 2048
	// perBatch is how many texts batchEmbedContents takes.
	perBatch = 100
)

type embeddingsRequest struct {
	Input          jsontext.Value `json:"input"`
	Dimensions     *int64         `json:"dimensions"`
	EncodingFormat string         `json:"encoding_format"`

	texts []string // Input, read
}

type embedRequest struct {
	Model                string  `json:"model"`
	Content              content `json:"content"`
	OutputDimensionality *int64  `json:"outputDimensionality,omitzero"`
}

type embedResponse struct {
	Embedding     *embeddingValues  `json:"embedding"`  // of embedContent
	Embeddings    []embeddingValues `json:"embeddings"` // of batchEmbedContents
	UsageMetadata *usageMetadata    `json:"usageMetadata"`
	Error         *apiError         `json:"error"`
}

type embeddingValues struct {
	Values []float64 `json:"values"`
}

// embeddingList is OpenAI's answer.
type embeddingList struct {
	Object string          `json:"object"`
	Data   []embedding     `json:"data"`
	Model  string          `json:"model"`
	Usage  embeddingsUsage `json:"usage"`
}

type embedding struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"` // []float64, or a string of base64
}

type embeddingsUsage struct {
	PromptTokens int64 `json:"prompt_tokens"`
	TotalTokens  int64 `json:"total_tokens"`
}

// Embeddings answers an embeddings request of OpenAI's shape.
func (p *Provider) Embeddings(ctx context.Context, model string, body []byte) (*providers.Answer, error) {
	in, err := readEmbeddings(body)
	if err != nil {
		return nil, err
	}
	out, estimated := embeddingList{Object: "list", Model: model, Data: make([]embedding, 0, len(in.texts))}, false
	for start := 0; start < len(in.texts); start += perBatch {
		texts := in.texts[start:min(start+perBatch, len(in.texts))]
		method, body, err := in.batch(model, texts)
		if err != nil {
			return nil, err
		}
		resp, err := p.post(ctx, model, method, body)
		if err != nil {
			return nil, err
		}
		if body, err = wire.ReadAll(resp); err != nil {
			return nil, err
		}
		vectors, tokens, counted, err := readVectors(body, texts, p.key)
		if err != nil {
			return nil, err
		}
		for _, v := range vectors {
			out.Data = append(out.Data, embedding{"embedding", len(out.Data), in.encode(v.Values)})
		}
		out.Usage.PromptTokens += tokens
		estimated = estimated || !counted
	}
	out.Usage.TotalTokens = out.Usage.PromptTokens
	answer := &providers.Answer{Usage: providers.Usage{InputTokens: out.Usage.PromptTokens, Estimated: estimated}}
	if answer.Body, err = json.Marshal(out); err != nil {
		return nil, fmt.Errorf("gemini: encode embeddings: %w", err)
	}
	return answer, nil
}

func readEmbeddings(body []byte) (*embeddingsRequest, error) {
	r := new(embeddingsRequest)
	if err := jsonbody.DecodeLenient(body, r); err != nil {
		return nil, err
	}
	switch r.Input.Kind() {
	case jsontext.KindInvalid, jsontext.KindNull:
		return nil, fault.Missing("input", "input is required: a string or an array of strings")
	case jsontext.KindString:
		r.texts = make([]string, 1)
		_ = json.Unmarshal(r.Input, &r.texts[0]) // it is a string
	default:
		if err := json.Unmarshal(r.Input, &r.texts); err != nil {
			return nil, fault.Invalid("input", "input must be a string or an array of strings; this model takes no tokens")
		}
	}
	if len(r.texts) == 0 || len(r.texts) > maxInputs {
		return nil, fault.Invalid("input", "input must have 1 to %d texts", maxInputs)
	}
	for i, text := range r.texts {
		if strings.TrimSpace(text) == "" {
			return nil, fault.Invalid("input", "input must have no empty texts; number %d is one", i)
		}
	}
	if r.Dimensions != nil && (*r.Dimensions < 1 || *r.Dimensions > math.MaxInt32) {
		return nil, fault.Invalid("dimensions", "dimensions must be at least 1")
	}
	switch r.EncodingFormat {
	case "", "float", "base64":
		return r, nil
	}
	return nil, fault.Invalid("encoding_format", "encoding_format must be float or base64")
}

// batch is the call for some of the texts.
func (r *embeddingsRequest) batch(model string, texts []string) (method string, body []byte, err error) {
	requests := make([]embedRequest, len(texts))
	for i, text := range texts {
		requests[i] = embedRequest{
			Model:                "models/" + strings.TrimPrefix(model, "models/"),
			Content:              content{Parts: []part{{Text: text}}},
			OutputDimensionality: r.Dimensions,
		}
	}
	if len(r.texts) == 1 {
		method = "embedContent"
		body, err = json.Marshal(requests[0])
	} else {
		method = "batchEmbedContents"
		body, err = json.Marshal(struct {
			Requests []embedRequest `json:"requests"`
		}{requests})
	}
	if err != nil {
		err = fmt.Errorf("gemini: encode request: %w", err)
	}
	return method, body, err
}

// readVectors reads the answer for some texts, and how many tokens they have.
func readVectors(body []byte, texts []string, key string) (_ []embeddingValues, tokens int64, counted bool, err error) {
	var r embedResponse
	if err := json.Unmarshal(body, &r, fromGoogle); err != nil {
		return nil, 0, false, &providers.Failure{Kind: providers.KindProtocol, Err: errors.New(wire.Loggable(err.Error(), key))}
	}
	if r.Error != nil {
		return nil, 0, false, r.Error.failure(key)
	}
	if r.Embedding != nil {
		r.Embeddings = append(r.Embeddings, *r.Embedding)
	}
	if len(r.Embeddings) != len(texts) {
		return nil, 0, false, &providers.Failure{Kind: providers.KindProtocol, Err: fmt.Errorf("%d embeddings for %d texts", len(r.Embeddings), len(texts))}
	}
	if m := r.UsageMetadata; m != nil && m.Prompt > 0 {
		return r.Embeddings, clamp(m.Prompt), true, nil
	}
	for _, text := range texts { // older models do not count
		tokens += estimateTokens(len(text))
	}
	return r.Embeddings, tokens, false, nil
}

// encode gives a vector the form that was asked for. One that Gemini has
// shortened is no longer of length one, which users of OpenAI's rely on.
func (r *embeddingsRequest) encode(v []float64) any {
	if r.Dimensions != nil {
		normalize(v)
	}
	if r.EncodingFormat != "base64" {
		return v
	}
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
	}
	return base64.StdEncoding.EncodeToString(b)
}

func normalize(v []float64) {
	var sum float64
	for _, x := range v {
		sum += x * x
	}
	if length := math.Sqrt(sum); length > 0 && !math.IsInf(length, 0) {
		for i := range v {
			v[i] /= length
		}
	}
}
