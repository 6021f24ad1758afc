package media

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/ids"
	"turnpike/internal/lanes"
	"turnpike/internal/spend"
)

// Order is a job that is about to be made: it was checked, and it is known
// what it can cost.
type Order struct {
	Job   *Job
	tasks []*task
	hold  *spend.Reservation
	store func(ctx context.Context) error // keeps the file that came with it, or nil
	size  int64                           // of that file
}

// From is who orders, by which request.
type From struct {
	Principal *access.Principal
	Project   string
	RequestID string
}

// newOrder makes a job of the kind, with a quote for what can come of it.
func (s *Service) newOrder(from From, k Kind, models []string, of catalog.Kind, most catalog.Units, input any, metadata map[string]string) (*Order, error) {
	if err := accounts.CheckMetadata(metadata); err != nil {
		return nil, err
	}
	p := from.Principal
	quote, err := s.gateway.Quote(p.Environment, models, of, most)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(input)
	if err != nil {
		return nil, err
	}
	if metadata == nil {
		metadata = map[string]string{}
	}
	now := s.now()
	j := &Job{ID: ids.New(k.Prefix()), Kind: k, WorkspaceID: p.WorkspaceID, Environment: p.Environment, Project: from.Project, KeyID: p.KeyID,
		Reader: p.Reader(), RequestID: from.RequestID, Status: Queued, Models: models, Model: quote.Model, Input: text, Metadata: metadata,
		PriceVersion: quote.PriceVersion, CreatedAt: now, DeadlineAt: now.Add(s.deadline)}
	j.Lane = lanes.ShardOf(fmt.Sprintf("%s.%s.%s", j.WorkspaceID, j.Environment, k), j.ID)
	if p.Environment == accounts.Live {
		j.Reserved = quote.MaxCost
	}
	return &Order{Job: j}, nil
}

// add gives the job another task, which is due at once.
func (o *Order) add(name string, input any) error {
	text, err := json.Marshal(input)
	if err != nil {
		return err
	}
	j := o.Job
	o.tasks = append(o.tasks, &task{JobID: j.ID, Position: int64(len(o.tasks)), Name: name, Lane: j.Lane, Status: taskWaiting, DueAt: &j.CreatedAt, Input: text})
	return nil
}

// Reserve sets aside what the job can cost, under every budget that applies. It
// must not be called inside a transaction. Handed ends what it began.
func (s *Service) Reserve(ctx context.Context, c gateway.Call, o *Order) (err error) {
	if o.Job.Environment == accounts.Live { // test calls are free
		if o.hold, err = s.gateway.Reserve(ctx, c, gateway.Quote{Model: o.Job.Model, MaxCost: o.Job.Reserved}, o.Job.CreatedAt); err != nil {
			return err
		}
		o.Job.Accounts = o.hold.Accounts()
	}
	return nil
}

// What the store of files may take for one that came with an order: so long,
// and a second more for so many bytes of it.
const (
	keepPatience = 10 * time.Second
	keepRate     = 256 << 10
)

// Keep keeps the file that came with an order. It comes after Reserve: who
// cannot pay fills no disk. If it fails, the reservation has ended.
func (s *Service) Keep(ctx context.Context, o *Order) error {
	if o.store == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, keepPatience+time.Duration(o.size/keepRate)*time.Second)
	defer cancel()
	if err := o.store(ctx); err != nil {
		s.Handed(o, err)
		return Unstored(err)
	}
	return nil
}

// Create stores the job in a transaction.
func (s *Service) Create(ctx context.Context, tx *db.Tx, o *Order) error {
	if o.hold != nil {
		o.hold.TransferToJob(tx, o.Job.ID)
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

// Handed ends the reservation of an order, whatever came of its transaction.
func (s *Service) Handed(o *Order, err error) {
	if o.hold != nil {
		o.hold.Transferred(err)
	}
}

// wake says that a lane has something to do from a moment on.
func (s *Service) wake(ctx context.Context, tx *db.Tx, lane string, due time.Time) error {
	return lanes.Enqueue(ctx, tx, Queue, map[string]time.Time{lane: due})
}

// within names the place of a fault: prompt becomes requests[3].body.prompt.
func within(place string, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}
	inside := *f
	if inside.Param == "" {
		inside.Param = place
	} else {
		inside.Param = place + "." + inside.Param
	}
	inside.Message = place + ": " + inside.Message
	return &inside
}
