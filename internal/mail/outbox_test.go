package mail_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/keyring"
	"turnpike/internal/mail"
	"turnpike/test/fakes/smtp"
)

const (
	workspace = "ws_1"
	sender    = "Turnpike <turnpike@example.com>"
	reader    = "owner@example.com"
)

// lease is how long an email is claimed.
const lease = 10 * time.Minute

type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

func connectTo(t *testing.T, address string) *mail.SMTP {
	t.Helper()
	s, err := mail.NewSMTP(address, sender)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newOutbox(d *db.DB, s *mail.SMTP, now func() time.Time) *mail.Outbox {
	ring, err := keyring.New(bytes.Repeat([]byte{7}, keyring.Size))
	if err != nil {
		panic(err)
	}
	return mail.New(d, ring, s, "https://api.example.com", now)
}

func paused() mail.EndpointPaused {
	return mail.EndpointPaused{
		Workspace: "Acme", WorkspaceID: "ws_1", Environment: "live", EndpointID: "wh_1", URL: "https://hooks.example.com/in", Description: "Orders",
		LastError: "503 Service Unavailable", Attempts: 6, PausedAt: time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC),
	}
}

func to(address string) mail.Message {
	return mail.Message{WorkspaceID: workspace, To: address, Data: paused()}
}

func enqueue(t *testing.T, d *db.DB, o *mail.Outbox, messages ...mail.Message) {
	t.Helper()
	if err := d.Write(t.Context(), func(tx *db.Tx) error { return o.Enqueue(t.Context(), tx, messages...) }); err != nil {
		t.Fatal(err)
	}
}

func sendDue(t *testing.T, o *mail.Outbox) {
	t.Helper()
	if err := o.SendDue(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// all lists the workspace's mails, oldest first.
func all(t *testing.T, d *db.DB) []*mail.Mail {
	t.Helper()
	list, err := mail.List(t.Context(), d, workspace, 1000)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(list)
	return list
}

// wantStatus checks the one mail there is.
func wantStatus(t *testing.T, d *db.DB, status mail.Status, attempts int64, lastError string) *mail.Mail {
	t.Helper()
	list := all(t, d)
	if len(list) != 1 {
		t.Fatalf("there are %d mails", len(list))
	}
	m := list[0]
	if m.Status != status || m.Attempts != attempts || !strings.Contains(m.LastError, lastError) || (lastError == "") != (m.LastError == "") {
		t.Fatalf("the mail is %s after %d attempts with the error %q, want %s after %d with %q", m.Status, m.Attempts, m.LastError, status, attempts, lastError)
	}
	if (m.DueAt == nil) != (status != mail.Waiting) || (m.SentAt == nil) != (status != mail.Sent) {
		t.Fatalf("a mail that is %s is due at %v and was sent at %v", m.Status, m.DueAt, m.SentAt)
	}
	return m
}

func recipients(messages []smtp.Message) []string {
	var out []string
	for _, m := range messages {
		out = append(out, m.To...)
	}
	return out
}

func TestEmailIsSentOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server, time := smtp.Start(t), newClock()
		o := newOutbox(d, connectTo(t, server.URL()), time.now)
		enqueue(t, d, o, to(reader), to("admin@example.com"))
		for range 3 {
			sendDue(t, o)
			time.advance(lease)
		}
		got := server.Messages()
		if !slices.Equal(recipients(got), []string{reader, "admin@example.com"}) || got[0].From != "turnpike@example.com" {
			t.Errorf("the server got %v from %s", recipients(got), got[0].From)
		}
		for _, m := range all(t, d) {
			if m.Status != mail.Sent || m.DueAt != nil || m.SentAt == nil || m.Attempts != 1 {
				t.Errorf("stored as %+v", m)
			}
		}
	})
}

// TestEmailIsSentOnceIfTheCommitAfterItLosesItsResponse breaks the connection after the database has stored the attempt.
func TestEmailIsSentOnceIfTheCommitAfterItLosesItsResponse(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.CutResponses(t, dbtest.Address(t, "postgres"), func(statements []string) bool {
		return slices.ContainsFunc(statements, func(s string) bool { return strings.HasPrefix(s, "UPDATE mails SET status") })
	}))
	server, time := smtp.Start(t), newClock()
	o := newOutbox(d, connectTo(t, server.URL()), time.now)
	enqueue(t, d, o, to(reader))
	if err := o.SendDue(t.Context()); !errors.Is(err, db.ErrInDoubt) {
		t.Fatalf("got %v, want %v", err, db.ErrInDoubt)
	}
	time.advance(lease)
	sendDue(t, o)
	wantStatus(t, d, mail.Sent, 1, "")
	if got := server.Messages(); len(got) != 1 {
		t.Errorf("the server got %d emails, want 1", len(got))
	}
}

