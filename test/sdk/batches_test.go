//go:build clients

package sdk_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
	"turnpike/webhook"
)

func TestSDKUnwrapsBatchEvents(t *testing.T) {
	t.Parallel()
	body := []byte(`{"id":"evt_01h455vb4pex5vsknk084sn02q","object":"event","type":"batch.completed","created_at":1760000000,` +
		`"environment":"test","workspace":"ws_01h455vb4pex5vsknk084sn02q","project":null,"data":{"id":"batch_1"}}`)
	h, secret := http.Header{}, webhook.NewSecret()
	if err := webhook.Sign(h, "dlv_01h455vb4pex5vsknk084sn02q", time.Now(), body, secret); err != nil {
		t.Fatal(err)
	}
	c := openai.NewClient(option.WithAPIKey("unused"), option.WithWebhookSecret(secret))
	event, err := c.Webhooks.Unwrap(body, h)
	if err != nil || event.AsBatchCompleted().Data.ID != "batch_1" {
		t.Errorf("got %+v, %v", event, err)
	}
}

func TestSDKUploadsFilesAndRunsABatch(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
		c := client(s, key)
		const input = `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o-mini","messages":[{"role":"user","content":"Hi."}]}}` + "\n"
		f, err := c.Files.New(t.Context(), openai.FileNewParams{File: openai.File(strings.NewReader(input), "in.jsonl", "application/jsonl"), Purpose: openai.FilePurposeBatch,
			ExpiresAfter: openai.FileNewParamsExpiresAfter{Seconds: 3600}})
		if err != nil {
			t.Fatal(err)
		}
		if f.Bytes != int64(len(input)) || f.Filename != "in.jsonl" || f.ExpiresAt != f.CreatedAt+3600 {
			t.Errorf("got the file %s", f.RawJSON())
		}
		if found, err := c.Files.Get(t.Context(), f.ID); err != nil || found.ID != f.ID {
			t.Errorf("got %v, %v", found, err)
		}
		b, err := c.Batches.New(t.Context(), openai.BatchNewParams{InputFileID: f.ID, Endpoint: openai.BatchNewParamsEndpointV1ChatCompletions,
			CompletionWindow: openai.BatchNewParamsCompletionWindow24h, Metadata: map[string]string{"night": "1"}})
		if err != nil {
			t.Fatal(err)
		}
		s.Eventually(t, func() bool {
			if b, err = c.Batches.Get(t.Context(), b.ID); err != nil {
				t.Fatal(err)
			}
			return b.Status == openai.BatchStatusCompleted
		})
		if b.RequestCounts.Completed != 1 || b.Metadata["night"] != "1" || b.OutputFileID == "" {
			t.Errorf("got the batch %s", b.RawJSON())
		}
		res, err := c.Files.Content(t.Context(), b.OutputFileID)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if output, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(output), `"custom_id":"a"`) {
			t.Errorf("got the output %s, %v", output, err)
		}
		seen := 0
		for pager := c.Files.ListAutoPaging(t.Context(), openai.FileListParams{}); pager.Next(); {
			seen++
		}
		if seen != 2 {
			t.Errorf("the list has %d files, want the input and the output", seen)
		}
		if deleted, err := c.Files.Delete(t.Context(), f.ID); err != nil || !deleted.Deleted {
			t.Errorf("got %v, %v", deleted, err)
		}
		if page, err := c.Batches.List(t.Context(), openai.BatchListParams{}); err != nil || len(page.Data) != 1 {
			t.Errorf("got the list %v, %v", page, err)
		}
		var failed *openai.Error
		if _, err := c.Batches.Cancel(t.Context(), b.ID); !errors.As(err, &failed) || failed.StatusCode != 409 {
			t.Errorf("canceling an ended batch: got %v", err)
		}
	})
}
