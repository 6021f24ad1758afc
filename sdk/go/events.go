package turnpike

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"turnpike/sdk/go/api"
)

// RunEvents yields the events of an agent run after a number as they happen, until the run has ended. If the connection
// breaks, it resumes after the last event.
func (c *Client) RunEvents(ctx context.Context, runID string, startingAfter int) iter.Seq2[api.AgentRunEvent, error] {
	return func(yield func(api.AgentRunEvent, error) bool) {
		last := startingAfter
		for failures := 0; ; failures++ {
			res, err := c.ListAgentRunEvents(ctx, runID, &api.ListAgentRunEventsParams{Stream: new(api.ListAgentRunEventsParamsStream("true")), StartingAfter: new(last)})
			if err != nil { // the transport has already retried
				yield(api.AgentRunEvent{}, err)
				return
			}
			stopped := false
			err = readEvents(res, func(e api.AgentRunEvent) bool {
				last, failures = e.Seq, 0
				stopped = !yield(e, nil)
				return !stopped
			})
			final := new(Error)
			switch {
			case stopped, err == nil:
				return
			case errors.As(err, &final), failures >= c.transport.retries:
				yield(api.AgentRunEvent{}, err)
				return
			}
			if err := sleep(ctx, backoff(failures)); err != nil {
				yield(api.AgentRunEvent{}, err)
				return
			}
		}
	}
}

// maxEventSize is far above the size of an event, which has at most about a megabyte.
const maxEventSize = 16 << 20

// readEvents reads a stream of events. It returns nil after the last event, or if yield returns false.
func readEvents(res *http.Response, yield func(api.AgentRunEvent) bool) error {
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxEventSize)
	var name string
	var data []string
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			if len(data) == 0 {
				continue
			}
			text := strings.Join(data, "\n")
			if text == "[DONE]" {
				return nil
			}
			if name == "error" {
				return streamError(res, text)
			}
			var e api.AgentRunEvent
			if err := json.Unmarshal([]byte(text), &e); err != nil {
				return fmt.Errorf("turnpike: read an event of a run: %w", err)
			}
			if !yield(e) {
				return nil
			}
			name, data = "", nil
		case field == "event":
			name = value
		case field == "data":
			data = append(data, value)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

func streamError(res *http.Response, text string) error {
	var body api.Error
	if err := json.Unmarshal([]byte(text), &body); err != nil {
		return fmt.Errorf("turnpike: read an error of a stream: %w", err)
	}
	return (&Error{Status: res.StatusCode, RequestID: res.Header.Get("X-Request-Id")}).fill(body)
}
