package openai

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

// MaxEmbeddings is OpenAI's limit for the inputs of a request.
const MaxEmbeddings = 2048

// EmbeddingsRequest is the body of POST /v1/embeddings.
type EmbeddingsRequest struct {
	Input          jsontext.Value `json:"input"`
	Dimensions     *int64         `json:"dimensions"`
	EncodingFormat string         `json:"encoding_format"`
}

// DecodeEmbeddings reads an embeddings request. It checks everything but the input's elements and
// the upper limit of the dimensions.
func DecodeEmbeddings(body []byte) (*EmbeddingsRequest, error) {
	r := new(EmbeddingsRequest)
	if err := jsonbody.DecodeLenient(body, r); err != nil {
		return nil, err
	}
	switch {
	case !isSet(r.Input):
		return nil, fault.Missing("input", "input is required: a string or an array of strings.")
	case r.Dimensions != nil && *r.Dimensions < 1:
		return nil, fault.Invalid("dimensions", "dimensions must be at least 1.")
	case !slices.Contains([]string{"", "float", "base64"}, r.EncodingFormat):
		return nil, fault.Invalid("encoding_format", "encoding_format must be float or base64.")
	}
	return r, nil
}

// Texts returns the input if it is a string or an array of strings.
func (r *EmbeddingsRequest) Texts() (texts []string, ok bool) {
	var one string
	if json.Unmarshal(r.Input, &one) == nil {
		return []string{one}, true
	}
	if json.Unmarshal(r.Input, &texts) != nil {
		return nil, false
	}
	return texts, true
}

// EncodeEmbeddings encodes the response to an embeddings request.
func EncodeEmbeddings[F float32 | float64](model string, vectors [][]F, format string, tokens int64) ([]byte, error) {
	type embedding struct {
		Object    string `json:"object"`
		Index     int    `json:"index"`
		Embedding any    `json:"embedding"`
	}
	var out struct {
		Object string      `json:"object"`
		Data   []embedding `json:"data"`
		Model  string      `json:"model"`
		Usage  struct {
			PromptTokens int64 `json:"prompt_tokens"`
			TotalTokens  int64 `json:"total_tokens"`
		} `json:"usage"`
	}
	out.Object, out.Model = "list", model
	out.Usage.PromptTokens, out.Usage.TotalTokens = tokens, tokens
	for i, vector := range vectors {
		e := embedding{"embedding", i, vector}
		if format == "base64" {
			b := make([]byte, 0, 4*len(vector))
			for _, x := range vector {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
			}
			e.Embedding = base64.StdEncoding.EncodeToString(b)
		}
		out.Data = append(out.Data, e)
	}
	body, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("openai: encode embeddings: %w", err)
	}
	return body, nil
}
