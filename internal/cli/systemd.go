package cli

import (
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notifyReady reports to systemd that the server is ready, and answers its
// watchdog until the returned function is called. Without systemd it does nothing.
func notifyReady() (stop func()) {
	notify(daemon.SdNotifyReady)
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		slog.Warn("failed to read systemd's watchdog settings; the watchdog gets no answer", "error", err)
	}
	if err != nil || interval == 0 {
		return func() {}
	}
	stopped := make(chan struct{})
	go func() {
		// Twice as often as required, as sd_watchdog_enabled recommends.
		ticker := time.NewTicker(interval / 2)
		defer ticker.Stop()
		for {
			notify(daemon.SdNotifyWatchdog)
			select {
			case <-ticker.C:
			case <-stopped:
				return
			}
		}
	}()
	return func() { close(stopped) }
}

func notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		slog.Warn("failed to notify systemd", "state", state, "error", err)
	}
}
