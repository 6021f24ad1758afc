package api

import (
	"io"
	"iter"
	"net/http"
	"strconv"
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
	audio := response.Audio
	defer audio.Close()
	return c.streamFile(readParts(audio), streamedFile{
		setHeaders: func(h http.Header) {
			h.Set("Content-Type", audio.ContentType())
			if size := audio.Size(); size >= 0 {
				h.Set("Content-Length", strconv.FormatInt(size, 10))
			}
		},
		beforeLog: func() { _ = audio.Close() }, // so that the log entry has the usage
	})
}

// readParts yields what a reader has, and at least one part, which may be empty.
func readParts(from io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if (n > 0 || err == io.EOF) && !yield(buf[:n], nil) || err == io.EOF {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// streamedFile describes a file that is sent while it is generated.
type streamedFile struct {
	setHeaders func(h http.Header)
	beforeLog  func() // called before the log entry is settled
}

// streamFile sends a file in parts. An error before the first part is an ordinary
// error response; a later one drops the connection, because the file must not look
// complete.
func (c *Call) streamFile(parts iter.Seq2[[]byte, error], f streamedFile) error {
	defer c.setWriteDeadline() // the end of the response may come long after its last byte
	code := ""
	for part, err := range parts {
		switch {
		case err != nil && !c.Started:
			return err
		case err != nil:
			code = string(c.Fault(err).Code)
		case !c.Started:
			// Send no byte before the request is in the log.
			if err := c.waitUntilLogged(); err != nil {
				return err
			}
			c.setSuccessHeaders(c.W.Header())
			f.setHeaders(c.W.Header())
			c.WriteHeader(http.StatusOK)
		}
		if c.writeChunks(part) != nil || http.NewResponseController(c.W).Flush() != nil {
			break // the client has disconnected
		}
		c.clearWriteDeadline()
	}
	f.beforeLog()
	c.settle(http.StatusOK, code)
	if code != "" {
		panic(http.ErrAbortHandler)
	}
	return nil
}
