package db_test

import (
	"io"
	"net"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// pooler is a proxy that rejects startup parameters that it doesn't track, like PgBouncer.
type pooler struct {
	listener net.Listener
	server   string
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