func TestCommittedEmailIsSentImmediately(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server := smtp.Start(t)
		o := newOutbox(d, connectTo(t, server.URL()), time.Now)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); o.Run(ctx) }()
		enqueue(t, d, o, to(reader))
		server.Wait(t, 1) // it gives up before the outbox would look by itself
		enqueue(t, d, o, to(reader))
		server.Wait(t, 2)
		stop()
		<-ended
		for _, m := range all(t, d) {
			if m.Status != mail.Sent { // stopping waits for the commit
				t.Errorf("a mail that was sent is stored as %s", m.Status)
			}
		}
	})
}

func TestRunSendsEmailsOfADeadNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.Open(t, filepath.Join(t.TempDir(), "turnpike.db"))
		o := newOutbox(d, nil, time.Now)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); o.Run(ctx) }()
		synctest.Wait()
		enqueue(t, d, newOutbox(d, nil, time.Now), to(reader)) // wakes the other one
		wantStatus(t, d, mail.Waiting, 0, "")
		time.Sleep(time.Minute) // the bubble's
		synctest.Wait()
		wantStatus(t, d, mail.Logged, 0, "")
		stop()
		<-ended
	})
}

func TestEmailIsStoredInTheTransactionOfItsCause(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newOutbox(d, nil, time.Now)
		undone := errors.New("undone")
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			return errors.Join(o.Enqueue(t.Context(), tx, to(reader)), undone)
		})
		if !errors.Is(err, undone) || len(all(t, d)) != 0 {
			t.Errorf("%v, and %d mails are there", err, len(all(t, d)))
		}
	})
}

func TestOnceSendsOneEmailPerRecipient(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server := smtp.Start(t)
		o := newOutbox(d, connectTo(t, server.URL()), time.Now)
		once := func(workspace, address, once string, data mail.Data) mail.Message {
			return mail.Message{WorkspaceID: workspace, To: address, Once: once, Data: data}
		}
		pause := once(workspace, reader, "wh_1 paused at 7", paused())
		enqueue(t, d, o, pause, pause)
		sendDue(t, o)
		enqueue(t, d, o, pause)
		enqueue(t, d, o,
			once(workspace, "admin@example.com", "wh_1 paused at 7", paused()),
			once(workspace, reader, "wh_1 paused at 8", paused()),
			once(workspace, reader, "wh_1 paused at 7", mail.HeldExpiring{}),
			once("ws_2", reader, "wh_1 paused at 7", paused()),
			to(reader), to(reader)) // nothing said: each is its own
		sendDue(t, o)
		if got := server.Messages(); len(got) != 7 {
			t.Errorf("%d mails were sent, want 7: %v", len(got), recipients(got))
		}
	})
}

func TestTemporaryFailureIsRetriedForThreeDays(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server, clock := smtp.Start(t), newClock()
		server.RejectTo(reader, 451, "come back later")
		o := newOutbox(d, connectTo(t, server.URL()), clock.now)
		enqueue(t, d, o, to(reader))
		sendDue(t, o)
		const h = time.Hour
		attempts := int64(1)
		for _, delay := range []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * h, 6 * h, 12 * h, 12 * h, 12 * h, 12 * h, 12 * h} {
			wantStatus(t, d, mail.Waiting, attempts, `451 "come back later"`)
			clock.advance(delay - time.Microsecond)
			sendDue(t, o)
			wantStatus(t, d, mail.Waiting, attempts, "451")
			clock.advance(time.Microsecond)
			sendDue(t, o)
			attempts++
		}
		wantStatus(t, d, mail.Failed, attempts, `451 "come back later"`)
		if got := server.Messages(); len(got) != 0 {
			t.Errorf("%d were taken", len(got))
		}
	})
}

func TestRetrySucceedsOnceTheServerAccepts(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for _, at := range []smtp.Stage{smtp.Connect, smtp.Mail, smtp.Recipient, smtp.Data} {
			t.Run(string(at), func(t *testing.T) {
				server, clock := smtp.Start(t), newClock()
				server.RejectAt(at, 1, 421, "too busy")
				server.HangUp(at, 1)
				o := newOutbox(d, connectTo(t, server.URL()), clock.now)
				enqueue(t, d, o, mail.Message{WorkspaceID: workspace, To: reader, Data: paused()})
				sendDue(t, o)
				clock.advance(time.Minute)
				sendDue(t, o)
				if got := server.Messages(); len(got) != 0 {
					t.Fatalf("%d were taken", len(got))
				}
				clock.advance(5 * time.Minute)
				sendDue(t, o)
				if got := server.Messages(); len(got) != 1 {
					t.Fatalf("%d were taken", len(got))
				}
				list := all(t, d)
				if m := list[len(list)-1]; m.Status != mail.Sent || m.Attempts != 3 || m.LastError != "" {
					t.Errorf("stored as %+v", m)
				}
			})
		}
	})
}

