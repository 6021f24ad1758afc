package api

import (
	"errors"
	"net/http"

	"github.com/go-json-experiment/json"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/idempotency"
	"turnpike/internal/jsonbody"
)

// handler answers a call, or returns the error to answer with.
type handler func(c *Call) error

// read is a handler that changes nothing: what fn returns is the answer.
func read(fn func(c *Call) (any, error)) handler {
	return func(c *Call) error {
		defer c.impatient()()
		v, err := fn(c)
		if err != nil {
			return err
		}
		return c.sendJSON(v)
	}
}

// act is a handler that changes something. The change, its admin log, the
// remembered answer of an Idempotency-Key and the request's log entry are one
// transaction; fn runs inside it and may run again if it loses a race.
func act[In any](fn func(c *Call, tx *db.Tx, in In) (any, error)) handler {
	return func(c *Call) error {
		body, err := c.readJSON(c.s.Limits.Body)
		if err != nil {
			return err
		}
		if err := c.still(); err != nil {
			return err
		}
		var in In
		if err := jsonbody.DecodeStrict(body, &in); err != nil {
			return err
		}
		return c.perform(body, action{do: func(tx *db.Tx) (any, error) { return fn(c, tx, in) }})
	}
}

// action is something that a call does, once however often it is asked for.
type action struct {
	// before is what cannot be done inside the transaction, and after is told
	// what came of it then, whatever that is. Both may be nil.
	before func() error
	do     func(tx *db.Tx) (any, error)
	after  func(err error)
}

// perform does it. What was asked for is the same if the body is.
func (c *Call) perform(body []byte, a action) error {
	key := c.r.Header.Get("Idempotency-Key")
	if key == "" || c.r.Method != http.MethodPost {
		answer, err := c.commit(a, nil)
		if err != nil {
			return err
		}
		c.done(answer)
		return nil
	}
	req, err := idempotency.NewRequest(c.Principal.ID(), c.r.Method, c.r.URL.Path, key, body)
	if err != nil {
		return err
	}
	req.Account = c.Principal.WorkspaceID + "/" + string(c.Principal.Environment)
	return c.actIdempotently(a, req)
}

// errPanicked is what an action came to that did not return.
var errPanicked = errors.New("api: an action panicked")

// commit runs the transaction and returns what to answer.
func (c *Call) commit(a action, remember func(tx *db.Tx, answer []byte) error) (answer []byte, err error) {
	if a.before != nil {
		if err := a.before(); err != nil {
			return nil, err
		}
	}
	defer c.impatient()()
	if a.after != nil {
		err = errPanicked
		defer func() { a.after(err) }()
	}
	err = c.s.DB.Write(c.Context(), func(tx *db.Tx) error {
		v, err := a.do(tx)
		if err != nil {
			return err
		}
		if answer, err = json.Marshal(v); err != nil {
			return err
		}
		if remember != nil {
			if err := remember(tx, answer); err != nil {
				return err
			}
		}
		return c.record.SettleIn(c.Context(), tx, c.ending(http.StatusOK, ""))
	})
	return answer, err
}

// done answers when the request's log entry is already settled.
func (c *Call) done(answer []byte) {
	c.status = http.StatusOK
	c.write(http.StatusOK, jsonType, answer)
}

func (c *Call) actIdempotently(a action, req idempotency.Request) error {
	store, ctx := c.s.Idempotency, c.Context()
	release, err := store.Claim(req)
	if err != nil {
		return err
	}
	// Also before any answer: who has it may ask again.
	defer release()
	if found, err := c.remembered(req); err != nil {
		return err
	} else if found != nil {
		release()
		return c.replay(found)
	}
	answer, err := c.commit(a, func(tx *db.Tx, answer []byte) error {
		return store.Remember(ctx, tx, req, idempotency.Answer{Status: http.StatusOK, Body: answer})
	})
	if err == nil {
		release()
		c.done(answer)
		return nil
	}
	if errors.Is(err, idempotency.ErrTaken) {
		release()
		return c.replayTaken(req)
	}
	// A refusal is remembered too, so that the retry hears the same. What a
	// retry could change is not: outages, faults of ours, races.
	if f, ok := fault.As(err); ok && lasting(f.Code) {
		status := fault.FamilyOf(f.Code).Status
		body := c.errorJSON(f)
		err := c.s.DB.Write(ctx, func(tx *db.Tx) error {
			return store.Remember(ctx, tx, req, idempotency.Answer{Status: status, Body: body})
		})
		if errors.Is(err, idempotency.ErrTaken) {
			release()
			return c.replayTaken(req) // another node did it, and so it could not be done here
		}
		if err != nil && !fault.Is(err, fault.RateLimitExceeded) { // no room to remember it
			return err
		}
		return f
	}
	return err
}

// lasting reports whether a refusal stays what it is: budgets are raised, races
// end, and limits pass.
func lasting(code fault.Code) bool {
	if code == fault.Conflict || code == fault.LimitReached {
		return false
	}
	status := fault.FamilyOf(code).Status
	return status < http.StatusInternalServerError && status != http.StatusPaymentRequired && status != http.StatusTooManyRequests
}

// replayTaken sends what another node has answered meanwhile.
func (c *Call) replayTaken(req idempotency.Request) error {
	found, err := c.remembered(req)
	if err != nil {
		return err
	}
	if found == nil {
		return fault.Param(fault.Conflict, "Idempotency-Key", "another request with this Idempotency-Key is being answered; try again in a moment")
	}
	return c.replay(found)
}

// remembered is the answer that was given before, or nil.
func (c *Call) remembered(req idempotency.Request) (*idempotency.Answer, error) {
	defer c.impatient()()
	return c.s.Idempotency.Find(c.Context(), c.s.DB, req)
}

// replay gives it again.
func (c *Call) replay(a *idempotency.Answer) error {
	c.w.Header().Set("Idempotent-Replayed", "true")
	if a.Status < http.StatusBadRequest {
		c.send(a.Status, jsonType, a.Body)
		return nil
	}
	var refusal errorBody
	if err := json.Unmarshal(a.Body, &refusal); err != nil {
		return err
	}
	if fault.FamilyOf(refusal.Error.Code).Final {
		c.w.Header().Set("X-Should-Retry", "false")
	}
	c.settle(a.Status, string(refusal.Error.Code))
	c.transmit(a.Status, jsonType, a.Body)
	return nil
}
