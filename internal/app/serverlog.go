package app

import (
	"log"
	"log/slog"
	"strings"

	"turnpike/internal/safehttp"
)

// serverLog takes what net/http's server says. Most of it is about clients that
// do not finish what they began, and interests nobody.
type serverLog struct{ to *slog.Logger }

func newServerLog(to *slog.Logger) *log.Logger { return log.New(serverLog{to}, "", 0) }

// Write logs one line.
func (s serverLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.Contains(text, "Accept error") && strings.Contains(text, "too many open files") {
		text, _, _ = strings.Cut(text, "; retrying") // the delay differs, and would make each a complaint of its own
		s.to.Warn("no connection can be taken: this server is out of file descriptors; "+safehttp.MoreDescriptors, "error", text)
	} else {
		s.to.Debug(text)
	}
	return len(line), nil
}
