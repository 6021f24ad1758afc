package mail_test

import (
	"strings"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/mail"
	"turnpike/test/fakes/smtp"
)

const resetLink = "https://api.example.com/dashboard/password?token=zQ8secret"

func reset(address string) mail.Message {
	return mail.Message{WorkspaceID: workspace, To: address, Data: mail.PasswordReset{Email: address, URL: resetLink, ExpiresAt: time.Unix(1_800_000_000, 0)}}
}

// storedText returns what the database has of the one mail's text, in plain and
// sealed, and fails if any column shows the link.
func storedText(t *testing.T, d *db.DB) (plain, sealed string) {
	t.Helper()
	var id, recipient, subject, status string
	var body, sealedBody, once, lastError *string
	err := d.QueryRow(t.Context(), "SELECT id, recipient, subject, status, body, sealed_body, once, last_error FROM mails").
		Scan(&id, &recipient, &subject, &status, &body, &sealedBody, &once, &lastError)
	if err != nil {
		t.Fatal(err)
	}
	plain, sealed = db.Text(body), db.Text(sealedBody)
	for _, column := range []string{id, recipient, subject, status, plain, sealed, db.Text(once), db.Text(lastError)} {
		if strings.Contains(column, "zQ8secret") || strings.Contains(column, "token=") {
			t.Errorf("the database shows the link: %q", column)
		}
	}
	return plain, sealed
}

func TestStoredMailShowsNoLinkAndIsClearedWhenFinished(t *testing.T) {
	t.Parallel()
	for status, prepare := range map[mail.Status]func(s *smtp.Server){
		mail.Sent:   func(*smtp.Server) {},
		mail.Failed: func(s *smtp.Server) { s.RejectTo(reader, 550, "gone") },
		mail.Logged: nil,
	} {
		t.Run(string(status), func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				var client *mail.SMTP
				if prepare != nil {
					server := smtp.Start(t)
					prepare(server)
					client = connectTo(t, server.URL())
				}
				o := newOutbox(d, client, time.Now)
				enqueue(t, d, o, reset(reader))
				if plain, sealed := storedText(t, d); plain != "" || sealed == "" {
					t.Errorf("a waiting mail is stored as %q, sealed %q", plain, sealed)
				}
				sendDue(t, o)
				if m := all(t, d)[0]; m.Status != status {
					t.Fatalf("the mail is %s (%s), want %s", m.Status, m.LastError, status)
				}
				if plain, sealed := storedText(t, d); plain != "" || sealed != "" {
					t.Errorf("a finished mail still has its text: %q, sealed %q", plain, sealed)
				}
			})
		})
	}
}

func TestRetriedMailKeepsItsSealedText(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server, clock := smtp.Start(t), newClock()
		server.RejectAt(smtp.Recipient, 1, 451, "come back later")
		o := newOutbox(d, connectTo(t, server.URL()), clock.now)
		enqueue(t, d, o, reset(reader))
		sendDue(t, o)
		wantStatus(t, d, mail.Waiting, 1, "451")
		storedText(t, d)
		clock.advance(time.Minute)
		sendDue(t, o)
		wantStatus(t, d, mail.Sent, 2, "")
		if _, text := read(t, server.Messages()[0]); !strings.Contains(text, resetLink) {
			t.Errorf("the mail that was sent lacks its link:\n%s", text)
		}
	})
}