func TestRejectedEmailIsNotRetried(t *testing.T) {
	t.Parallel()
	for _, at := range []smtp.Stage{smtp.Recipient, smtp.Data} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				server := smtp.Start(t)
				server.RejectAt(at, 1, 550, "no such person")
				o := newOutbox(d, connectTo(t, server.URL()), time.Now)
				enqueue(t, d, o, to(reader))
				sendDue(t, o)
				wantStatus(t, d, mail.Failed, 1, `550 "no such person"`)
			})
		})
	}
}

func TestRejectedSenderIsRetried(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server, clock := smtp.Start(t), newClock()
		server.RejectAt(smtp.Mail, 1, 553, "not your domain")
		o := newOutbox(d, connectTo(t, server.URL()), clock.now)
		enqueue(t, d, o, to(reader))
		sendDue(t, o)
		wantStatus(t, d, mail.Waiting, 1, `553 "not your domain"`)
		clock.advance(time.Minute)
		sendDue(t, o)
		wantStatus(t, d, mail.Sent, 2, "")
	})
}

func TestOneRecipientDelaysNoOther(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server := smtp.Start(t)
		server.RejectTo("full@example.com", 452, "mailbox full")
		server.RejectTo("gone@example.com", 550, "gone")
		server.HangUp(smtp.Data, 1) // on the first that gets so far
		o := newOutbox(d, connectTo(t, server.URL()), time.Now)
		enqueue(t, d, o, to("cut@example.com"), to("a@example.com"), to("full@example.com"), to("b@example.com"),
			to("gone@example.com"), to("no address"), to("c@example.com"))
		sendDue(t, o)
		if got := recipients(server.Messages()); !slices.Equal(got, []string{"a@example.com", "b@example.com", "c@example.com"}) {
			t.Errorf("the server took mail to %v", got)
		}
		want := map[string]mail.Status{"cut@example.com": mail.Waiting, "full@example.com": mail.Waiting, "gone@example.com": mail.Failed, "no address": mail.Failed}
		for _, m := range all(t, d) {
			if status, fails := want[m.To]; fails && (m.Status != status || m.LastError == "") || !fails && m.Status != mail.Sent {
				t.Errorf("the mail to %s is %s (%s)", m.To, m.Status, m.LastError)
			}
		}
	})
}

func TestServerThatDisconnectsAfterEachEmailGetsEachOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server := smtp.Start(t)
		server.HangUp(smtp.Accepted, 2)
		o := newOutbox(d, connectTo(t, server.URL()), time.Now)
		enqueue(t, d, o, to("a@example.com"), to("b@example.com"), to("c@example.com"))
		sendDue(t, o)
		if got := recipients(server.Messages()); !slices.Equal(got, []string{"a@example.com", "b@example.com", "c@example.com"}) {
			t.Errorf("the server took mail to %v", got)
		}
		for _, m := range all(t, d) {
			if m.Status != mail.Sent || m.Attempts != 1 {
				t.Errorf("the mail to %s is %s after %d attempts (%s)", m.To, m.Status, m.Attempts, m.LastError)
			}
		}
	})
}

func TestEmailsWaitWhileTheServerIsDown(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server, clock := smtp.Start(t), newClock()
		server.Down()
		o := newOutbox(d, connectTo(t, server.URL()), clock.now)
		enqueue(t, d, o, to(reader))
		sendDue(t, o)
		wantStatus(t, d, mail.Waiting, 1, "connect to the mail server")

		closed, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = closed.Close()
		clock.advance(time.Minute)
		sendDue(t, newOutbox(d, connectTo(t, "smtp://"+closed.Addr().String()), clock.now))
		wantStatus(t, d, mail.Waiting, 2, "connection refused")

		server.Up()
		clock.advance(5 * time.Minute)
		sendDue(t, o)
		wantStatus(t, d, mail.Sent, 3, "")
		if len(server.Messages()) != 1 {
			t.Errorf("%d mails were taken", len(server.Messages()))
		}
	})
}

