package api

import (
	"net/http"
	"slices"
	"time"
)

// writeTimeout is how long a client may take to accept a piece of the answer. The
// whole may take as long as it does.
var writeTimeout = 30 * time.Second

// pieceSize is little enough for a slow line, and enough for a fast one.
const pieceSize = 64 << 10

// writePieces writes a part of the answer.
func (c *Call) writePieces(part []byte) error {
	for piece := range slices.Chunk(part, pieceSize) {
		c.expectPiece()
		if _, err := c.w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// expectPiece begins a piece's time. What net/http still has at the end of a
// request goes out within the last one's.
func (c *Call) expectPiece() {
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(writeTimeout))
}

// expectNothing is for when the next piece is not there yet: HTTP/2 ends a
// stream at its deadline, also if nothing is being written.
func (c *Call) expectNothing() {
	if c.r.ProtoMajor > 1 {
		_ = http.NewResponseController(c.w).SetWriteDeadline(time.Time{})
	}
}
