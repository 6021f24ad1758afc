package upstreams

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// OpenAIBatches serves OpenAI's Files and Batches APIs. A batch is in progress until the test ends it.
type OpenAIBatches struct {
	mu    sync.Mutex
	files map[string][]byte
	list  []*OpenAIBatch

	// Created and Read, if set, are called when a batch is created and when a file is read, before the
	// response.
	Created, Read func()
	// Lose breaks the connection instead of a response to the next creation.
	Lose bool
	// Reject is the status of the next creation, which fails.
	Reject int
}

// OpenAIBatch is a batch at the provider.
type OpenAIBatch struct {
	ID       string
	Endpoint string
	Lines    []OpenAIBatchLine
	Metadata map[string]string
	Status   string
	Created  int64
	output   string
	failed   string
}

// OpenAIBatchLine is a request of a batch.
type OpenAIBatchLine struct {
	CustomID string         `json:"custom_id"`
	Method   string         `json:"method"`
	URL      string         `json:"url"`
	Body     jsontext.Value `json:"body"`
}

// All returns the batches that were created.
func (b *OpenAIBatches) All() (list []OpenAIBatch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, batch := range b.list {
		list = append(list, *batch)
	}
	return list
}

// End ends all batches in progress with a status. It answers the first n requests of each; the others
// didn't run. Requests to a model named broken fail.
func (b *OpenAIBatches) End(status string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, batch := range b.list {
		if batch.Status != "in_progress" && batch.Status != "cancelling" {
			continue
		}
		var output, failed bytes.Buffer
		for i, l := range batch.Lines {
			code := map[string]string{"expired": "batch_expired", "cancelled": "batch_cancelled"}[status]
			if i >= n {
				if code != "" {
					fmt.Fprintf(&failed, `{"id":"batch_req_%d","custom_id":%q,"response":null,"error":{"code":%q,"message":"This request did not run."}}`+"\n", i, l.CustomID, code)
				}
				continue
			}
			if bytes.Contains(l.Body, []byte(`"broken"`)) {
				fmt.Fprintf(&failed, `{"id":"batch_req_%d","custom_id":%q,"response":{"status_code":400,"request_id":"r","body":%s},"error":null}`+"\n", i, l.CustomID,
					oneLineJSON(openAIError(OpenAIReply{Message: "This model is broken."})))
				continue
			}
			fmt.Fprintf(&output, `{"id":"batch_req_%d","custom_id":%q,"response":{"status_code":200,"request_id":"r","body":%s},"error":null}`+"\n", i, l.CustomID, oneLineJSON(answerLine(l)))
		}
		batch.Status = status
		batch.output, batch.failed = b.store(output.Bytes()), b.store(failed.Bytes())
	}
}

func answerLine(l OpenAIBatchLine) string {
	if strings.HasSuffix(l.URL, "/embeddings") {
		return openAIVectors(l.Body, OpenAIReply{})
	}
	a, rejection := newOpenAIResponse(l.Body, OpenAIReply{})
	if rejection != "" {
		return openAIError(OpenAIReply{Message: rejection})
	}
	return a.body()
}

func oneLineJSON(text string) []byte {
	v := jsontext.Value(text)
	_ = v.Compact()
	return v
}

// store keeps a file, unless it is empty.
func (b *OpenAIBatches) store(data []byte) (id string) {
	if len(data) == 0 {
		return ""
	}
	if b.files == nil {
		b.files = map[string][]byte{}
	}
	id = fmt.Sprintf("file-%d", len(b.files)+1)
	b.files[id] = data
	return id
}

func (batch *OpenAIBatch) object() map[string]any {
	null := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	var failure any
	if batch.Status == "failed" {
		failure = map[string]any{"object": "list", "data": []any{map[string]any{"code": "invalid_request", "message": "The file is invalid.", "line": 1}}}
	}
	return map[string]any{"id": batch.ID, "object": "batch", "endpoint": batch.Endpoint, "status": batch.Status, "created_at": batch.Created, "metadata": batch.Metadata,
		"output_file_id": null(batch.output), "error_file_id": null(batch.failed), "errors": failure, "completion_window": "24h"}
}

