// Package smtp is an SMTP server for tests. It stores the emails that it accepts,
// and fails on demand.
package smtp

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// Message is an email that the server accepted.
type Message struct {
	From string
	To   []string
	Data []byte // headers and text, with line ends of \n
	TLS  bool
	User string // that logged in
}

type Stage string

// The stages, in order.
const (
	Connect   Stage = "connect"
	Mail      Stage = "MAIL"
	Recipient Stage = "RCPT"
	Data      Stage = "DATA"     // the server has the email but hasn't accepted it yet
	Accepted  Stage = "accepted" // the client got the response
)

type Server struct {
	listener       net.Listener
	scheme         string
	certificate    tls.Certificate
	roots          *x509.CertPool
	startTLS       bool
	user, password string
	mechanisms     []string

	mu          sync.Mutex
	connections []net.Conn
	down        bool
	failures    []*failure
	messages    []Message
	changed     chan struct{} // closed at the next message
}

// failure is what happens the next times at a stage.
type failure struct {
	at    Stage
	to    string // only for this recipient, if set
	times int    // negative for always
	code  int    // 0 closes the connection
	text  string
}

type Option func(*Server)

// WithStartTLS offers STARTTLS, with a certificate that Roots verifies.
func WithStartTLS() Option { return func(s *Server) { s.startTLS = true } }

// WithTLS uses TLS from the first byte.
func WithTLS() Option { return func(s *Server) { s.scheme = "smtps" } }

// WithLogin requires a login with one of the mechanisms (PLAIN, LOGIN), after
// STARTTLS if the server offers it.
func WithLogin(user, password string, mechanisms ...string) Option {
	return func(s *Server) { s.user, s.password, s.mechanisms = user, password, mechanisms }
}

// Start runs a server until the test ends.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	s := &Server{scheme: "smtp", changed: make(chan struct{})}
	for _, o := range options {
		o(s)
	}
	web := httptest.NewTLSServer(nil) // for its certificate
	s.certificate, s.roots = web.TLS.Certificates[0], x509.NewCertPool()
	s.roots.AddCert(web.Certificate())
	web.Close()
	var err error
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	server := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		return &session{server: s, conn: c}, nil
	}))
	server.AllowInsecureAuth, server.ErrorLog = !s.startTLS, log.New(io.Discard, "", 0)
	config := &tls.Config{Certificates: []tls.Certificate{s.certificate}}
	var listener net.Listener = gate{s.listener, s}
	if s.startTLS {
		server.TLSConfig = config
	}
	if s.scheme == "smtps" {
		listener = tls.NewListener(listener, config)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		_ = server.Close()
		s.Down()
		running.Wait()
	})
	return s
}

// URL returns the server's address with its login and encryption.
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
func (s *Server) Roots() *x509.CertPool { return s.roots }

// Messages returns the accepted emails, in order.
func (s *Server) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.messages)
}

// Wait returns when the server has accepted n emails.
func (s *Server) Wait(t testing.TB, n int) []Message {
	t.Helper()
	timeout := time.After(10 * time.Second)
	for {
		s.mu.Lock()
		messages, changed := slices.Clone(s.messages), s.changed
		s.mu.Unlock()
		if len(messages) >= n {
			return messages
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("got %d emails, want %d", len(messages), n)
		}
	}
}

// Reject rejects the next recipients.
func (s *Server) Reject(times, code int, text string) { s.RejectAt(Recipient, times, code, text) }

// RejectAt responds with the code the next times at the stage.
func (s *Server) RejectAt(at Stage, times, code int, text string) {
	s.add(&failure{at: at, times: times, code: code, text: text})
}

// RejectTo rejects a recipient from now on.
func (s *Server) RejectTo(address string, code int, text string) {
	s.add(&failure{at: Recipient, to: address, times: -1, code: code, text: text})
}

