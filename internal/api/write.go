package api

import (
	"net/http"
	"slices"
	"time"
)

// chunkSize is small enough for a slow connection to accept a chunk within the
// write timeout, and large enough for a fast one.
const chunkSize = 64 << 10

func (c *Call) writeChunks(part []byte) error {
	for chunk := range slices.Chunk(part, chunkSize) {
		c.setWriteDeadline()
		if _, err := c.W.Write(chunk); err != nil {
			return err
		}
	}
	return nil
}

// setWriteDeadline starts the timeout of a chunk. It also applies to what
// net/http still buffers when the handler returns.
func (c *Call) setWriteDeadline() {
	_ = http.NewResponseController(c.W).SetWriteDeadline(time.Now().Add(c.s.writeTimeout))
}

// clearWriteDeadline is for streams that wait for the next chunk: HTTP/2 ends a
// stream at its deadline, even if nothing is being written.
func (c *Call) clearWriteDeadline() {
	if c.R.ProtoMajor > 1 {
		_ = http.NewResponseController(c.W).SetWriteDeadline(time.Time{})
	}
}

// serveFile sends a file to anyone who has its signed URL.
func (c *Call) serveFile() error {
	if isPreflight(c.R) { // for pages that request parts of a video, for example
		c.answerPreflight()
		return nil
	}
	defer c.setWriteDeadline()
	return c.s.Files.Serve(download{c}, c.R)
}

// download is the http.ResponseWriter of a file. It may take as long as it likes,
// as long as the client accepts each chunk in time.
type download struct{ c *Call }

func (d download) Header() http.Header         { return d.c.W.Header() }
func (d download) Unwrap() http.ResponseWriter { return d.c.W }

// WriteHeader settles the log entry and starts the response.
func (d download) WriteHeader(status int) {
	d.c.settle(status, nil)
	d.c.setWriteDeadline()
	d.c.WriteHeader(status)
	d.c.clearWriteDeadline()
}

func (d download) Write(b []byte) (int, error) {
	if err := d.c.writeChunks(b); err != nil {
		return 0, err
	}
	d.c.clearWriteDeadline()
	return len(b), nil
}
