package upstreams

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// AnthropicBatches serves Anthropic's Message Batches API. A batch is in progress until the test ends it.
type AnthropicBatches struct {
	mu   sync.Mutex
	list []*AnthropicBatch

	// Lose breaks the connection instead of a response to the next creation.
	Lose bool
}

// AnthropicBatch is a batch at the provider.
type AnthropicBatch struct {
	ID       string
	Requests []struct {
		CustomID string         `json:"custom_id"`
		Params   jsontext.Value `json:"params"`
	} `json:"requests"`
	Status  string
	created time.Time
	results []string
}

// All returns the batches that were created.
func (b *AnthropicBatches) All() (list []AnthropicBatch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, batch := range b.list {
		list = append(list, *batch)
	}
	return list
}

// End ends all batches in progress. It answers the first n requests of each; the others end with the
// given type: canceled, expired or errored.
func (b *AnthropicBatches) End(n int, others string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, batch := range b.list {
		if batch.Status == "ended" {
			continue
		}
		batch.Status = "ended"
		for i, r := range batch.Requests {
			var m anthropicMessages
			_ = json.Unmarshal(r.Params, &m)
			result := `{"type":"succeeded","message":` + anthropicSay(m.Model, m.lastText(), false).Body + `}`
			switch {
			case i >= n && others == "errored":
				result = `{"type":"errored","error":` + AnthropicError("invalid_request_error", "messages: too long") + `}`
			case i >= n:
				result = fmt.Sprintf(`{"type":%q}`, others)
			}
			batch.results = append(batch.results, fmt.Sprintf(`{"custom_id":%q,"result":%s}`, r.CustomID, result))
		}
		slices.Reverse(batch.results) // in any order
	}
}

func (batch *AnthropicBatch) object() map[string]any {
	counts := map[string]int{"processing": len(batch.Requests), "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
	for _, r := range batch.results {
		for kind := range counts {
			if strings.Contains(r, `"result":{"type":"`+kind+`"`) {
				counts[kind]++
				counts["processing"]--
			}
		}
	}
	return map[string]any{"id": batch.ID, "type": "message_batch", "processing_status": batch.Status, "request_counts": counts, "created_at": batch.created.Format(time.RFC3339),
		"results_url": nil, "ended_at": nil, "expires_at": batch.created.Add(24 * time.Hour).Format(time.RFC3339)}
}

var anthropicCustomID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// serve serves a request, or reports false if it belongs to another API.
func (b *AnthropicBatches) serve(w http.ResponseWriter, r *http.Request, body []byte) bool {
	path, found := strings.CutPrefix(r.URL.Path, "/v1/messages/batches")
	if !found {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	reply := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.MarshalWrite(w, v)
	}
	reject := func(status int, kind, message string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, AnthropicError(kind, message))
	}
	id, action, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	at := slices.IndexFunc(b.list, func(batch *AnthropicBatch) bool { return batch.ID == id })
	switch {
	case r.Method == "POST" && id == "":
		batch := &AnthropicBatch{ID: fmt.Sprintf("msgbatch_up%d", len(b.list)+1), Status: "in_progress", created: time.Now().UTC()}
		if err := json.Unmarshal(body, batch); err != nil || len(batch.Requests) == 0 {
			reject(400, "invalid_request_error", "requests: required")
			return true
		}
		for _, request := range batch.Requests {
			if !anthropicCustomID.MatchString(request.CustomID) {
				reject(400, "invalid_request_error", "requests: custom_id")
				return true
			}
		}
		b.list = append(b.list, batch)
		if b.Lose {
			b.Lose = false
			panic(http.ErrAbortHandler)
		}
		reply(batch.object())
	case r.Method == "GET" && id == "":
		list := []any{}
		for _, batch := range slices.Backward(b.list) {
			list = append(list, batch.object())
		}
		reply(map[string]any{"data": list, "has_more": false, "first_id": nil, "last_id": nil})
	case at < 0:
		reject(404, "not_found_error", "No such batch")
	case r.Method == "POST" && action == "cancel":
		b.list[at].Status = "canceling"
		reply(b.list[at].object())
	case action == "results" && b.list[at].Status == "ended":
		_, _ = io.WriteString(w, strings.Join(b.list[at].results, "\n")+"\n")
	case action == "":
		reply(b.list[at].object())
	default:
		reject(404, "not_found_error", "Not found")
	}
	return true
}
