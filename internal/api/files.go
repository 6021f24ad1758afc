package api

// serveFile sends a file to whoever has its signed URL.
func (c *Call) serveFile() {
	if err := c.s.Files.Serve(download{c}, c.r); err != nil {
		c.fail(err)
	}
	c.expectPiece()
}

// download is the way out of a file: it may take as long as it likes, if only
// each piece is accepted in time.
type download struct{ *Call }

// WriteHeader notes what is answered, for the line in the log.
func (d download) WriteHeader(status int) {
	d.wrote = true
	d.settle(status, "")
	d.expectPiece()
	d.w.WriteHeader(status)
	d.expectNothing()
}

func (d download) Write(b []byte) (int, error) {
	if err := d.writePieces(b); err != nil {
		return 0, err
	}
	d.expectNothing()
	return len(b), nil
}
