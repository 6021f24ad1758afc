package openai

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/go-json-experiment/json"
)

// EncodeEmbeddings encodes the response to an embeddings request.
func EncodeEmbeddings[F float32 | float64](model string, vectors [][]F, inBase64 bool, tokens int64) ([]byte, error) {
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
		if inBase64 {
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
