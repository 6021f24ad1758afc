package api

import (
	"net/http"
	"time"
)

// serveFile sends a file to whoever has its signed URL.
func (c *Call) serveFile() {
	if err := c.s.Files.Serve(download{c}, c.r); err != nil {
		c.fail(err)
	}
}

// download is the way out of a file: it may take as long as it likes, if only
// each piece is accepted in time.
type download struct{ *Call }

// WriteHeader notes what is answered, for the line in the log.
func (d download) WriteHeader(status int) {
	d.wrote = true
	d.settle(status, "")
	d.extend()
	d.w.WriteHeader(status)
}

func (d download) Write(b []byte) (int, error) {
	d.extend()
	return d.w.Write(b)
}

func (d download) extend() {
	_ = http.NewResponseController(d.w).SetWriteDeadline(time.Now().Add(writeTimeout))
}
