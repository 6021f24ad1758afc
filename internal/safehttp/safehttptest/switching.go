// Package safehttptest has servers that behave as none should.
package safehttptest

import (
	"io"
	"net/http"
)

// Switching answers with another protocol, which nobody asked for, and returns
// when it was left. Clients that take the connection for an answer's body would
// wait for its end.
func Switching(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the client notices
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_, _ = io.Copy(io.Discard, conn)
}
