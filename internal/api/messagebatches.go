package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/apifiles"
	"turnpike/internal/batches"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/media"
	"turnpike/internal/web"
)

const messageBatchesPath = "/v1/messages/batches"

// messageBatchRequest has Anthropic's format.
type messageBatchRequest struct {
	Requests []struct {
		CustomID string         `json:"custom_id"`
		Params   jsontext.Value `json:"params"`
	} `json:"requests"`
}

// messageBatch has Anthropic's format.
type messageBatch struct {
	ID                string             `json:"id"`
	Type              string             `json:"type"`
	ProcessingStatus  string             `json:"processing_status"`
	RequestCounts     messageBatchCounts `json:"request_counts"`
	EndedAt           *string            `json:"ended_at"`
	CreatedAt         string             `json:"created_at"`
	ExpiresAt         string             `json:"expires_at"`
	ArchivedAt        *string            `json:"archived_at"`
	CancelInitiatedAt *string            `json:"cancel_initiated_at"`
	ResultsURL        *string            `json:"results_url"`
}

type messageBatchCounts struct {
	Processing int64 `json:"processing"`
	Succeeded  int64 `json:"succeeded"`
	Errored    int64 `json:"errored"`
	Canceled   int64 `json:"canceled"`
	Expired    int64 `json:"expired"`
}

func rfc3339(t *time.Time) *string {
	if t == nil {
		return nil
	}
	return new(t.UTC().Format(time.RFC3339))
}

func (c *Call) renderMessageBatch(b *batches.Batch) messageBatch {
	o := messageBatch{ID: b.ID, Type: "message_batch", ProcessingStatus: "in_progress", EndedAt: rfc3339(b.EndedAt), CreatedAt: *rfc3339(&b.CreatedAt), ExpiresAt: *rfc3339(&b.ExpiresAt),
		CancelInitiatedAt: rfc3339(b.CancellingAt), RequestCounts: messageBatchCounts{b.Pending(), b.Completed, b.Failed, b.Cancelled, b.Expired}}
	switch {
	case b.Status.Ended():
		o.ProcessingStatus = "ended"
		if b.OutputFileID != "" {
			o.ResultsURL = new(c.s.PublicURL + messageBatchesPath + "/" + b.ID + "/results")
		}
	case b.Status == batches.Cancelling:
		o.ProcessingStatus = "canceling"
	}
	return o
}

var messageCustomID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// messageLines checks the requests of a batch and returns them as lines of an input file.
func messageLines(in *messageBatchRequest) ([]byte, error) {
	if len(in.Requests) == 0 {
		return nil, fault.Missing("requests", "requests is required: an array of at least one request.")
	}
	var out bytes.Buffer
	seen := make(map[string]int, len(in.Requests))
	for i, r := range in.Requests {
		at := fmt.Sprintf("requests[%d]", i)
		first, twice := seen[r.CustomID]
		switch {
		case !messageCustomID.MatchString(r.CustomID):
			return nil, fault.Invalid(at+".custom_id", "%s.custom_id must have 1 to 64 letters, digits, underscores and dashes.", at)
		case twice:
			return nil, fault.Invalid(at+".custom_id", "%s.custom_id duplicates requests[%d]. Each must be unique.", at, first)
		case r.Params.Kind() != '{':
			return nil, fault.Missing(at+".params", "%s.params is required: the body of a request to /v1/messages.", at)
		}
		seen[r.CustomID] = i
		text, err := json.Marshal(batches.Line{CustomID: r.CustomID, Method: "POST", URL: string(batches.Messages), Body: r.Params})
		if err != nil {
			return nil, err
		}
		out.Write(append(text, '\n'))
	}
	return out.Bytes(), nil
}

