package app

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificateEvery is how often the files of a certificate are looked at, while
// somebody connects.
const certificateEvery = 10 * time.Second

// certificate is what the server shows. It is read anew when its files have
// changed: most are renewed every few weeks by somebody who does not know of us.
type certificate struct {
	cert, key string

	mu      sync.Mutex
	current *tls.Certificate
	looked  time.Time
	seen    string // the files' state when they were read
	warned  string // that in which they could not be
}

func loadCertificate(cert, key string) (*certificate, error) {
	c := &certificate{cert: cert, key: key}
	c.seen, c.looked = c.state(), time.Now() // before: a change while we read is read later
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("load TLS certificate: %w", err)
	}
	c.current = &pair
	return c, nil
}

// get is tls.Config's GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) >= certificateEvery {
		c.looked = time.Now()
		c.refresh()
	}
	return c.current, nil
}

// refresh keeps the old one for as long as the new one cannot be used: its files
// may be about to be written, one after the other, or not be ours to read yet.
func (c *certificate) refresh() {
	state := c.state()
	if state == c.seen {
		return
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		if state != c.warned {
			slog.Warn("the new TLS certificate cannot be used; the old one is shown until it can", "error", err)
		}
		c.warned = state
		return
	}
	c.current, c.seen = &pair, state
	slog.Info("there is a new TLS certificate", "valid_until", pair.Leaf.NotAfter)
}

// state tells whether the files are still the same.
func (c *certificate) state() string {
	text := ""
	for _, path := range []string{c.cert, c.key} {
		if info, err := os.Stat(path); err == nil {
			text += fmt.Sprintf("%s %d %d\n", path, info.Size(), info.ModTime().UnixNano())
		}
	}
	return text
}
