package gateway

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/catalog"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

const (
	maxRerankDocuments = 10_000 // Cohere's limit

	// Cohere counts a search for each hundred documents, and a document of more than 500 tokens,
	// with the query, as several. A chunk is taken to have at least minChunkTokens.
	documentsPerSearch = 100
	chunkTokens        = 500
	minChunkTokens     = 100
)

// Rerank orders documents by their relevance to a query.
func (g *Gateway) Rerank(ctx context.Context, c Call) (*Response, error) {
	r, err := readRerank(c.Body)
	if err != nil {
		return nil, err
	}
	return g.forward(ctx, c, r, catalog.Rerank, func(ctx context.Context, t target, _ int64) (*providers.Response, error) {
		return t.provider.(providers.Reranker).Rerank(ctx, t.offer.Upstream, r.body)
	})
}

type rerankFields struct {
	Model     *string          `json:"model"`
	Models    []string         `json:"models"`
	Query     *string          `json:"query"`
	Documents []jsontext.Value `json:"documents"`
	TopN      *int64           `json:"top_n"`
}

func readRerank(body []byte) (*request, error) {
	var in rerankFields
	if err := jsonbody.DecodeForwarded(body, &in, providers.RerankNames); err != nil {
		return nil, err
	}
	switch {
	case in.Query == nil || *in.Query == "":
		return nil, fault.Missing("query", "query is required: the text to compare the documents with.")
	case len(in.Documents) == 0:
		return nil, fault.Missing("documents", "documents is required: an array of strings, or of objects with text.")
	case len(in.Documents) > maxRerankDocuments:
		return nil, fault.Invalid("documents", "documents must have at most %d entries. Send them in several requests.", maxRerankDocuments)
	case in.TopN != nil && *in.TopN < 1:
		return nil, fault.Invalid("top_n", "top_n must be at least 1.")
	}
	r := &request{operation: "rerank", body: body} // no choices: the output isn't charged
	var err error
	if r.models, err = modelList(in.Model, in.Models); err != nil {
		return nil, err
	}
	query, documents := int64(len(*in.Query)), int64(len(in.Documents))
	chunk, chunks := max(chunkTokens-query, minChunkTokens), int64(0)
	for _, d := range in.Documents {
		chunks += (int64(len(d)) + chunk - 1) / chunk
	}
	r.searches = searchesFor(documents)
	// Most models read the query again with each document.
	r.maxInput = maxTextTokens(body, r.needs) + documents*(query+frameTokens)
	r.maxUnits = catalog.Units{Tokens: catalog.Tokens{Input: r.maxInput}, Searches: searchesFor(chunks)}
	return r, nil
}

func searchesFor(documents int64) int64 {
	return (documents + documentsPerSearch - 1) / documentsPerSearch
}

// withSearches completes the usage of a rerank model: providers count searches, tokens or neither, and
// prices are by either.
func (a *activeCall) withSearches(u providers.Usage) providers.Usage {
	if a.request.searches == 0 {
		return u
	}
	if a.target.offer.Price.PerSearch > 0 {
		u.Estimated = u.Searches <= 0
		if u.InputTokens <= 0 {
			u.InputTokens = estimateTokens(a.request.maxInput)
		}
	}
	if u.Searches <= 0 {
		u.Searches = a.request.searches
	}
	return u
}
