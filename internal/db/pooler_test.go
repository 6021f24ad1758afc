package db_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"golang.org/x/sync/errgroup"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
	"turnpike/internal/nodes"
)

// pooler is a proxy with two habits of PgBouncer: it rejects startup parameters
// that it doesn't track, and it reports a lost server as an error of the server.
type pooler struct {
	listener net.Listener
	server   string
	commit   atomic.Pointer[pgproto3.ErrorResponse] // the response to COMMIT instead of the server's
	hang     atomic.Bool                            // COMMIT gets no response
	lost     atomic.Bool                            // present and new sessions and requests to cancel get no response from now on
	mute     atomic.Bool                            // the server's responses are lost, and the connection breaks
	hold     atomic.Bool                            // the next session isn't forwarded until release
	release  chan struct{}
	trips    atomic.Int64  // how often a client has waited for a response
	ended    chan struct{} // gets a value when a client has ended its session
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
	p := &pooler{listener: listener, server: u.Host, release: make(chan struct{}), ended: make(chan struct{}, 100)}
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
	if p.lost.Load() {
		_, _ = io.Copy(io.Discard, client)
		return
	}
	if cancel, ok := first.(*pgproto3.CancelRequest); ok {
		p.forwardCancel(cancel)
		return
	}
	startup, ok := first.(*pgproto3.StartupMessage)
	if !ok {
		return
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
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		defer client.Close()
		if _, err := io.Copy(&responses{client, p}, server); err != nil {
			_, _ = io.Copy(io.Discard, server)
		}
	}()
	defer func() { p.ended <- struct{}{} }()
	held := false
	defer func() {
		if held { // until the server has handled everything
			_ = server.(*net.TCPConn).CloseWrite()
			<-answered
		}
	}()
	for lost := false; ; {
		message, err := backend.Receive()
		if err != nil {
			return
		}
		if p.hold.CompareAndSwap(true, false) {
			held = true
			<-p.release
		}
		if lost = lost || p.lost.Load(); lost {
			continue
		}
		if _, ok := message.(*pgproto3.Terminate); ok {
			return
		}
		query, isQuery := message.(*pgproto3.Query)
		if _, isSync := message.(*pgproto3.Sync); isSync || isQuery {
			p.trips.Add(1)
		}
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

// responses forwards them until they are lost.
type responses struct {
	io.Writer
	of *pooler
}

func (r *responses) Write(p []byte) (int, error) {
	if r.of.mute.Load() {
		return 0, net.ErrClosed
	}
	return r.Writer.Write(p)
}

// forwardCancel returns when the server has handled the request.
func (p *pooler) forwardCancel(request *pgproto3.CancelRequest) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	frontend := pgproto3.NewFrontend(server, server)
	frontend.Send(request)
	if frontend.Flush() == nil {
		_, _ = io.Copy(io.Discard, server)
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

// TestUnreplicatedCommitStaysInvisible covers a primary that has lost its synchronous
// standby. If the client canceled a commit that waits for the standby, the primary would
// show the transaction to others. They would rely on it, and a failover would lose it.
func TestUnreplicatedCommitStaysInvisible(t *testing.T) {
	t.Parallel()
	cluster, err := dbtest.StartDurableCluster() // the other can't replicate
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), cluster.URL())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	admin := connect()
	for _, statement := range []string{"CREATE TABLE scratch (id text PRIMARY KEY)", "ALTER SYSTEM SET synchronous_standby_names = 'absent'"} {
		if _, err := admin.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(admin.Close(t.Context()), cluster.Restart()); err != nil {
		t.Fatal(err)
	}
	pooler, address := startPooler(t, cluster.URL())
	d, err := db.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	err = d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO scratch (id) VALUES ('a')")
		return err
	})
	if !errors.Is(err, db.ErrInDoubt) {
		t.Fatalf("got %v, want %v", err, db.ErrInDoubt)
	}
	<-pooler.ended // the client does nothing more in this session
	reader := connect()
	defer reader.Close(t.Context())
	var waiting, visible int
	if err := reader.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'), (SELECT count(*) FROM scratch)").Scan(&waiting, &visible); err != nil {
		t.Fatal(err)
	}
	if waiting != 1 || visible != 0 {
		t.Errorf("got %d waiting commits and %d visible rows, want 1 and 0", waiting, visible)
	}
}

