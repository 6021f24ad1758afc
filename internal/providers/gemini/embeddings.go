package gemini

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

const (
	maxInputs = 2048 // OpenAI's limit
	maxBatch  = 100  // of batchEmbedContents
)

type embeddingsRequest struct {
	Input          jsontext.Value `json:"input"`
	Dimensions     *int64         `json:"dimensions"`
	EncodingFormat string         `json:"encoding_format"`

	texts []string // parsed Input
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

// Embeddings makes an embeddings request in OpenAI's format.
func (p *Provider) Embeddings(ctx context.Context, model string, body []byte) (*providers.Response, error) {
	in, err := readEmbeddings(body)
	if err != nil {
		return nil, err
	}
	var vectors [][]float64
	var used providers.Usage
	for start := 0; start < len(in.texts); start += maxBatch {
		texts := in.texts[start:min(start+maxBatch, len(in.texts))]
		method, body, err := in.batch(model, texts)
		if err != nil {
			return nil, err
		}
		resp, err := p.post(ctx, model, method, body)
		if err != nil {
			return nil, err
		}
		r, err := p.readVectors(resp, texts)
		if err != nil {
			return nil, err
		}
		for _, v := range r.Embeddings {
			if in.Dimensions != nil {
				normalize(v.Values)
			}
			vectors = append(vectors, v.Values)
		}
		tokens, counted := r.promptTokens(texts)
		used.InputTokens += tokens
		used.Estimated = used.Estimated || !counted
	}
	out, err := openai.EncodeEmbeddings(model, vectors, in.EncodingFormat == "base64", used.InputTokens)
	return &providers.Response{Body: out, Usage: used}, err
}

func readEmbeddings(body []byte) (*embeddingsRequest, error) {
	r := new(embeddingsRequest)
	if err := jsonbody.DecodeLenient(body, r); err != nil {
		return nil, err
	}
	switch r.Input.Kind() {
	case jsontext.KindInvalid, jsontext.KindNull:
		return nil, fault.Missing("input", "input is required: a string or an array of strings.")
	case jsontext.KindString:
		r.texts = make([]string, 1)
		_ = json.Unmarshal(r.Input, &r.texts[0]) // it is a string
	default:
		if err := json.Unmarshal(r.Input, &r.texts); err != nil {
			return nil, fault.Invalid("input", "input must be a string or an array of strings. This model does not accept tokens.")
		}
	}
	if len(r.texts) == 0 || len(r.texts) > maxInputs {
		return nil, fault.Invalid("input", "input must have 1 to %d strings.", maxInputs)
	}
	for i, text := range r.texts {
		if strings.TrimSpace(text) == "" {
			return nil, fault.Invalid("input", "input must not have empty strings. Number %d is empty.", i)
		}
	}
	if r.Dimensions != nil && (*r.Dimensions < 1 || *r.Dimensions > math.MaxInt32) {
		return nil, fault.Invalid("dimensions", "dimensions must be at least 1.")
	}
	switch r.EncodingFormat {
	case "", "float", "base64":
		return r, nil
	}
	return nil, fault.Invalid("encoding_format", "encoding_format must be float or base64.")
}

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

func (p *Provider) readVectors(resp *http.Response, texts []string) (*embedResponse, error) {
	r := new(embedResponse)
	if err := wire.ReadJSON(resp, wire.MaxMedia, r, p.key); err != nil {
		return nil, err
	}
	if r.Error != nil {
		return nil, r.Error.failure(p.key)
	}
	if r.Embedding != nil {
		r.Embeddings = append(r.Embeddings, *r.Embedding)
	}
	if len(r.Embeddings) != len(texts) {
		return nil, wire.ProtocolFailure("%d embeddings for %d texts", len(r.Embeddings), len(texts))
	}
	return r, nil
}

// promptTokens returns the tokens of the texts. Older models don't count them.
func (r *embedResponse) promptTokens(texts []string) (tokens int64, counted bool) {
	if m := r.UsageMetadata; m != nil && m.Prompt > 0 {
		return clamp(m.Prompt), true
	}
	for _, text := range texts {
		tokens += wire.EstimateTokens(len(text))
	}
	return tokens, false
}

// normalize makes the length one, which users of OpenAI's API rely on. Vectors that
// Gemini has shortened have another.
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
