package api

import (
	"context"
	"time"

	"turnpike/internal/apifiles"
	"turnpike/internal/batches"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/gateway/messages"
	"turnpike/internal/ids"
	"turnpike/internal/web"
)

// batchRequest has OpenAI's format.
type batchRequest struct {
	InputFileID        string            `json:"input_file_id"`
	Endpoint           batches.Endpoint  `json:"endpoint"`
	CompletionWindow   string            `json:"completion_window"`
	Metadata           map[string]string `json:"metadata"`
	OutputExpiresAfter *fileExpiry       `json:"output_expires_after"`
}

// batchObject has OpenAI's format, and the cost.
type batchObject struct {
	ID               string            `json:"id"`
	Object           string            `json:"object"`
	Endpoint         batches.Endpoint  `json:"endpoint"`
	Errors           *batchErrors      `json:"errors"`
	InputFileID      string            `json:"input_file_id"`
	CompletionWindow string            `json:"completion_window"`
	Status           batches.Status    `json:"status"`
	OutputFileID     *string           `json:"output_file_id"`
	ErrorFileID      *string           `json:"error_file_id"`
	CreatedAt        int64             `json:"created_at"`
	InProgressAt     *int64            `json:"in_progress_at"`
	ExpiresAt        int64             `json:"expires_at"`
	FinalizingAt     *int64            `json:"finalizing_at"`
	CompletedAt      *int64            `json:"completed_at"`
	FailedAt         *int64            `json:"failed_at"`
	ExpiredAt        *int64            `json:"expired_at"`
	CancellingAt     *int64            `json:"cancelling_at"`
	CancelledAt      *int64            `json:"cancelled_at"`
	RequestCounts    batchCounts       `json:"request_counts"`
	Usage            batchUsage        `json:"usage"`
	Cost             credits.Micro     `json:"cost"`
	Metadata         map[string]string `json:"metadata"`
}

type batchErrors struct {
	Object string               `json:"object"`
	Data   []batches.InputError `json:"data"`
}

type batchCounts struct {
	Total     int64 `json:"total"`
	Completed int64 `json:"completed"`
	Failed    int64 `json:"failed"`
}

type batchUsage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	TotalTokens  int64 `json:"total_tokens"`
}

const completionWindow = "24h"

func renderBatch(b *batches.Batch) batchObject {
	o := batchObject{ID: b.ID, Object: "batch", Endpoint: b.Endpoint, InputFileID: b.InputFileID, CompletionWindow: completionWindow, Status: b.Status,
		OutputFileID: orNil(b.OutputFileID), ErrorFileID: orNil(b.ErrorFileID), CreatedAt: b.CreatedAt.Unix(), InProgressAt: unix(b.InProgressAt), ExpiresAt: b.ExpiresAt.Unix(),
		FinalizingAt: unix(b.FinalizingAt), CancellingAt: unix(b.CancellingAt),
		// The error file has the requests that didn't run.
		RequestCounts: batchCounts{b.Total, b.Completed, b.Failed + b.Cancelled + b.Expired},
		Usage:         batchUsage{b.InputTokens, b.OutputTokens, b.InputTokens + b.OutputTokens}, Cost: b.Cost, Metadata: b.Metadata}
	if len(b.Errors) > 0 {
		o.Errors = &batchErrors{"list", b.Errors}
	}
	for status, at := range map[batches.Status]**int64{batches.Completed: &o.CompletedAt, batches.Failed: &o.FailedAt, batches.Expired: &o.ExpiredAt, batches.Cancelled: &o.CancelledAt} {
		if b.Status == status {
			*at = unix(b.EndedAt)
		}
	}
	return o
}

func createBatch(c *Call) error {
	var in batchRequest
	body, err := c.readModelRequest(&in)
	if err != nil {
		return err
	}
	life, err := c.checkBatch(&in)
	if err != nil {
		return err
	}
	if err := c.s.Gateway.CheckRateLimit(c.Context(), c.modelCall(nil)); err != nil {
		return err
	}
	return c.perform(body, action{do: func(ctx context.Context, tx *db.Tx) (any, error) {
		f, err := c.s.APIFiles.Get(ctx, tx, c.Principal.Visibility(), in.InputFileID)
		if err != nil {
			return nil, paramFault(err, "input_file_id")
		}
		if f.Purpose != apifiles.Batch {
			return nil, fault.Invalid("input_file_id", "The file %s has the purpose %q. Upload the requests with the purpose %q.", f.ID, f.Purpose, apifiles.Batch)
		}
		if err := c.createProjectIn(ctx, tx); err != nil {
			return nil, err
		}
		b, err := c.s.Batches.Create(ctx, tx, c.Principal, c.Project, batches.Draft{ID: batches.NewID(), Endpoint: in.Endpoint, Input: f, OutputLife: life, Metadata: in.Metadata, Options: c.batchOptions()})
		return show(b, err, renderBatch)
	}})
}

// batchOptions are what the log entries of a batch have in common.
func (c *Call) batchOptions() batches.RequestOptions {
	return batches.RequestOptions{IP: c.IP.String(), UserAgent: web.Sanitize(c.R.UserAgent(), web.MaxLoggedText), Version: messages.Versions[0]}
}

// checkBatch checks a request, and returns how long the results are kept.
func (c *Call) checkBatch(in *batchRequest) (life time.Duration, err error) {
	switch {
	case in.InputFileID == "":
		return 0, fault.Missing("input_file_id", "input_file_id is required: a file of requests, from POST /v1/files.")
	case !ids.Valid(ids.File, in.InputFileID):
		return 0, paramFault(fault.NoSuch("file", web.Sanitize(in.InputFileID, 64)), "input_file_id")
	case in.Endpoint == "":
		return 0, fault.Missing("endpoint", "endpoint is required, for example /v1/chat/completions.")
	case in.CompletionWindow != completionWindow:
		return 0, fault.Invalid("completion_window", "completion_window must be %q.", completionWindow)
	}
	if err := batches.Check(c.Principal, in.Endpoint); err != nil {
		return 0, err
	}
	life = c.s.APIFiles.Retention()
	if in.OutputExpiresAfter != nil {
		wanted, err := expiresAfter(in.OutputExpiresAfter, "output_expires_after")
		if err != nil {
			return 0, err
		}
		life = min(life, wanted)
	}
	return life, nil
}

func batchID(b *batches.Batch) string { return b.ID }

func listBatches(ctx context.Context, c *Call) (any, error) {
	q := c.query(pageParams...)
	page := q.page(ids.Batch)
	if q.err != nil {
		return nil, q.err
	}
	found, err := c.s.Batches.List(ctx, c.s.DB, c.Principal, batches.Filter{Prefix: ids.Batch}, page)
	if err != nil {
		return nil, err
	}
	return foundList(found, web.Map(found.Rows, renderBatch), batchID), nil
}

func getBatch(ctx context.Context, c *Call) (any, error) {
	b, err := c.s.Batches.Get(ctx, c.s.DB, c.Principal, c.id())
	return show(b, err, renderBatch)
}

func cancelBatch(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	b, err := c.s.Batches.Cancel(ctx, tx, c.Principal, c.id())
	return show(b, err, renderBatch)
}
