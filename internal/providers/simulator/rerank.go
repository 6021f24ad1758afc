package simulator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

// rerankDimensions is the length of the vectors that documents are compared by.
const rerankDimensions = 256

type reranking struct {
	ID      string         `json:"id"`
	Model   string         `json:"model"`
	Results []rerankResult `json:"results"`
	Usage   struct {
		TotalTokens int64 `json:"total_tokens"`
	} `json:"usage"`
	Meta struct {
		Billed struct {
			Searches int64 `json:"search_units"`
		} `json:"billed_units"`
	} `json:"meta"`
}

type rerankResult struct {
	Index    int             `json:"index"`
	Score    float64         `json:"relevance_score"`
	Document *rerankDocument `json:"document,omitzero"`
}

type rerankDocument struct {
	Text string `json:"text"`
}

type rerankFields struct {
	Query           string           `json:"query"`
	Documents       []jsontext.Value `json:"documents"`
	TopN            *int             `json:"top_n"`
	ReturnDocuments bool             `json:"return_documents"`
}

// Rerank scores documents by the words that they share with the query.
func (s *Simulator) Rerank(ctx context.Context, model string, body []byte) (*providers.Response, error) {
	var in rerankFields
	if err := jsonbody.DecodeLenient(body, &in); err != nil {
		return nil, err
	}
	query, err := obeyMagic(ctx, "query", in.Query)
	if err != nil {
		return nil, err
	}
	documents, err := readDocuments(in.Documents)
	if err != nil {
		return nil, err
	}
	out := reranking{ID: "rerank-" + newID(sha256.Sum256(body), 29), Model: model}
	err = s.tokenizer.counting(ctx, len(body)+4*rerankDimensions*len(documents), func(c *counter) error {
		wanted, queryTokens := embed(query, rerankDimensions), c.count(query)
		for i, text := range documents {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("simulator: %w", err)
			}
			out.Usage.TotalTokens += int64(queryTokens + c.count(text))
			r := rerankResult{Index: i, Score: similarity(wanted, embed(text, rerankDimensions))}
			if in.ReturnDocuments {
				r.Document = &rerankDocument{text}
			}
			out.Results = append(out.Results, r)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(out.Results, func(a, b rerankResult) int { return cmp.Compare(b.Score, a.Score) })
	if in.TopN != nil {
		out.Results = out.Results[:min(len(out.Results), *in.TopN)]
	}
	out.Meta.Billed.Searches = int64(len(documents)+99) / 100
	text, err := json.Marshal(out)
	return &providers.Response{Body: text, Usage: providers.Usage{InputTokens: out.Usage.TotalTokens, Searches: out.Meta.Billed.Searches}}, err
}

// readDocuments reads strings and objects with a text.
func readDocuments(list []jsontext.Value) ([]string, error) {
	var out []string
	for i, value := range list {
		var in struct {
			Text *string `json:"text"`
		}
		err := json.Unmarshal(value, &in)
		if value.Kind() == '"' {
			err = json.Unmarshal(value, &in.Text)
		}
		if err != nil || in.Text == nil {
			return nil, fault.Invalid("documents", "documents[%d] must be a string, or an object with text.", i)
		}
		out = append(out, *in.Text)
	}
	return out, nil
}

// similarity returns how close two vectors of length 1 are, from 0 to 1.
func similarity(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return min(1, max(0, sum))
}