func TestTwoNodesSendEachEmailOnce(t *testing.T) {
	t.Parallel()
	dbtest.EachAddress(t, func(t *testing.T, address string) {
		const mails = 230 // several batches for each
		server, clock := smtp.Start(t), newClock()
		d := dbtest.Open(t, address)
		o := newOutbox(d, nil, clock.now)
		var want []string
		for i := range mails {
			want = append(want, fmt.Sprintf("%03d@example.com", i))
			enqueue(t, d, o, to(want[i]))
		}
		var nodes sync.WaitGroup
		for range 3 {
			node := newOutbox(dbtest.Open(t, address), connectTo(t, server.URL()), clock.now)
			nodes.Go(func() {
				if err := node.SendDue(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		nodes.Wait()
		got := recipients(server.Messages())
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%d mails were taken, %d of them different, want %d", len(got), len(slices.Compact(got)), mails)
		}
	})
}

func TestEmailSurvivesARestart(t *testing.T) {
	t.Parallel()
	dbtest.EachAddress(t, func(t *testing.T, address string) {
		clock := newClock()
		first, err := db.Open(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := first.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		enqueue(t, first, newOutbox(first, nil, clock.now), to(reader))
		first.Close()

		server, second := smtp.Start(t), dbtest.Open(t, address)
		sendDue(t, newOutbox(second, connectTo(t, server.URL()), clock.now))
		wantStatus(t, second, mail.Sent, 1, "")
		if len(server.Messages()) != 1 {
			t.Errorf("%d mails were taken", len(server.Messages()))
		}
	})
}

// dying ends the process, as it were, when the outbox looks at the clock and
// the time has come.
func dying(o func(now func() time.Time) *mail.Outbox, now func() time.Time, come func() bool) {
	died := make(chan struct{})
	go func() {
		defer close(died)
		_ = o(func() time.Time {
			if come() {
				runtime.Goexit()
			}
			return now()
		}).SendDue(context.Background())
	}()
	<-died
}

func TestLeaseOfADeadNodeEnds(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server, clock := smtp.Start(t), newClock()
		node := func(now func() time.Time) *mail.Outbox { return newOutbox(d, connectTo(t, server.URL()), now) }
		enqueue(t, d, node(clock.now), to(reader))
		dying(node, clock.now, func() bool { return all(t, d)[0].DueAt.After(clock.now()) })

		sendDue(t, node(clock.now))
		wantStatus(t, d, mail.Waiting, 0, "")
		clock.advance(lease)
		sendDue(t, node(clock.now))
		wantStatus(t, d, mail.Sent, 1, "")
		if len(server.Messages()) != 1 {
			t.Errorf("%d mails were taken", len(server.Messages()))
		}
	})
}

func TestExpiredLeaseChangesNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server, clock := smtp.Start(t), newClock()
		early := clock.now()
		var overtaken sync.Once
		slow := newOutbox(d, connectTo(t, server.URL()), func() time.Time {
			if list := all(t, d); len(list) == 1 && list[0].DueAt != nil && list[0].DueAt.After(early) {
				overtaken.Do(func() { // it has claimed the mail, and sleeps
					clock.advance(lease)
					sendDue(t, newOutbox(d, connectTo(t, server.URL()), clock.now))
					server.Reject(1, 550, "you again")
				})
			}
			return early
		})
		enqueue(t, d, slow, to(reader))
		sendDue(t, slow)
		wantStatus(t, d, mail.Sent, 1, "")
	})
}

func TestRetriedEmailKeepsItsMessageID(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server, clock := smtp.Start(t), newClock()
		node := func(now func() time.Time) *mail.Outbox { return newOutbox(d, connectTo(t, server.URL()), now) }
		enqueue(t, d, node(clock.now), to(reader))
		dying(node, clock.now, func() bool { return len(server.Messages()) > 0 })
		wantStatus(t, d, mail.Waiting, 0, "")

		clock.advance(lease)
		sendDue(t, node(clock.now))
		wantStatus(t, d, mail.Sent, 1, "")
		if got := server.Messages(); len(got) != 2 || !bytes.Equal(got[0].Data, got[1].Data) {
			t.Errorf("%d mails were taken, or they differ", len(got))
		}
	})
}