// serve serves a request, or reports false if it belongs to another API.
func (b *OpenAIBatches) serve(w http.ResponseWriter, req *OpenAIRequest) bool {
	parts := strings.Split(strings.Trim(req.Path, "/"), "/")
	if parts[0] != "files" && parts[0] != "batches" {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	reply := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.MarshalWrite(w, v)
	}
	fail := func(status int, message string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, openAIError(OpenAIReply{Status: status, Message: message}))
	}
	find := func() *OpenAIBatch {
		for _, batch := range b.list {
			if len(parts) > 1 && batch.ID == parts[1] {
				return batch
			}
		}
		return &OpenAIBatch{}
	}
	switch route := req.Method + " " + parts[0]; {
	case route == "POST files":
		form, rejected := readForm(req)
		if rejected != nil || strings.Join(form.Value["purpose"], "") != "batch" || len(form.File["file"]) != 1 {
			fail(400, "Invalid upload.")
			return true
		}
		file, err := form.File["file"][0].Open()
		if err != nil {
			fail(400, "Invalid upload.")
			return true
		}
		data, _ := io.ReadAll(file)
		reply(200, map[string]any{"id": b.store(data), "object": "file", "purpose": "batch"})
	case route == "GET files" && len(parts) == 3 && parts[2] == "content" && b.files[parts[1]] != nil:
		if b.Read != nil {
			b.Read()
		}
		_, _ = w.Write(b.files[parts[1]])
	case route == "POST batches" && len(parts) == 1:
		b.create(req, reply, fail)
	case route == "GET batches" && len(parts) == 1:
		list := []any{}
		for _, batch := range slices.Backward(b.list) {
			list = append(list, batch.object())
		}
		reply(200, map[string]any{"object": "list", "data": list, "has_more": false})
	case route == "GET batches" && find().ID != "":
		reply(200, find().object())
	case route == "POST batches" && len(parts) == 3 && parts[2] == "cancel" && find().ID != "":
		batch := find()
		if batch.Status != "in_progress" {
			fail(409, "Cannot cancel a batch with status '"+batch.Status+"'.")
			return true
		}
		batch.Status = "cancelling"
		reply(200, batch.object())
	default:
		fail(404, "Not found.")
	}
	return true
}

// create creates a batch. As OpenAI does, it rejects files with several models.
func (b *OpenAIBatches) create(req *OpenAIRequest, reply func(int, any), fail func(int, string)) {
	var in struct {
		InputFileID      string            `json:"input_file_id"`
		Endpoint         string            `json:"endpoint"`
		CompletionWindow string            `json:"completion_window"`
		Metadata         map[string]string `json:"metadata"`
	}
	if err := json.Unmarshal(req.Body, &in, json.RejectUnknownMembers(true)); err != nil || b.files[in.InputFileID] == nil || in.CompletionWindow != "24h" {
		fail(400, "Invalid batch.")
		return
	}
	if b.Reject != 0 {
		status := b.Reject
		b.Reject = 0
		fail(status, "No batches today.")
		return
	}
	batch := &OpenAIBatch{ID: fmt.Sprintf("batch_%d", len(b.list)+1), Endpoint: in.Endpoint, Metadata: in.Metadata, Status: "in_progress", Created: time.Now().Unix()}
	models := map[string]bool{}
	for text := range bytes.Lines(b.files[in.InputFileID]) {
		var l OpenAIBatchLine
		if json.Unmarshal(text, &l, json.RejectUnknownMembers(true)) != nil || l.URL != in.Endpoint || l.Method != "POST" || l.CustomID == "" {
			batch.Status = "failed"
		}
		var body struct {
			Model  string `json:"model"`
			Stream bool   `json:"stream"`
		}
		_ = json.Unmarshal(l.Body, &body)
		models[body.Model] = true
		batch.Lines = append(batch.Lines, l)
	}
	if len(models) != 1 {
		batch.Status = "failed"
	}
	b.list = append(b.list, batch)
	if b.Created != nil {
		b.Created()
	}
	if b.Lose {
		b.Lose = false
		panic(http.ErrAbortHandler)
	}
	reply(200, batch.object())
}