// TestLostConnectionDoesNotBlockThePool covers a network that fails without closing
// connections. Their places in the pool are free when the network is back.
func TestLostConnectionDoesNotBlockThePool(t *testing.T) {
	t.Parallel()
	pooler, address := startPooler(t, dbtest.Address(t, "postgres"))
	d, err := db.Open(t.Context(), address+"&pool_max_conns=1")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	scratch(t, d)
	insert := func(id string) error {
		return d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO scratch (id) VALUES ($1)", id)
			return err
		})
	}
	if err := insert("a"); err != nil {
		t.Fatal(err)
	}
	pooler.lost.Store(true)
	if err := insert("b"); !errors.Is(err, db.ErrUnavailable) {
		t.Fatalf("got %v, want %v", err, db.ErrUnavailable)
	}
	pooler.lost.Store(false)
	// A busy machine may need longer than the limit to connect. A blocked place would stay blocked for all attempts.
	for attempt := 1; ; attempt++ {
		if err = insert("c"); err == nil {
			return
		}
		if attempt == 3 {
			t.Fatalf("the network is back: %v", err)
		}
	}
}

func TestAbandonedStatementEnds(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "postgres"))
	const sleep = "SELECT pg_sleep(600) -- abandoned"
	ctx, cancel := context.WithCancel(t.Context())
	running := func() (n int) {
		err := d.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE query = $1 AND wait_event = 'PgSleep' AND datname = current_database()", sleep).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	ended := make(chan error)
	go func() {
		rows, err := d.Query(ctx, sleep)
		ended <- db.Each(rows, err, func(db.Row) error { return nil })
	}()
	for running() == 0 {
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the statement ended without an error")
	}
	for running() > 0 {
	}
}

// A transaction with a fence is sent as a whole. It must not be counted as failed if the connection breaks, but its
// statements can still fail for sure.
func TestTransactionWithFenceIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	pooler, address := startPooler(t, dbtest.Address(t, "postgres"))
	d, err := db.Open(t.Context(), address+"&pool_max_conns=1")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	scratch(t, d)
	bulk := db.NewBulk("scratch", "", "id text")
	errLost := errors.New("lost")
	insert := func(fence string, ids ...any) error {
		return d.Write(t.Context(), func(tx *db.Tx) error {
			if err := tx.Fence(func() error { return errLost }, "SELECT 1 FROM scratch WHERE id = $1"+tx.Keep("scratch"), fence); err != nil {
				return err
			}
			rows := make([][]any, len(ids))
			for i, id := range ids {
				rows[i] = []any{id}
			}
			return bulk.Send(t.Context(), tx, rows, nil)
		})
	}
	write(t, d, "INSERT INTO scratch (id) VALUES ('fence')")
	if err := insert("fence", "a"); err != nil { // prepares the statements
		t.Fatal(err)
	}
	before := pooler.trips.Load()
	if err := insert("fence", "b"); err != nil {
		t.Fatal(err)
	}
	if trips := pooler.trips.Load() - before; trips != 1 {
		t.Errorf("took %d round trips, want 1", trips)
	}
	if err := insert("absent", "c"); !errors.Is(err, errLost) {
		t.Errorf("without the row of the fence: got %v, want %v", err, errLost)
	}
	if err := insert("fence", "d", "b"); !errors.Is(err, db.ErrExists) || errors.Is(err, db.ErrInDoubt) {
		t.Errorf("a row that exists: got %v, want %v", err, db.ErrExists)
	}
	if err := insert("fence", "c"); err != nil { // prepares the statements again
		t.Fatal(err)
	}
	// A constraint that is checked when the transaction commits.
	write(t, d, "CREATE TABLE twins (id text PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)")
	twins := db.NewBulk("twins", "", "id text")
	err = d.Write(t.Context(), func(tx *db.Tx) error {
		if err := tx.Fence(func() error { return errLost }, "SELECT 1 FROM scratch WHERE id = $1"+tx.Keep("scratch"), "fence"); err != nil {
			return err
		}
		if err := bulk.Send(t.Context(), tx, [][]any{{"f"}}, nil); err != nil {
			return err
		}
		return twins.Send(t.Context(), tx, [][]any{{"t"}, {"t"}}, nil)
	})
	if !errors.Is(err, db.ErrExists) || errors.Is(err, db.ErrInDoubt) {
		t.Errorf("rows that the commit finds to be twins: got %v, want %v", err, db.ErrExists)
	}
	if err := insert("fence", "g"); err != nil { // prepares the statements again
		t.Fatal(err)
	}
	pooler.mute.Store(true)
	if err := insert("fence", "e"); !errors.Is(err, db.ErrInDoubt) || !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("without a response: got %v, want %v", err, db.ErrInDoubt)
	}
	pooler.mute.Store(false)
	ids, err := db.List(t.Context(), d, db.Value[string], "SELECT id FROM scratch ORDER BY id")
	if want := []string{"a", "b", "c", "e", "fence", "g"}; err != nil || !slices.Equal(ids, want) {
		t.Errorf("stored %v (%v), want %v", ids, err, want)
	}
}

