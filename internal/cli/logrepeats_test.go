package cli

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"turnpike/internal/db"
)

// logged runs fn with a logger and a fake clock, and returns the lines without
// their time.
func logged(t *testing.T, fn func(log *slog.Logger)) (lines []string) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		var out bytes.Buffer
		fn(slog.New(newRepeatFilter(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))))
		for line := range strings.Lines(out.String()) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
			lines = append(lines, line)
		}
	})
	return lines
}

func assertLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Five times a second for 25 seconds.
func TestRepeatedWarningIsLoggedEveryTenSeconds(t *testing.T) {
	t.Parallel()
	got := logged(t, func(log *slog.Logger) {
		for i := range 125 {
			log.Warn("cannot claim", "queue", "media", "waiting", i, "error", errors.New("refused"))
			time.Sleep(201 * time.Millisecond)
		}
	})
	assertLines(t, got,
		`level=WARN msg="cannot claim" queue=media waiting=0 error=refused`,
		`level=WARN msg="cannot claim" queue=media waiting=50 error=refused repeated=49`,
		`level=WARN msg="cannot claim" queue=media waiting=100 error=refused repeated=49`)
}

func TestOnlyTheSameWarningIsHeldBack(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	got := logged(t, func(log *slog.Logger) {
		for range 2 {
			log.Info("closed", "entries", 1)
			log.Error("request", "request_id", "req_1", "error", refused)
		}
		log.Warn("cannot claim", "queue", "media", "error", refused)
		log.Warn("cannot claim", "queue", "agents", "error", refused)
		log.With("node", "1").Warn("cannot claim", "queue", "media", "error", refused)
		log.WithGroup("g").Warn("cannot claim", "queue", "media", "error", refused)
		log.Warn("cannot renew", "queue", "media", "error", refused)
		log.Warn("cannot claim", "queue", "media", "error", errors.New("gone"))
		time.Sleep(15 * time.Second)
		log.Warn("cannot claim", "queue", "media", "error", refused) // after the interval
	})
	assertLines(t, got,
		`level=INFO msg=closed entries=1`,
		`level=ERROR msg=request request_id=req_1 error=refused`,
		`level=INFO msg=closed entries=1`,
		`level=ERROR msg=request request_id=req_1 error=refused`,
		`level=WARN msg="cannot claim" queue=media error=refused`,
		`level=WARN msg="cannot claim" queue=agents error=refused`,
		`level=WARN msg="cannot claim" node=1 queue=media error=refused`,
		`level=WARN msg="cannot claim" g.queue=media g.error=refused`,
		`level=WARN msg="cannot renew" queue=media error=refused`,
		`level=WARN msg="cannot claim" queue=media error=gone`,
		`level=WARN msg="cannot claim" queue=media error=refused`)
}

func TestEachErrorIsCountedSeparately(t *testing.T) {
	t.Parallel()
	got := logged(t, func(log *slog.Logger) {
		for _, text := range []string{"shutting down", "refused", "refused"} {
			for range 2 {
				log.Warn("cannot claim", "error", errors.New(text))
			}
			time.Sleep(11 * time.Second)
		}
	})
	assertLines(t, got,
		`level=WARN msg="cannot claim" error="shutting down"`,
		`level=WARN msg="cannot claim" error=refused`,
		`level=WARN msg="cannot claim" error=refused repeated=1`)
}

func TestRepeatFilterMemoryIsBounded(t *testing.T) {
	t.Parallel()
	filter := newRepeatFilter(slog.DiscardHandler)
	log := slog.New(filter)
	for i := range 3 * maxWarnings {
		log.Warn("cannot read", "run", fmt.Sprint("run_", i))
		if n := len(filter.shared.warnings); n > maxWarnings {
			t.Fatalf("%d warnings are remembered, want at most %d", n, maxWarnings)
		}
	}
}

// Every task, lane and request has its own ID and often its own error.
func TestOutageIsLoggedOncePerMessage(t *testing.T) {
	t.Parallel()
	got := logged(t, func(log *slog.Logger) {
		for i := range 125 {
			log.Warn("failed to read task; retrying", "job", fmt.Sprint("job_", i), "error", fmt.Errorf("port %d: %w", i, db.ErrUnavailable))
			log.Warn("request", "request_id", fmt.Sprint("req_", i), "status", 503, "code", "storage_unavailable", "error", fmt.Sprint("port ", i))
			time.Sleep(100 * time.Millisecond)
		}
	})
	assertLines(t, got,
		`level=WARN msg="failed to read task; retrying" job=job_0 error="port 0: storage unavailable"`,
		`level=WARN msg=request request_id=req_0 status=503 code=storage_unavailable error="port 0"`,
		`level=WARN msg="failed to read task; retrying" job=job_100 error="port 100: storage unavailable" repeated=99`,
		`level=WARN msg=request request_id=req_100 status=503 code=storage_unavailable error="port 100" repeated=99`)
}
