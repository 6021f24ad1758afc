package api

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	"turnpike/internal/gateway"
)

func createSpeech(c *Call) error {
	body, err := c.readJSON(c.s.Limits.ModelBody)
	if err != nil {
		return err
	}
	if err := c.still(); err != nil {
		return err
	}
	response, err := c.s.Gateway.Speech(c.Context(), c.modelCall(body))
	if err != nil {
		return err
	}
	c.success = append(c.success, headerLine{"Service-Model", response.Model}, headerLine{"Service-Provider", response.Provider})
	return c.sound(response.Audio)
}

// sound copies a file to the client as it is made. An error before its first
// byte is an ordinary answer; after it, the connection is dropped: there is no
// other way to say that the file is not whole.
func (c *Call) sound(s *gateway.Audio) error {
	defer s.Close()
	buf := make([]byte, 32<<10)
	n, err := io.ReadAtLeast(s, buf, 1)
	if err != nil && err != io.EOF {
		return err
	}
	// No byte leaves before the request is in the log.
	if err := c.logged(); err != nil {
		return err
	}
	c.wrote = true
	h := c.w.Header()
	c.setSuccess(h)
	h.Set("Content-Type", s.ContentType())
	if size := s.Size(); size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(size, 10))
	}
	c.w.WriteHeader(http.StatusOK)
	if n > 0 {
		err = c.passOn(s, buf, n)
	}
	_ = s.Close() // before the entry is settled, so that it knows what was used
	if err == nil || err == io.EOF || errors.Is(err, errLeft) {
		c.settle(http.StatusOK, "")
		return nil
	}
	c.settle(http.StatusOK, string(c.faultOf(err).Code))
	panic(http.ErrAbortHandler)
}

// passOn sends what is read as it comes. The first n bytes of it are in the buffer.
func (c *Call) passOn(from io.Reader, buf []byte, n int) error {
	defer c.expectPiece() // for the end of the answer, however long after the last byte it turns out to be that
	control := http.NewResponseController(c.w)
	for {
		err := c.writePieces(buf[:n])
		if err == nil {
			err = control.Flush()
		}
		if err != nil {
			return errLeft
		}
		c.expectNothing()
		if n, err = from.Read(buf); err != nil && n == 0 {
			return err
		}
	}
}