func TestStoppingReleasesUnsentEmails(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server, clock := smtp.Start(t), newClock()
		ctx, stop := context.WithCancel(t.Context())
		o := newOutbox(d, connectTo(t, server.URL()), func() time.Time {
			if len(server.Messages()) == 1 {
				stop()
			}
			return clock.now()
		})
		enqueue(t, d, o, to("a@example.com"), to("b@example.com"), to("c@example.com"))
		if err := o.SendDue(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("SendDue returned %v", err)
		}
		if list := all(t, d); list[0].Status != mail.Sent || list[1].Status != mail.Waiting || list[1].Attempts != 0 {
			t.Errorf("stopped with %s and %s", list[0].Status, list[1].Status)
		}
		sendDue(t, newOutbox(d, connectTo(t, server.URL()), clock.now))
		if got := recipients(server.Messages()); !slices.Equal(got, []string{"a@example.com", "b@example.com", "c@example.com"}) {
			t.Errorf("the server took mail to %v", got)
		}
	})
}

func TestSlowServerDoesNotOutlastTheLease(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server, clock := smtp.Start(t), newClock()
		// A minute for each mail: a batch would take longer than its claim lasts.
		now := func() time.Time { return clock.now().Add(time.Duration(len(server.Messages())) * time.Minute) }
		other := newOutbox(d, connectTo(t, server.URL()), now)
		o := newOutbox(d, connectTo(t, server.URL()), func() time.Time {
			if len(server.Messages()) > 0 {
				sendDue(t, other) // whatever it can get
			}
			return now()
		})
		var want []string
		for i := range 30 {
			want = append(want, fmt.Sprintf("%02d@example.com", i))
			enqueue(t, d, o, to(want[i]))
		}
		sendDue(t, o)
		got := recipients(server.Messages())
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("the server took mail to %v", got)
		}
	})
}

func TestUnreachableServerIsDialedOncePerRound(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server := smtp.Start(t)
		server.HangUp(smtp.Connect, 1)
		o := newOutbox(d, connectTo(t, server.URL()), newClock().now)
		for range 60 { // more than a batch
			enqueue(t, d, o, to(reader))
		}
		sendDue(t, o)
		if got := server.Messages(); len(got) != 0 {
			t.Errorf("%d mails were sent by a second connection", len(got))
		}
		sendDue(t, o)
		if got := server.Messages(); len(got) != 10 {
			t.Errorf("%d mails were sent in the next round, want the 10 that were not tried", len(got))
		}
	})
}

// Not parallel: it listens to the process's log.
func TestEmailIsLoggedWithoutAServer(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	for _, engine := range dbtest.Engines {
		log.Reset()
		d := dbtest.Open(t, dbtest.Address(t, engine))
		o := newOutbox(d, nil, time.Now)
		enqueue(t, d, o, to(reader))
		sendDue(t, o)
		sendDue(t, o)
		m := wantStatus(t, d, mail.Logged, 0, "")
		for _, part := range []string{"level=INFO", "kind=endpoint_paused", "workspace=ws_1", "to=owner@example.com", m.Subject} {
			if strings.Count(log.String(), part) != 1 {
				t.Errorf("%s: the log has %q not once:\n%s", engine, part, log.String())
			}
		}
		if strings.Contains(log.String(), "What to do") {
			t.Errorf("%s: the text is in the log:\n%s", engine, log.String())
		}
	}
}

func TestFinishedMailsArePurgedInBatches(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		clock := newClock()
		o := newOutbox(d, nil, clock.now)
		enqueue(t, d, o, to("a@example.com"), to("b@example.com"), to("c@example.com"))
		sendDue(t, o)
		clock.advance(time.Hour)
		enqueue(t, d, o, to("late@example.com"))
		sendDue(t, o)
		enqueue(t, d, o, to("waiting@example.com"))
		purge := func(before time.Time) (n int64) {
			if err := d.Write(t.Context(), func(tx *db.Tx) (err error) {
				n, err = mail.Purge(t.Context(), tx, before, 2)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return n
		}
		for _, want := range []int64{2, 1, 0} {
			if n := purge(clock.now()); n != want {
				t.Errorf("%d were purged, want %d", n, want)
			}
		}
		if n := purge(clock.now().Add(time.Hour)); n != 1 {
			t.Errorf("%d were purged, want the one that is not waiting", n)
		}
		if list := all(t, d); len(list) != 1 || list[0].To != "waiting@example.com" {
			t.Errorf("%d are left", len(list))
		}
	})
}

func TestListShowsOneWorkspaceNewestFirst(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newOutbox(d, nil, time.Now)
		enqueue(t, d, o, to("a@example.com"), to("b@example.com"), to("c@example.com"),
			mail.Message{WorkspaceID: "ws_2", To: "stranger@example.com", Data: paused()})
		list, err := mail.List(t.Context(), d, workspace, 2)
		if err != nil || len(list) != 2 || list[0].To != "c@example.com" || list[1].To != "b@example.com" {
			t.Errorf("listed %v: %v", list, err)
		}
	})
}
