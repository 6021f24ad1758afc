package api

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	"turnpike/internal/gateway"
)

func createSpeech(c *Call) error {
	body, err := c.readModelBody()
	if err != nil {
		return err
	}
	response, err := c.s.Gateway.Speech(c.Context(), c.modelCall(body))
	if err != nil {
		return err
	}
	c.nameModel(response)
	return c.streamAudio(response.Audio)
}

// streamAudio sends a file to the client while it is generated. An error before the
// first byte is an ordinary error response; a later one drops the connection,
// because the file must not look complete.
func (c *Call) streamAudio(s *gateway.Audio) error {
	defer s.Close()
	buf := make([]byte, 32<<10)
	n, err := io.ReadAtLeast(s, buf, 1)
	if err != nil && err != io.EOF {
		return err
	}
	// Send no byte before the request is in the log.
	if err := c.waitUntilLogged(); err != nil {
		return err
	}
	h := c.W.Header()
	c.setSuccessHeaders(h)
	h.Set("Content-Type", s.ContentType())
	if size := s.Size(); size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(size, 10))
	}
	c.WriteHeader(http.StatusOK)
	if n > 0 {
		err = c.copyAudio(s, buf, n)
	}
	_ = s.Close() // before the log entry is settled, so that it has the usage
	if err == nil || err == io.EOF || errors.Is(err, errClientGone) {
		c.settle(http.StatusOK, "")
		return nil
	}
	c.settle(http.StatusOK, string(c.Fault(err).Code))
	panic(http.ErrAbortHandler)
}

// copyAudio sends the n bytes in buf, and then everything from the reader.
func (c *Call) copyAudio(from io.Reader, buf []byte, n int) error {
	defer c.setWriteDeadline() // the end of the response may come long after its last byte
	control := http.NewResponseController(c.W)
	for {
		err := c.writeChunks(buf[:n])
		if err == nil {
			err = control.Flush()
		}
		if err != nil {
			return errClientGone
		}
		c.clearWriteDeadline()
		if n, err = from.Read(buf); err != nil && n == 0 {
			return err
		}
	}
}
