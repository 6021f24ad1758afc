package api

import (
	"context"

	"github.com/go-json-experiment/json"

	"turnpike/internal/audit"
	"turnpike/internal/background"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/gateway/responses"
)

// createInBackground stores a response that a worker creates. Its maximum cost is reserved first; the
// transaction that stores the response hands it the reservation.
func (c *Call) createInBackground(body []byte, state *responseState) error {
	r := state.request
	var reserved *gateway.ReservedResponse
	var draft *background.Draft
	var send func([]byte) error
	if r.Stream {
		send = c.streamCreated
	}
	return c.perform(body, action{
		send: send,
		before: func() (err error) {
			if reserved, err = c.s.Gateway.ReserveResponse(c.Context(), c.modelCall(body), r); err != nil {
				return r.TranslateFault(err)
			}
			draft, err = c.s.Background.Draft(background.Order{Principal: c.Principal, Owner: c.responseOwner(), RequestID: c.ID, Request: r,
				Items: state.own, Kept: state.kept, Reserved: reserved})
			if err != nil {
				c.s.Background.EndReservation(reserved, err)
				return err
			}
			c.warn(r.Warning(reserved.Native))
			c.record.Note(func(e *audit.Entry) {
				e.Model, e.Provider, e.Reserved = reserved.Model, reserved.Provider, reserved.Amount
			})
			return nil
		},
		do: func(ctx context.Context, tx *db.Tx) (any, error) {
			return draft.Response, c.s.Background.Create(ctx, tx, draft)
		},
		after: func(err error) { c.s.Background.EndReservation(reserved, err) },
	})
}

func cancelResponse(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	return c.s.Background.Cancel(ctx, tx, c.responseVisibility(), c.id())
}

// streamCreated streams a response that was created now, or earlier with the same Idempotency-Key.
func (c *Call) streamCreated(response []byte) error {
	var created struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(response, &created); err != nil {
		return err
	}
	return c.watchResponse(created.ID, beforeAll)
}

// beforeAll is before the first event of a response, whose sequence number is 0.
const beforeAll = -1

// watchResponse streams the events of a background response after a sequence number.
func (c *Call) watchResponse(id string, after int64) error {
	streamed, err := c.s.Conversations.IsStreamed(c.Context(), c.s.DB, c.responseVisibility(), id)
	if err != nil {
		return err
	}
	if !streamed {
		return fault.Invalid("stream", "Only background responses that were created with stream true can be streamed. Omit stream.")
	}
	release, err := c.s.Background.AcquireWatcher(c.Principal)
	if err != nil {
		return err
	}
	defer release()
	added, stop := c.s.Background.Watch(id)
	defer stop()
	out := &eventWriter{c: c, batch: true}
	return c.follow(out, added, func() (ended bool, err error) {
		// Read the status first: if the response has ended, its last event is stored.
		status, err := c.s.Conversations.GetStatus(c.Context(), c.s.DB, id)
		if err != nil {
			return false, err
		}
		after, err = c.sendResponseEvents(out, id, after)
		return status == "", err
	})
}

// sendResponseEvents sends the stored events after a sequence number, and returns the last one's.
func (c *Call) sendResponseEvents(out *eventWriter, id string, after int64) (int64, error) {
	for out.err == nil {
		list, err := c.s.Conversations.ReadEvents(c.Context(), c.s.DB, id, after, watchBatch)
		if err != nil {
			return after, err
		}
		for _, batch := range list {
			first := batch.Last - int64(len(batch.Data)) + 1
			for i, data := range batch.Data {
				if first+int64(i) > after {
					out.named(responses.EventType(data), data)
				}
			}
			after = batch.Last
		}
		if len(list) < watchBatch {
			break
		}
	}
	return after, nil
}
