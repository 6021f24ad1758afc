package api

import (
	"errors"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"turnpike/internal/budget"
	"turnpike/internal/connlimit"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

// bytesPerValue is the memory of a small JSON value once it is decoded.
const bytesPerValue = 128

// immediateBody is how long a body that was sent with its headers takes at most.
const immediateBody = 5 * time.Millisecond

// readJSON reads a JSON body of at most limit bytes. It returns an empty object
// for a request without a body.
func (c *Call) readJSON(limit int64) ([]byte, error) {
	return c.readValues(limit, c.Limits.JSONValues)
}

// readValues is readJSON with another limit on the number of values.
func (c *Call) readValues(limit int64, values int) ([]byte, error) {
	body, err := c.readBody(limit)
	if err != nil {
		return nil, err
	}
	c.content.SetRequest(body)
	if len(body) == 0 {
		return []byte("{}"), nil
	}
	if err := checkJSONType(c.R.Header.Get("Content-Type")); err != nil {
		return nil, err
	}
	if coding := c.R.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, fault.Param(fault.UnsupportedMediaType, "Content-Encoding", "Compressed bodies are not supported. Send the JSON uncompressed.")
	}
	if err := c.admitJSON(body, values); err != nil {
		return nil, err
	}
	return c.withDeployment(body), nil
}

// admitJSON limits the shape of a body with so many values, and reserves the memory that decoding it takes.
func (c *Call) admitJSON(body []byte, values int) error {
	count, err := jsonbody.CheckShape(body, c.Limits.JSONDepth, values)
	if err != nil {
		return err
	}
	return c.budget.Reserve(int64(count) * bytesPerValue)
}

// readModelBody reads the JSON body of a model request.
func (c *Call) readModelBody() ([]byte, error) { return c.readJSON(c.Limits.ModelBody) }

func checkJSONType(header string) error {
	if header == "" || header == jsonType {
		return nil
	}
	typ, params, err := mime.ParseMediaType(header)
	if err == nil && (typ == jsonType || strings.HasPrefix(typ, "application/") && strings.HasSuffix(typ, "+json")) {
		if charset := params["charset"]; charset == "" || strings.EqualFold(charset, "utf-8") {
			return nil
		}
	}
	return fault.Param(fault.UnsupportedMediaType, "Content-Type", "The body must be JSON. Send Content-Type: application/json.")
}

func tooLarge(limit int64) error {
	return fault.New(fault.RequestTooLarge, "The body is larger than the limit of %d bytes.", limit)
}

// workspace returns the workspace of the key, or an empty string without one.
func (c *Call) workspace() string {
	if c.Principal == nil {
		return ""
	}
	return c.Principal.WorkspaceID
}

// source returns the body, which must have at most limit bytes.
func (c *Call) source(limit int64) budget.Source {
	control := http.NewResponseController(c.W)
	return budget.Source{From: c.R.Body, Limit: limit, Expected: c.R.ContentLength, Patience: c.Limits.BodyTimeout,
		Deadline: func(t time.Time) { _ = control.SetReadDeadline(t) }} // not every transport has one
}

// readBody reads the body, and then checks the key again if that took long.
func (c *Call) readBody(limit int64) (_ []byte, err error) {
	if c.R.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	start := time.Now()
	if c.body, err = c.budget.ReadAll(c.source(limit)); err != nil {
		return nil, c.bodyFault(err, limit)
	}
	return c.body, c.bodyArrived(start)
}

// bodyArrived is called when the whole body was read. If that took long, it checks the key again.
func (c *Call) bodyArrived(start time.Time) error {
	if c.Principal == nil {
		return nil
	}
	connlimit.Authenticated(c.Context())
	if time.Since(start) < immediateBody {
		return nil
	}
	if err := c.reauthenticate(); err != nil {
		return err
	}
	return c.useProject()
}

// bodyFault returns the error for a body that can't be read. The response doesn't wait for the
// rest of it.
func (c *Call) bodyFault(err error, limit int64) error {
	c.W.Header().Set("Connection", "close")
	var big *budget.TooLargeError
	f, known := fault.As(err)
	switch {
	case errors.As(err, &big):
		return tooLarge(limit)
	case known:
		return f
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.New(fault.RequestTimeout, "The body did not arrive in time.")
	}
	return fault.New(fault.InvalidJSON, "The body is incomplete.").Because(err)
}
