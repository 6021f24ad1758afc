package api

import (
	"context"
	"net/http"
	"time"

	"turnpike/internal/fault"
)

const (
	// watchBatch is how many entries of a log are read per query.
	watchBatch = 100
	// watchPoll is how often a log is polled for entries of another node.
	watchPoll = 500 * time.Millisecond
	// keepAliveEvery is how often a silent stream sends a comment.
	keepAliveEvery = 15 * time.Second
)

// follow streams a log that grows. send writes what the client doesn't have yet, and reports whether the log has
// ended. added receives when the log may have grown on this node.
func (c *Call) follow(out *eventWriter, added <-chan struct{}, send func() (ended bool, err error)) error {
	poll, keepAlive := time.NewTicker(watchPoll), time.NewTicker(keepAliveEvery)
	defer poll.Stop()
	defer keepAlive.Stop()
	for out.err == nil {
		ended, err := send()
		if err != nil {
			return c.failStream(out, err)
		}
		if out.flush(); !c.Started {
			out.keepAlive() // the client has everything so far, and learns that it is connected
		}
		if ended {
			break
		}
		select {
		case <-added:
		case <-poll.C:
		case <-keepAlive.C:
			out.keepAlive()
		case <-c.s.watching.Done():
			return c.failStream(out, fault.New(fault.Overloaded, "The server is stopping. Reconnect and resume after the last event."))
		case <-c.Context().Done():
			if f, ok := fault.As(context.Cause(c.Context())); ok {
				return c.failStream(out, f)
			}
			out.err = errClientGone
		}
	}
	if !c.Started {
		return out.err
	}
	c.settle(http.StatusOK, nil)
	return nil
}

func (c *Call) failStream(out *eventWriter, err error) error {
	if _, ended := fault.As(context.Cause(c.Context())); !c.Started || c.Context().Err() != nil && !ended {
		return err
	}
	f := c.Fault(err)
	out.named("error", c.errorJSON(f))
	c.settle(http.StatusOK, f)
	return nil
}
