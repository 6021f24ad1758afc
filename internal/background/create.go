package background

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/access"
	"turnpike/internal/conversations"
	"turnpike/internal/db"
	"turnpike/internal/gateway"
	"turnpike/internal/gateway/responses"
	"turnpike/internal/lanes"
)

// Order is a request for a background response.
type Order struct {
	Principal *access.Principal
	Owner     conversations.Owner
	RequestID string
	Request   *responses.Request
	Items     []jsontext.Value // the client's own items
	Kept      time.Duration    // how long the response is stored
	Reserved  *gateway.ReservedResponse
}

// Draft is a background response that is not stored yet.
type Draft struct {
	Response jsontext.Value // as it is queued
	job      *job
	stored   *conversations.Response
	reserved *gateway.ReservedResponse
}

// Draft prepares a response. Create stores it, and EndReservation must be called in any case.
func (s *Service) Draft(o Order) (*Draft, error) {
	r, now := o.Request, s.Now()
	r.CreatedAt = now
	queued, err := r.Queued()
	if err != nil {
		return nil, err
	}
	p := o.Reserved
	j := &job{ID: r.ResponseID(), Tenant: o.Principal.Tenant, Project: o.Owner.Project, KeyID: o.Principal.KeyID, TokenLimits: o.Principal.TokenLimits(), RequestID: o.RequestID,
		DueAt: now, DeadlineAt: now.Add(s.Deadline), CreatedAt: now, MaxOutput: p.MaxOutput, Reserved: p.Amount, PriceVersion: p.PriceVersion,
		Model: p.Model, Provider: p.Provider, InputTokens: p.InputTokens, InputCost: p.InputCost, Cost: p.InputCost}
	j.Lane = lanes.ShardOf(fmt.Sprintf("%s.%s", j.WorkspaceID, j.Environment), j.ID)
	if p.Reservation != nil {
		j.Accounts = p.Reservation.Accounts()
	}
	if r.Stream {
		j.NextEvent = int64(len(responses.QueuedEvents(queued)))
	}
	if j.Request, err = s.seal(j.ID, r); err != nil {
		return nil, err
	}
	return &Draft{Response: queued, job: j, reserved: p, stored: &conversations.Response{ID: j.ID, Owner: o.Owner, PreviousID: r.PreviousResponseID(),
		ConversationID: r.ConversationID(), CreatedAt: now, ExpiresAt: now.Add(o.Kept), Status: conversations.Queued,
		Content: conversations.Content{Input: o.Items, Response: queued}}}, nil
}

// Create stores a response, and transfers its reservation to it.
func (s *Service) Create(ctx context.Context, tx *db.Tx, d *Draft) error {
	if r := d.reserved.Reservation; r != nil {
		r.TransferToJob(tx, d.job.ID)
	}
	if err := s.Store.Create(ctx, tx, d.stored); err != nil {
		return err
	}
	if err := insertJob(ctx, tx, d.job); err != nil {
		return err
	}
	if d.job.streamed() {
		if err := s.Store.AddEvents(ctx, tx, []conversations.Events{pack(d.job.ID, 0, responses.QueuedEvents(d.Response))}); err != nil {
			return err
		}
	}
	return wake(ctx, tx, d.job)
}

// EndReservation ends the reservation of a draft. err is the error of its transaction.
func (s *Service) EndReservation(reserved *gateway.ReservedResponse, err error) {
	if reserved != nil && reserved.Reservation != nil {
		reserved.Reservation.Transferred(err)
	}
}