// HangUp closes the connection without a response the next times at the stage.
func (s *Server) HangUp(at Stage, times int) { s.add(&failure{at: at, times: times}) }

func (s *Server) add(f *failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, f)
}

// fail applies the next failure at the stage to the connection, and returns its
// response. Without a failure it returns nil.
func (s *Server) fail(conn net.Conn, at Stage, to string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.failures {
		if f.at == at && f.times != 0 && (f.to == "" || f.to == to) {
			f.times--
			if f.code == 0 {
				_ = conn.Close()
			}
			return &smtp.SMTPError{Code: f.code, EnhancedCode: smtp.NoEnhancedCode, Message: f.text}
		}
	}
	return nil
}

// Down closes all connections and accepts none until Up.
func (s *Server) Down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	for _, conn := range s.connections {
		_ = conn.Close()
	}
}

func (s *Server) Up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
}

// gate is the server's listener. It applies failures at Connect.
type gate struct {
	net.Listener
	server *Server
}

func (g gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		failed := g.server.fail(conn, Connect, "")
		g.server.mu.Lock()
		down := g.server.down
		g.server.connections = append(g.server.connections, conn)
		g.server.mu.Unlock()
		if failed == nil && !down {
			return conn, nil
		}
		if response, ok := failed.(*smtp.SMTPError); ok {
			_, _ = fmt.Fprintf(conn, "%d %s\r\n", response.Code, response.Message)
		}
		_ = conn.Close()
	}
}

type session struct {
	server   *Server
	conn     *smtp.Conn
	user     string
	message  Message
	accepted bool
}

func (c *session) AuthMechanisms() []string { return c.server.mechanisms }

func (c *session) Auth(mechanism string) (sasl.Server, error) {
	login := func(user, password string) error {
		if user != c.server.user || password != c.server.password {
			return &smtp.SMTPError{Code: 535, EnhancedCode: smtp.NoEnhancedCode, Message: "wrong user or password"}
		}
		c.user = user
		return nil
	}
	switch {
	case !slices.Contains(c.server.mechanisms, mechanism):
	case mechanism == sasl.Plain:
		return sasl.NewPlainServer(func(_, user, password string) error { return login(user, password) }), nil
	case mechanism == sasl.Login:
		return &loginServer{authenticate: login}, nil
	}
	return nil, smtp.ErrAuthUnknownMechanism
}

// loginServer is the LOGIN mechanism, of which the library has only the client.
type loginServer struct {
	authenticate func(user, password string) error
	step         int
	user         string
}

func (l *loginServer) Next(response []byte) (challenge []byte, done bool, err error) {
	l.step++
	switch l.step {
	case 1:
		return []byte("Username:"), false, nil
	case 2:
		l.user = string(response)
		return []byte("Password:"), false, nil
	}
	return nil, true, l.authenticate(l.user, string(response))
}

func (c *session) Mail(from string, _ *smtp.MailOptions) error {
	if c.server.user != "" && c.user == "" {
		return &smtp.SMTPError{Code: 530, EnhancedCode: smtp.NoEnhancedCode, Message: "log in first"}
	}
	_, encrypted := c.conn.TLSConnectionState()
	c.message = Message{From: from, TLS: encrypted, User: c.user}
	return c.server.fail(c.conn.Conn(), Mail, "")
}

func (c *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	if err := c.server.fail(c.conn.Conn(), Recipient, to); err != nil {
		return err
	}
	c.message.To = append(c.message.To, to)
	return nil
}

func (c *session) Data(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := c.server.fail(c.conn.Conn(), Data, ""); err != nil {
		return err
	}
	c.message.Data, c.accepted = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), true
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, c.message)
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

// Reset follows the response to an accepted email.
func (c *session) Reset() {
	if c.accepted {
		_ = c.server.fail(c.conn.Conn(), Accepted, "")
	}
	c.message, c.accepted = Message{}, false
}

func (c *session) Logout() error { return nil }
