package api

import (
	"bytes"
	"cmp"
	"time"

	"turnpike/internal/conversations"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/gateway/messages"
	"turnpike/internal/web"
)

// messageThread is the thread of a request to the Messages API, if it has one.
type messageThread struct {
	c      *Call
	id     string             // of the message
	counts bool               // the request only counts tokens, and nothing is stored
	turn   *messages.Turn     // nil without a thread
	kept   time.Duration      // how long the message is stored; 0 if it isn't
	events messages.Collector // of a stream
	stop   []byte             // the last event of a stream: the message is stored first
}

// resume returns the body of a request with a thread: the whole conversation. It may be as large as a body.
func (t *messageThread) resume(turn *messages.Turn) (_ []byte, err error) {
	c := t.c
	ctx, cancel := web.WithStorageTimeout(c.Context())
	defer cancel()
	t.turn = turn
	if !t.counts {
		if t.kept, err = c.reserveStorage(ctx); err != nil {
			return nil, err
		}
	}
	var before conversations.Thread
	if turn.PreviousID != "" {
		before, err = c.s.Conversations.Thread(ctx, c.s.DB, c.responseVisibility(), turn.PreviousID)
		if fault.Is(err, fault.NotFound) {
			const param = "thread.previous_message_id"
			return nil, messages.ThreadFault(messages.ThreadNotFound, fault.Param(fault.NotFound, param,
				`%s %.80q is not the ID of a stored message. Send the whole conversation in messages with "thread": {"type": "create"}.`, param, turn.PreviousID))
		}
		if err != nil {
			return nil, err
		}
	}
	body := turn.Resume(before.Messages, before.Fields)
	if int64(len(body)) > c.Limits.ModelBody {
		return nil, fault.New(fault.RequestTooLarge, "The thread has become larger than the limit of %d bytes. Begin another one with fewer messages.", c.Limits.ModelBody)
	}
	if err := c.budget.Reserve(int64(len(body))); err != nil {
		return nil, err
	}
	return body, c.admitJSON(body, c.Limits.JSONValues)
}

// save queues the message, which is durable when the returned write is. It is nil if the message isn't stored.
func (t *messageThread) save(message []byte) (*db.Pending, error) {
	turn := t.turn
	return t.c.save(t.kept, &conversations.Response{ID: t.id, PreviousID: turn.PreviousID,
		Content: conversations.Content{Input: turn.Messages, Fields: turn.Fields, Response: message}})
}

// finish gives a plain response the ID by which it can be continued, and queues it.
func (t *messageThread) finish(response *gateway.Response) error {
	if t.turn == nil || response.Body == nil {
		return nil
	}
	response.Body = messages.WithID(response.Body, t.id)
	message, err := messages.AsParam(response.Body)
	if err == nil {
		t.c.stored, err = t.save(message)
	}
	return err
}

// add returns an event as the client gets it, or nil if it gets it later.
func (t *messageThread) add(event string, data []byte) []byte {
	if t.turn == nil {
		return data
	}
	if t.kept > 0 && t.c.budget.Reserve(int64(len(data))) != nil {
		t.kept = 0
	}
	if t.kept > 0 {
		t.events.Add(data)
	}
	switch event {
	case messages.MessageStart:
		return messages.WithID(data, t.id)
	case messages.MessageStop:
		t.stop = bytes.Clone(data)
		return nil
	}
	return data
}

// end ends a stream, with the event that waits until the message is stored.
func (t *messageThread) end(s *gateway.Stream, out *eventWriter) error {
	c := t.c
	if t.stop == nil {
		return c.endStream(s, out, nil, func() {})
	}
	if c.Started && t.kept > 0 {
		out.flush() // storing the message takes time
	}
	var stored *db.Pending
	var err error
	if message := t.events.Param(); message != nil && t.kept > 0 {
		stored, err = t.save(message)
	}
	return c.endStream(s, out, nil, func() {
		if err = cmp.Or(err, waitUntilStored(stored)); err != nil {
			out.named("error", c.errorJSON(c.Fault(web.StorageFault(err))))
			return
		}
		out.named(messages.MessageStop, t.stop)
	})
}
