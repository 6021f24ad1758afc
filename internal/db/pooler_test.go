package db_test

import (
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// pooler is a proxy with two habits of PgBouncer: it rejects startup parameters
// that it doesn't track, and it reports a lost server as an error of the server.
type pooler struct {
	listener net.Listener
	server   string
	commit   atomic.Pointer[pgproto3.ErrorResponse] // the response to COMMIT instead of the server's
	hang     atomic.Bool                            // COMMIT gets no response
}

// startPooler returns a proxy in front of the database and its address.
func startPooler(t *testing.T, address string) (*pooler, string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	p := &pooler{listener: listener, server: u.Host}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	u.Host = listener.Addr().String()
	query := u.Query()
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	return p, u.String()
}

func (p *pooler) serve(client net.Conn) {
	defer client.Close()
	backend := pgproto3.NewBackend(client, client)
	first, err := backend.ReceiveStartupMessage()
	if err != nil {
		return
	}
	startup, ok := first.(*pgproto3.StartupMessage)
	if !ok {
		return // a request to cancel
	}
	for name := range startup.Parameters {
		switch name {
		case "user", "database", "application_name", "client_encoding":
		default:
			backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: " + name})
			_ = backend.Flush()
			return
		}
	}
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	frontend := pgproto3.NewFrontend(server, server)
	frontend.Send(startup)
	if frontend.Flush() != nil {
		return
	}
	go func() {
		defer client.Close()
		_, _ = io.Copy(client, server)
	}()
	for {
		message, err := backend.Receive()
		if err != nil {
			return
		}
		query, isQuery := message.(*pgproto3.Query)
		if response := p.commit.Load(); response != nil && isQuery && strings.EqualFold(query.String, "commit") {
			backend.Send(response)
			if response.Severity == "ERROR" {
				backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			}
			if backend.Flush() != nil || response.Severity == "FATAL" {
				return
			}
			continue
		}
		if p.hang.Load() && isQuery && strings.EqualFold(query.String, "commit") {
			continue
		}
		frontend.Send(message)
		if frontend.Flush() != nil {
			return
		}
	}
}

func TestSettingsReachTheServerThroughAPooler(t *testing.T) {
	t.Parallel()
	_, address := startPooler(t, dbtest.Address(t, "postgres"))
	d, err := db.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for name, want := range map[string]string{"idle_in_transaction_session_timeout": "4s", "enable_hashjoin": "off", "random_page_cost": "1.1"} {
		var got string
		if err := d.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q (%v), want %q", name, got, err, want)
		}
	}
}

func TestAddressOverridesDefaultSettings(t *testing.T) {
	t.Parallel()
	d, err := db.Open(t.Context(), dbtest.Address(t, "postgres")+"&random_page_cost=2.5")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var got string
	if err := d.QueryRow(t.Context(), "SELECT current_setting('random_page_cost')").Scan(&got); err != nil || got != "2.5" {
		t.Errorf("random_page_cost is %q (%v), want 2.5", got, err)
	}
}

func TestCommitWithoutKnownOutcomeIsInDoubt(t *testing.T) {
	t.Parallel()
	direct := dbtest.Address(t, "postgres")
	scratch(t, dbtest.Open(t, direct))
	pooler, address := startPooler(t, direct)
	d, err := db.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, c := range []struct {
		severity, code string
		inDoubt        bool
	}{
		{"FATAL", "08P01", true}, // PgBouncer: server conn crashed?
		{"ERROR", "08006", true},
		{"FATAL", "57P01", true}, // the server is shutting down
		{"FATAL", "57P02", true}, // another process of the server crashed
		{"FATAL", "XX000", true},
		{"ERROR", "40003", true},  // statement completion unknown
		{"FATAL", "25P03", false}, // the transaction was idle for too long, so it was rolled back
		{"ERROR", "53100", false}, // the disk is full
		{"ERROR", "23505", false},
	} {
		pooler.commit.Store(&pgproto3.ErrorResponse{Severity: c.severity, SeverityUnlocalized: c.severity, Code: c.code, Message: "lost"})
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO scratch (id) VALUES ($1)", c.code)
			return err
		})
		if got := errors.Is(err, db.ErrInDoubt); got != c.inDoubt {
			t.Errorf("%s %s at COMMIT: in doubt %t, want %t: %v", c.severity, c.code, got, c.inDoubt, err)
		}
		if c.inDoubt && !errors.Is(err, db.ErrUnavailable) {
			t.Errorf("%s %s at COMMIT isn't an outage: %v", c.severity, c.code, err)
		}
	}
}
