// Package mailtest is a mail server for tests: it speaks SMTP on a port of
// this machine, keeps what it is given, and fails when it is told to.
package mailtest

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Message is a mail that the server has taken.
type Message struct {
	From string
	To   []string
	Data []byte // headers and text as they came, with line ends of \n
	TLS  bool   // whether it came over an encrypted connection
	User string // who had logged in
}

// Moment is where in a conversation the server fails.
type Moment string

// The moments, in their order.
const (
	Connect   Moment = "connect"
	Mail      Moment = "MAIL"
	Recipient Moment = "RCPT"
	Data      Moment = "DATA"
	Text      Moment = "text"  // the mail is there, and not yet taken
	Taken     Moment = "taken" // it is taken, and the client knows it
)

// Server is a running mail server.
type Server struct {
	listener       net.Listener
	scheme         string
	certificate    tls.Certificate
	startTLS       bool
	user, password string
	logins         string // the mechanisms offered

	mu       sync.Mutex
	running  sync.WaitGroup
	open     map[net.Conn]struct{}
	down     bool
	failures []*failure
	messages []Message
	changed  chan struct{} // closed when there is a new message
}

// failure is what happens the next times at a moment.
type failure struct {
	at    Moment
	to    string // only for this recipient
	times int
	code  int // 0: hang up
	text  string
}

// Option is something the server can do beyond taking mail from anybody.
type Option func(*Server)

// WithStartTLS offers encryption, with a certificate that only Roots knows.
func WithStartTLS() Option { return func(s *Server) { s.startTLS = true } }

// WithTLS encrypts from the first byte.
func WithTLS() Option { return func(s *Server) { s.scheme = "smtps" } }

// WithLogin takes mail only after a login, by one of the mechanisms (PLAIN,
// LOGIN), and, where there is STARTTLS, only behind it.
func WithLogin(user, password string, mechanisms ...string) Option {
	return func(s *Server) { s.user, s.password, s.logins = user, password, strings.Join(mechanisms, " ") }
}

// Start runs a server until the test ends.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	s := &Server{scheme: "smtp", open: map[net.Conn]struct{}{}, changed: make(chan struct{})}
	for _, o := range options {
		o(s)
	}
	var err error
	if s.certificate, err = selfSigned(); err != nil {
		t.Fatal(err)
	}
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s.running.Go(s.accept)
	t.Cleanup(func() {
		_ = s.listener.Close()
		s.Down()
		s.running.Wait()
	})
	return s
}

// URL is the server's address, with the login and the encryption it wants.
func (s *Server) URL() string {
	u := url.URL{Scheme: s.scheme, Host: s.listener.Addr().String()}
	if s.user != "" {
		u.User = url.UserPassword(s.user, s.password)
	}
	if s.startTLS {
		u.RawQuery = "tls=starttls"
	}
	return u.String()
}

// Roots verifies the server's certificate.
func (s *Server) Roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(s.certificate.Leaf)
	return pool
}

// Messages lists what was taken so far, in order.
func (s *Server) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.messages)
}

// Wait returns when the server has taken n mails.
func (s *Server) Wait(t testing.TB, n int) []Message {
	t.Helper()
	giveUp := time.After(10 * time.Second)
	for {
		s.mu.Lock()
		messages, changed := slices.Clone(s.messages), s.changed
		s.mu.Unlock()
		if len(messages) >= n {
			return messages
		}
		select {
		case <-changed:
		case <-giveUp:
			t.Fatalf("%d of %d mails have arrived", len(messages), n)
		}
	}
}

// Reject refuses the next recipients, as many as times says.
func (s *Server) Reject(times, code int, text string) { s.RejectAt(Recipient, times, code, text) }

// RejectAt answers with the code the next times at the moment.
func (s *Server) RejectAt(at Moment, times, code int, text string) {
	s.add(&failure{at: at, times: times, code: code, text: text})
}

// RejectTo refuses a recipient from now on.
func (s *Server) RejectTo(address string, code int, text string) {
	s.add(&failure{at: Recipient, to: address, times: -1, code: code, text: text})
}

// HangUp closes the connection without a word the next times at the moment.
func (s *Server) HangUp(at Moment, times int) { s.add(&failure{at: at, times: times}) }

func (s *Server) add(f *failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, f)
}

// failing finds the failure that is due at the moment, and counts it down.
func (s *Server) failing(at Moment, to string) *failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.failures {
		if f.at == at && f.times != 0 && (f.to == "" || f.to == to) {
			f.times-- // a negative one never ends
			return f
		}
	}
	return nil
}

// Down hangs up on everybody, until Up.
func (s *Server) Down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	for conn := range s.open {
		_ = conn.Close()
	}
}

// Up takes connections again.
func (s *Server) Up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && s.enter(conn) {
			s.running.Go(func() {
				defer s.leave(conn)
				s.talk(conn)
			})
		}
	}
}

func (s *Server) enter(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		_ = conn.Close()
		return false
	}
	s.open[conn] = struct{}{}
	return true
}

func (s *Server) leave(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = conn.Close()
	delete(s.open, conn)
}

func (s *Server) take(m Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, m)
	close(s.changed)
	s.changed = make(chan struct{})
}
