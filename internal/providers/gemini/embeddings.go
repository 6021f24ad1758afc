package gemini

import (
	"context"
	"math"
	"slices"
	"strings"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

const maxBatch = 100 // of batchEmbedContents

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
	in, err := openai.DecodeEmbeddings(body)
	if err != nil {
		return nil, err
	}
	texts, ok := in.Texts()
	switch {
	case !ok:
		return nil, fault.Invalid("input", "input must be a string or an array of strings. This model does not accept tokens.")
	case len(texts) == 0 || len(texts) > openai.MaxEmbeddings:
		return nil, fault.Invalid("input", "input must have 1 to %d strings.", openai.MaxEmbeddings)
	}
	if i := slices.IndexFunc(texts, func(text string) bool { return strings.TrimSpace(text) == "" }); i >= 0 {
		return nil, fault.Invalid("input", "input must not have empty strings. Number %d is empty.", i)
	}
	var vectors [][]float64
	var used providers.Usage
	for batch := range slices.Chunk(texts, maxBatch) {
		r, err := p.embed(ctx, model, batch, in.Dimensions)
		if err != nil {
			return nil, err
		}
		for _, v := range r.Embeddings {
			if in.Dimensions != nil {
				normalize(v.Values)
			}
			vectors = append(vectors, v.Values)
		}
		tokens, counted := r.promptTokens(batch)
		used.InputTokens += tokens
		used.Estimated = used.Estimated || !counted
	}
	out, err := openai.EncodeEmbeddings(model, vectors, in.EncodingFormat, used.InputTokens)
	return &providers.Response{Body: out, Usage: used, Ignored: openai.UnknownFields(body, "model", "input", "dimensions", "encoding_format")}, err
}

func (p *Provider) embed(ctx context.Context, model string, texts []string, dimensions *int64) (*embedResponse, error) {
	var batch struct {
		Requests []embedRequest `json:"requests"`
	}
	for _, text := range texts {
		batch.Requests = append(batch.Requests, embedRequest{
			Model:                "models/" + strings.TrimPrefix(model, "models/"),
			Content:              content{Parts: []part{{Text: text}}},
			OutputDimensionality: dimensions,
		})
	}
	var method, request = "batchEmbedContents", any(batch)
	if len(texts) == 1 {
		method, request = "embedContent", batch.Requests[0]
	}
	r := new(embedResponse)
	if err := p.post(ctx, p.url(model, method), request, r, explain); err != nil {
		return nil, err
	}
	if r.Error != nil {
		return nil, r.Error.failure(p.client.Secrets())
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