// createMessageBatch implements Anthropic's Message Batches API on the same jobs as createBatch.
func createMessageBatch(c *Call) error {
	version, err := readAnthropicVersion(c.R)
	if err != nil {
		return err
	}
	var in messageBatchRequest
	body, err := c.readModelRequest(&in)
	if err != nil {
		return err
	}
	if err := batches.Check(c.Principal, batches.Messages); err != nil {
		return err
	}
	lines, err := messageLines(&in)
	if err != nil {
		return err
	}
	if err := c.s.Gateway.CheckRateLimit(c.Context(), c.modelCall(nil)); err != nil {
		return err
	}
	id := ids.New(ids.MessageBatch)
	options := c.batchOptions()
	options.Version, options.Beta = version, c.R.Header.Values("Anthropic-Beta")
	input := &apifiles.File{ID: id, Tenant: c.Principal.Tenant, Bytes: int64(len(lines))} // without a row: only the batch uses it
	return c.perform(body, action{
		before: func() error {
			content, err := c.s.APIFiles.Spool(id, bytes.NewReader(lines))
			if err != nil {
				return media.StorageError(err)
			}
			defer content.Discard()
			if input.SHA256, err = c.s.APIFiles.Keep(c.Context(), input.Tenant, content); err != nil {
				return media.StorageError(err)
			}
			return nil
		},
		do: func(ctx context.Context, tx *db.Tx) (any, error) {
			if err := c.createProjectIn(ctx, tx); err != nil {
				return nil, err
			}
			b, err := c.s.Batches.Create(ctx, tx, c.Principal, c.Project, batches.Draft{ID: id, Endpoint: batches.Messages, Input: input, Total: int64(len(in.Requests)),
				OutputLife: c.s.APIFiles.Retention(), Options: options})
			return show(b, err, c.renderMessageBatch)
		},
		after: func(err error) {
			if err != nil && !errors.Is(err, db.ErrInDoubt) {
				c.dropContent(input)
			}
		},
	})
}

type messageBatchList struct {
	Data    []messageBatch `json:"data"`
	HasMore bool           `json:"has_more"`
	FirstID *string        `json:"first_id"`
	LastID  *string        `json:"last_id"`
}

// listMessageBatches lists the batches of Anthropic's API, newest first.
func listMessageBatches(ctx context.Context, c *Call) (any, error) {
	if _, err := readAnthropicVersion(c.R); err != nil {
		return nil, err
	}
	q := c.query("limit", "after_id", "before_id", "beta")
	after, before := q.text("after_id"), q.text("before_id")
	page := db.Page{Limit: int(q.number("limit", 1, maxAnthropicPage, defaultLimit)), After: after}
	for name, id := range map[string]string{"after_id": after, "before_id": before} {
		if id != "" && !ids.Valid(ids.MessageBatch, id) {
			q.fail(fault.Invalid(name, "%s must be the ID of a batch in this list.", name))
		}
	}
	if before != "" {
		if after != "" {
			q.fail(fault.Invalid("before_id", "Send after_id or before_id, not both."))
		}
		page.After, page.Asc = before, true
	}
	if q.err != nil {
		return nil, q.err
	}
	found, err := c.s.Batches.List(ctx, c.s.DB, c.Principal, batches.Filter{Prefix: ids.MessageBatch}, page)
	if err != nil {
		return nil, err
	}
	if page.Asc {
		slices.Reverse(found.Rows)
	}
	list := messageBatchList{Data: web.Map(found.Rows, c.renderMessageBatch), HasMore: found.More}
	if n := len(found.Rows); n > 0 {
		list.FirstID, list.LastID = &found.Rows[0].ID, &found.Rows[n-1].ID
	}
	return list, nil
}

func (c *Call) messageBatch(ctx context.Context) (*batches.Batch, error) {
	if _, err := readAnthropicVersion(c.R); err != nil {
		return nil, err
	}
	return c.s.Batches.Get(ctx, c.s.DB, c.Principal, c.id())
}

func getMessageBatch(ctx context.Context, c *Call) (any, error) {
	b, err := c.messageBatch(ctx)
	return show(b, err, c.renderMessageBatch)
}

func cancelMessageBatch(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	b, err := c.s.Batches.Cancel(ctx, tx, c.Principal, c.id())
	return show(b, err, c.renderMessageBatch)
}

// deletedMessageBatch has Anthropic's format.
type deletedMessageBatch struct {
	ID   string `json:"id"`
	Type string `json:"type"`
}

func deleteMessageBatch(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	if _, err := readAnthropicVersion(c.R); err != nil {
		return nil, err
	}
	if err := c.s.Batches.Delete(ctx, tx, c.Principal, c.id()); err != nil {
		return nil, err
	}
	return deletedMessageBatch{c.id(), "message_batch_deleted"}, nil
}

// getMessageBatchResults sends the results, one in each line.
func getMessageBatchResults(c *Call) error {
	b, err := c.messageBatch(c.Context())
	if err != nil {
		return err
	}
	if !b.Status.Ended() {
		return fault.New(fault.InvalidState, "The batch has no results yet. Read them when its processing_status is ended.")
	}
	if b.OutputFileID == "" {
		return fault.New(fault.NotFound, "The batch has no results.")
	}
	f, err := c.s.APIFiles.Get(c.Context(), c.s.DB, c.Principal.Visibility(), b.OutputFileID)
	if err != nil {
		return err
	}
	return c.sendFile(f, "application/x-jsonl", f.Filename)
}
