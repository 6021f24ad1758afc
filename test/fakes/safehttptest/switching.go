// Package safehttptest has misbehaving servers.
package safehttptest

import (
	"io"
	"net/http"
)

// Switching responds with 101 although the client didn't ask for another protocol, and waits until
// the client disconnects. A client that reads the connection as a body would wait forever.
func Switching(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the client reports it
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_, _ = io.Copy(io.Discard, conn)
}
