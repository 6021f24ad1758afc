package upstreams

import (
	"encoding/json"
	"fmt"
	"strings"
)

// openAIModeration returns the response to a moderations request: one result for each string, or one
// for all parts. It flags texts with the word violent. OpenAI counts no tokens, other servers do.
func openAIModeration(body []byte, r OpenAIReply) string {
	var in struct {
		Model string          `json:"model"`
		Input json.RawMessage `json:"input"`
	}
	_ = json.Unmarshal(body, &in)
	texts := []string{string(in.Input)}
	_ = json.Unmarshal(in.Input, &texts)
	var results []string
	for _, text := range texts {
		flagged := strings.Contains(text, "violent")
		results = append(results, fmt.Sprintf(`{"flagged":%t,"categories":{"violence":%[1]t},"category_scores":{"violence":0.5},"category_applied_input_types":{"violence":["text"]}}`, flagged))
	}
	usage := ""
	if r.Usage != nil {
		usage = `,"usage":` + r.Usage.json()
	}
	return fmt.Sprintf(`{"id":"modr-B1","model":%s,"results":[%s]%s}`, openAIString(in.Model), strings.Join(results, ","), usage)
}

// openAIRanking returns the response to a rerank request: all documents in their order. Models named
// search count searches as Cohere does, and others tokens as vLLM does: a word is one.
func openAIRanking(body []byte, r OpenAIReply) string {
	var in struct {
		Model     string `json:"model"`
		Query     string `json:"query"`
		Documents []any  `json:"documents"`
	}
	_ = json.Unmarshal(body, &in)
	var results []string
	tokens := 0
	for i, d := range in.Documents {
		results = append(results, fmt.Sprintf(`{"index":%d,"relevance_score":%g}`, i, 1/float64(i+1)))
		tokens += len(strings.Fields(in.Query)) + len(strings.Fields(fmt.Sprint(d)))
	}
	usage := fmt.Sprintf(`,"usage":{"total_tokens":%d}`, tokens)
	switch {
	case r.Counts == CountsMissing:
		usage = ""
	case strings.Contains(in.Model, "search"):
		usage = fmt.Sprintf(`,"meta":{"api_version":{"version":"2"},"billed_units":{"search_units":%d}}`, (len(in.Documents)+99)/100)
	}
	return fmt.Sprintf(`{"id":"rank-1","model":%s,"results":[%s]%s}`, openAIString(in.Model), strings.Join(results, ","), usage)
}
