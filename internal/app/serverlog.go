package app

import (
	"log"
	"log/slog"
	"strings"

	"turnpike/internal/safehttp"
)

// serverLog receives the log of net/http's server. Most lines are about clients
// that disconnect, so they are logged as debug.
type serverLog struct{ to *slog.Logger }

func newServerLog(to *slog.Logger) *log.Logger { return log.New(serverLog{to}, "", 0) }

// Write logs one line.
func (s serverLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.Contains(text, "Accept error") && strings.Contains(text, "too many open files") {
		text, _, _ = strings.Cut(text, "; retrying") // the delay differs, and would defeat deduplication
		s.to.Warn("failed to accept connections: out of file descriptors; "+safehttp.MoreDescriptors, "error", text)
	} else {
		s.to.Debug(text)
	}
	return len(line), nil
}
