package app

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificateInterval is how often new connections check the certificate's files.
const certificateInterval = 10 * time.Second

// certificate is the server's TLS certificate. It is reloaded when its files
// change, because ACME clients renew them without notice.
type certificate struct {
	cert, key string

	mu      sync.Mutex
	current *tls.Certificate
	checked time.Time
	loaded  string // state of the files that were loaded
}

func loadCertificate(cert, key string) (*certificate, error) {
	c := &certificate{cert: cert, key: key, checked: time.Now()}
	if err := c.refresh(); err != nil {
		return nil, fmt.Errorf("load TLS certificate: %w", err)
	}
	return c, nil
}

func (c *certificate) get() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) >= certificateInterval {
		c.checked = time.Now()
		if err := c.refresh(); err != nil {
			slog.Warn("failed to load the new TLS certificate; using the old one", "error", err)
		}
	}
	return c.current
}

// refresh keeps the old certificate if the new one can't be loaded: its two
// files may be half written, or not readable yet.
func (c *certificate) refresh() error {
	state := c.state() // before loading, so that no change is missed
	if state == c.loaded && c.current != nil {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	c.current, c.loaded = &pair, state
	slog.Info("loaded the TLS certificate", "valid_until", pair.Leaf.NotAfter)
	return nil
}

// state changes when the files change.
func (c *certificate) state() string {
	text := ""
	for _, path := range []string{c.cert, c.key} {
		if info, err := os.Stat(path); err == nil {
			text += fmt.Sprintf("%s %d %d\n", path, info.Size(), info.ModTime().UnixNano())
		}
	}
	return text
}