// nodeBehindPooler returns a function that inserts a row as a node, in one round trip.
func nodeBehindPooler(t *testing.T) (p *pooler, d *db.DB, insert func(id string) error) {
	t.Helper()
	p, address := startPooler(t, dbtest.Address(t, "postgres"))
	d, err := db.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	scratch(t, d)
	node, err := nodes.Join(t.Context(), d, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	bulk := db.NewBulk("scratch", "", "id text")
	insert = func(id string) error {
		return d.Write(t.Context(), func(tx *db.Tx) error {
			if err := node.AssertAlive(tx); err != nil {
				return err
			}
			return bulk.Send(t.Context(), tx, [][]any{{id}}, nil)
		})
	}
	if err := insert("prepares the statements"); err != nil {
		t.Fatal(err)
	}
	return p, d, insert
}

// TestTransactionThatArrivesLateFails covers a network that delivers a transaction after the node has done its work again.
func TestTransactionThatArrivesLateFails(t *testing.T) {
	t.Parallel()
	pooler, d, insert := nodeBehindPooler(t)
	pooler.hold.Store(true)
	if err := insert("late"); !errors.Is(err, db.ErrInDoubt) {
		t.Fatalf("got %v, want %v", err, db.ErrInDoubt)
	}
	for range 2 {
		if err := insert(ids.New("again")); err != nil {
			t.Fatal(err)
		}
	}
	for len(pooler.ended) > 0 {
		<-pooler.ended
	}
	close(pooler.release)
	<-pooler.ended
	late, err := db.Value[int](d.QueryRow(t.Context(), "SELECT count(*) FROM scratch WHERE id = 'late'"))
	if n := count(t, d); err != nil || late != 0 || n != 3 {
		t.Errorf("%d of %d rows are late (%v), want none of 3", late, n, err)
	}
}

// TestEpochThatAFailoverLostEvictsNoOne: the new primary has the node's row without the last commits.
func TestEpochThatAFailoverLostEvictsNoOne(t *testing.T) {
	t.Parallel()
	pooler, d, insert := nodeBehindPooler(t)
	pooler.mute.Store(true)
	if err := insert("in doubt"); !errors.Is(err, db.ErrInDoubt) {
		t.Fatalf("got %v, want %v", err, db.ErrInDoubt)
	}
	pooler.mute.Store(false)
	if err := insert("with the next epoch"); err != nil {
		t.Fatal(err)
	}
	write(t, d, "UPDATE nodes SET epoch = 0")
	if err := insert("after the failover"); err != nil {
		t.Errorf("got %v, want that the node continues", err)
	}
	write(t, d, "DELETE FROM nodes")
	if err := insert("after an eviction"); !errors.Is(err, nodes.ErrEvicted) {
		t.Errorf("got %v, want %v", err, nodes.ErrEvicted)
	}
}

// TestTransactionThatWaitsTooLongForALockFails: without a fence, its commit is sent after its statements succeeded.
func TestTransactionThatWaitsTooLongForALockFails(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "postgres"))
	scratch(t, d)
	write(t, d, "INSERT INTO scratch (id) VALUES ('row')")
	bulk := db.NewBulk("scratch", "ON CONFLICT (id) DO UPDATE SET n = 1", "id text")
	locked, unlock := make(chan struct{}), make(chan struct{})
	var holder errgroup.Group
	holder.Go(func() error {
		return d.Write(t.Context(), func(tx *db.Tx) error {
			if _, err := tx.Exec(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), "SELECT 1 FROM scratch WHERE id = 'row' FOR UPDATE")
			close(locked)
			<-unlock
			return err
		})
	})
	<-locked
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), "INSERT INTO scratch (id) VALUES ('late')"); err != nil {
			return err
		}
		return bulk.Send(t.Context(), tx, [][]any{{"row"}}, nil)
	})
	if !errors.Is(err, db.ErrUnavailable) || errors.Is(err, db.ErrInDoubt) {
		t.Errorf("got %v, want that it failed for sure", err)
	}
	close(unlock)
	if err := holder.Wait(); err != nil {
		t.Error(err)
	}
	if n := count(t, d); n != 1 {
		t.Errorf("%d rows are stored, want 1", n)
	}
}
