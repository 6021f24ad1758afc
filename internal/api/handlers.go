package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-json-experiment/json"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/idempotency"
	"turnpike/internal/jsonbody"
	"turnpike/internal/web"
)

// handler sends a response, or returns the error to respond with.
type handler func(c *Call) error

// read returns a handler that changes nothing and responds with the result of fn.
func read(fn func(ctx context.Context, c *Call) (any, error)) handler {
	return func(c *Call) error {
		ctx, cancel := web.WithStorageTimeout(c.Context())
		defer cancel()
		v, err := fn(ctx, c)
		if err != nil {
			return err
		}
		return c.sendJSON(v)
	}
}

// show returns the response for a record, unless err is set.
func show[R, T any](record R, err error, render func(R) T) (any, error) {
	if err != nil {
		return nil, err
	}
	return render(record), nil
}

// changeOf returns the caller's change of the record in the path.
func changeOf[T any](c *Call, apply func(*T) error) audit.Change[T] {
	return audit.Change[T]{By: c.Actor(), Visibility: c.Principal.Visibility(), ID: c.id(), Apply: apply}
}

// act returns a handler that changes something. The change, its admin log, the
// stored response of an Idempotency-Key and the request's log entry are one
// transaction; fn runs inside it and may run again if it loses a race.
func act[In any](fn func(ctx context.Context, c *Call, tx *db.Tx, in In) (any, error)) handler {
	return func(c *Call) error {
		body, err := c.readJSON(c.Limits.Body)
		if err != nil {
			return err
		}
		var in In
		if err := jsonbody.DecodeStrict(body, &in); err != nil {
			return err
		}
		return c.perform(body, action{do: func(ctx context.Context, tx *db.Tx) (any, error) { return fn(ctx, c, tx, in) }})
	}
}

// action is a change that happens once, however often it is requested.
type action struct {
	// before runs outside the transaction. after runs when the transaction has
	// ended, with its error. Both may be nil.
	before func() error
	do     func(ctx context.Context, tx *db.Tx) (any, error)
	after  func(err error)
	// send, if set, responds with something else than the result as JSON.
	send func(result []byte) error
}

// sendResult sends the result of an action that was committed.
func (c *Call) sendResult(a action, result []byte) error {
	if a.send != nil {
		return a.send(result)
	}
	c.write(http.StatusOK, jsonType, result)
	return nil
}

// perform performs an action. Requests with the same Idempotency-Key are the same
// if their bodies are.
func (c *Call) perform(body []byte, a action) error {
	key := c.R.Header.Get("Idempotency-Key")
	if key == "" || c.R.Method != http.MethodPost {
		response, err := c.commit(a, nil)
		if err != nil {
			return err
		}
		return c.sendResult(a, response)
	}
	req, err := idempotency.NewRequest(c.Principal.ID(), c.R.Method, c.R.URL.Path, key, body)
	if err != nil {
		return err
	}
	req.Account = c.Principal.Tenant.Path()
	return c.performIdempotently(a, req)
}

var errPanicked = errors.New("api: an action panicked")

// commit runs the action's transaction and returns the response body.
func (c *Call) commit(a action, remember func(tx *db.Tx, response []byte) error) (response []byte, err error) {
	if a.before != nil {
		if err := a.before(); err != nil {
			return nil, err
		}
	}
	ctx, cancel := web.WithStorageTimeout(c.Context())
	defer cancel()
	if a.after != nil {
		err = errPanicked
		defer func() { a.after(err) }()
	}
	err = c.s.DB.Write(ctx, func(tx *db.Tx) error {
		v, err := a.do(ctx, tx)
		if err != nil {
			return err
		}
		if response, err = json.Marshal(v); err != nil {
			return err
		}
		if remember != nil {
			if err := remember(tx, response); err != nil {
				return err
			}
		}
		return c.record.SettleIn(ctx, tx, c.settlement(http.StatusOK, nil))
	})
	return response, err
}

// performIdempotently releases the Idempotency-Key before it responds, so that an
// immediate retry doesn't see the key as in use.
func (c *Call) performIdempotently(a action, req idempotency.Request) error {
	store, ctx := c.s.Idempotency, c.Context()
	release, err := store.Claim(req)
	if err != nil {
		return err
	}
	defer release()
	if found, err := c.findRemembered(req); err != nil {
		return err
	} else if found != nil {
		release()
		return c.replay(a, found)
	}
	response, err := c.commit(a, func(tx *db.Tx, response []byte) error {
		return store.Remember(ctx, tx, req, idempotency.Answer{Status: http.StatusOK, Body: response})
	})
	if err == nil {
		release()
		return c.sendResult(a, response)
	}
	if f, ok := fault.As(err); ok && isPermanent(f.Code) {
		// A retry gets the same refusal.
		refusal := idempotency.Answer{Status: fault.FamilyOf(f.Code).Status, Body: c.errorJSON(f)}
		err = c.s.DB.Write(ctx, func(tx *db.Tx) error { return store.Remember(ctx, tx, req, refusal) })
		if err == nil || fault.Is(err, fault.RateLimitExceeded) { // the store of responses is full
			return f
		}
	}
	if errors.Is(err, idempotency.ErrTaken) { // another node succeeded
		release()
		return c.replayFromOtherNode(a, req)
	}
	return err
}

// isPermanent reports whether a retry can't change a refusal. Budgets can be
// raised, and outages, races and limits pass.
func isPermanent(code fault.Code) bool {
	if code == fault.Conflict || code == fault.LimitReached {
		return false
	}
	status := fault.FamilyOf(code).Status
	return status < http.StatusInternalServerError && status != http.StatusPaymentRequired && status != http.StatusTooManyRequests
}

// replayFromOtherNode sends the response that another node stored first.
func (c *Call) replayFromOtherNode(a action, req idempotency.Request) error {
	found, err := c.findRemembered(req)
	if err != nil {
		return err
	}
	if found == nil {
		return fault.Param(fault.Conflict, "Idempotency-Key", "Another request with this Idempotency-Key is in progress. Retry shortly.")
	}
	return c.replay(a, found)
}

// findRemembered returns the stored response of an earlier request, or nil.
func (c *Call) findRemembered(req idempotency.Request) (*idempotency.Answer, error) {
	ctx, cancel := web.WithStorageTimeout(c.Context())
	defer cancel()
	return c.s.Idempotency.Find(ctx, c.s.DB, req)
}

func (c *Call) replay(of action, a *idempotency.Answer) error {
	c.W.Header().Set("Idempotent-Replayed", "true")
	if a.Status < http.StatusBadRequest {
		if of.send != nil {
			return of.send(a.Body)
		}
		c.send(a.Status, jsonType, a.Body)
		return nil
	}
	var refusal errorBody
	if err := json.Unmarshal(a.Body, &refusal); err != nil {
		return err
	}
	c.W.Header().Set("X-Should-Retry", "false") // the response to this Idempotency-Key stays the same
	c.settle(a.Status, refusal.Error.fault())
	c.sendLogged(a.Status, jsonType, a.Body)
	return nil
}
