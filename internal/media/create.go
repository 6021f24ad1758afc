package media

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/ids"
	"turnpike/internal/lanes"
	"turnpike/internal/spend"
)

// Draft is a validated job with its maximum cost that is not stored yet.
type Draft struct {
	Job         *Job
	tasks       []*task
	reservation *spend.Reservation
	quote       gateway.Quote
	store       func(ctx context.Context) error // stores the file of the request; may be nil
	size        int64                           // of that file
}

// Caller is the client that creates a job, and its request.
type Caller struct {
	Principal *access.Principal
	Project   string
	RequestID string
	Record    *audit.Record // of that request; may be nil
}

func (c Caller) owner() gateway.Owner {
	return gateway.Owner{Principal: c.Principal, Project: c.Project, Record: c.Record}
}

type draftParams struct {
	kind     Kind
	model    string   // or empty for any
	models   []string // instead of model
	of       catalog.Kind
	most     catalog.Units // that the job can use
	input    any
	text     string // the prompt or text, of which the job keeps a preview
	metadata map[string]string
}

// newDraft creates a draft with a quote for its maximum cost.
func (s *Service) newDraft(ctx context.Context, from Caller, in draftParams) (*Draft, error) {
	k, metadata := in.kind, in.metadata
	models := in.models
	if in.model != "" {
		models = []string{in.model}
	}
	if err := accounts.CheckMetadata(metadata); err != nil {
		return nil, err
	}
	p := from.Principal
	quote, err := s.Gateway.Quote(ctx, from.owner(), models, in.of, in.most)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(in.input)
	if err != nil {
		return nil, err
	}
	if metadata == nil {
		metadata = map[string]string{}
	}
	now := s.Now()
	j := &Job{ID: ids.New(k.Prefix()), Kind: k, Tenant: p.Tenant, Project: from.Project, KeyID: p.KeyID,
		Reader: p.Reader(), TokenLimits: p.TokenLimits(), RequestID: from.RequestID, Status: Queued, Models: models, Model: quote.Model, Input: text, Preview: accounts.Preview(in.text), Metadata: metadata,
		PriceVersion: quote.PriceVersion, CreatedAt: now, DeadlineAt: now.Add(s.Deadline)}
	j.Lane = lanes.ShardOf(fmt.Sprintf("%s.%s.%s", j.WorkspaceID, j.Environment, k), j.ID)
	if p.Environment == accounts.Live {
		j.Reserved = quote.MaxCost
	}
	return &Draft{Job: j, quote: *quote}, nil
}

// addTask adds a task that is due immediately.
func (o *Draft) addTask(name string, input any) error {
	text, err := json.Marshal(input)
	if err != nil {
		return err
	}
	j := o.Job
	o.tasks = append(o.tasks, &task{JobID: j.ID, Position: int64(len(o.tasks)), Name: name, Lane: j.Lane, Status: taskWaiting, DueAt: &j.CreatedAt, Input: text})
	return nil
}

// Reserve reserves the maximum cost of the job under every budget that applies. Call
// it outside of a transaction, and EndReservation afterward.
func (s *Service) Reserve(ctx context.Context, c gateway.Call, o *Draft) (err error) {
	if o.reservation, err = s.Gateway.Reserve(ctx, c, o.quote, o.Job.CreatedAt); err != nil || o.reservation == nil {
		return err
	}
	o.Job.Accounts = o.reservation.Accounts()
	return nil
}

// Storing the file of a request may take storeTimeout, plus a second for every
// storeBytesPerSecond.
const (
	storeTimeout        = 10 * time.Second
	storeBytesPerSecond = 256 << 10
)

// StoreFile stores the file of a request. Call it after Reserve, so that clients
// without credits can't fill the disk. If it fails, it ends the reservation.
func (s *Service) StoreFile(ctx context.Context, o *Draft) error {
	if o.store == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout+time.Duration(o.size/storeBytesPerSecond)*time.Second)
	defer cancel()
	if err := o.store(ctx); err != nil {
		s.EndReservation(o, err)
		return StorageError(err)
	}
	return nil
}

// Create stores the job.
func (s *Service) Create(ctx context.Context, tx *db.Tx, o *Draft) error {
	if o.reservation != nil {
		o.reservation.TransferToJob(tx, o.Job.ID)
	}
	if err := insertJob(ctx, tx, o.Job); err != nil {
		return err
	}
	rows := make([][]any, len(o.tasks))
	for i, t := range o.tasks {
		rows[i] = t.row()
	}
	if _, err := insertTasks.Write(ctx, tx, rows); err != nil {
		return fmt.Errorf("store tasks: %w", err)
	}
	return s.wake(ctx, tx, o.Job.Lane, o.Job.CreatedAt)
}

// EndReservation ends the reservation of a draft. err is the error of its transaction.
func (s *Service) EndReservation(o *Draft, err error) {
	if o.reservation != nil {
		o.reservation.Transferred(err)
	}
}

// wake marks a lane as having work from a point in time on.
func (s *Service) wake(ctx context.Context, tx *db.Tx, lane string, due time.Time) error {
	return lanes.Enqueue(ctx, tx, Queue, map[string]time.Time{lane: due})
}

// prefixParam prefixes the param of an error: prompt becomes requests[3].body.prompt.
func prefixParam(place string, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}
	inside := *f
	inside.Param = strings.TrimSuffix(place+"."+f.Param, ".")
	inside.Message = place + ": " + inside.Message
	return &inside
}
