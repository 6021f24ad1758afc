package dbtest

import (
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// CutResponses returns the address of a proxy in front of a PostgreSQL database. When a transaction has
// ended, cut gets its statements. If it returns true, the response is lost and the connection breaks: the client
// doesn't know whether the commit has happened.
func CutResponses(t testing.TB, address string, cut func(statements []string) bool) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	server := u.Host
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			s := &cutSession{client: client, cut: cut, prepared: map[string]string{}}
			go s.serve(server)
		}
	}()
	u.Host = listener.Addr().String()
	query := u.Query()
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	return u.String()
}

// cutSession is a connection through the proxy.
type cutSession struct {
	client net.Conn
	cut    func(statements []string) bool

	mu         sync.Mutex
	prepared   map[string]string // statements by name
	statements []string          // of the transaction in progress
}

func (s *cutSession) serve(address string) {
	defer s.client.Close()
	backend := pgproto3.NewBackend(s.client, s.client)
	first, err := backend.ReceiveStartupMessage()
	if err != nil {
		return
	}
	startup, ok := first.(*pgproto3.StartupMessage)
	if !ok {
		return // a request to cancel
	}
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	frontend := pgproto3.NewFrontend(server, server)
	frontend.Send(startup)
	if frontend.Flush() != nil {
		return
	}
	go s.forwardResponses(pgproto3.NewFrontend(server, nil))
	for {
		message, err := backend.Receive()
		if err != nil {
			return
		}
		s.note(message)
		frontend.Send(message)
		if frontend.Flush() != nil {
			return
		}
	}
}

// note remembers the statements of the transaction.
func (s *cutSession) note(message pgproto3.FrontendMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m := message.(type) {
	case *pgproto3.Parse:
		s.prepared[m.Name] = m.Query
	case *pgproto3.Bind:
		s.statements = append(s.statements, s.prepared[m.PreparedStatement])
	case *pgproto3.Query:
		s.statements = append(s.statements, m.String)
	}
}

// forwardResponses forwards what the server sends, each response as a whole.
func (s *cutSession) forwardResponses(server *pgproto3.Frontend) {
	defer s.client.Close()
	var response []byte
	for {
		message, err := server.Receive()
		if err != nil {
			return
		}
		if response, err = message.Encode(response); err != nil {
			return
		}
		switch m := message.(type) {
		case *pgproto3.ReadyForQuery:
			if m.TxStatus == 'I' && s.ended() {
				return
			}
		case *pgproto3.NotificationResponse, *pgproto3.CopyInResponse, *pgproto3.AuthenticationSASL, *pgproto3.AuthenticationSASLContinue:
		default:
			continue
		}
		if _, err := s.client.Write(response); err != nil {
			return
		}
		response = response[:0]
	}
}

// ended reports whether the response to the transaction is lost.
func (s *cutSession) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	statements := s.statements
	s.statements = nil
	return len(statements) > 0 && s.cut(statements)
}
