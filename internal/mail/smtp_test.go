package mail_test

import (
	"io"
	"mime"
	"mime/quotedprintable"
	netmail "net/mail"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/mail"
	"turnpike/test/fakes/smtp"
)

// onSQLite is for what the store has no part in.
func onSQLite(t *testing.T) *db.DB {
	t.Helper()
	return dbtest.Open(t, dbtest.Address(t, "sqlite"))
}

// read parses a mail as its reader's program does.
func read(t *testing.T, m smtp.Message) (header netmail.Header, text string) {
	t.Helper()
	msg, err := netmail.ReadMessage(strings.NewReader(string(m.Data)))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(quotedprintable.NewReader(msg.Body))
	if err != nil {
		t.Fatal(err)
	}
	return msg.Header, strings.ReplaceAll(string(body), "\r\n", "\n")
}

func TestEncryptedConnectionIsVerified(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]smtp.Option{"STARTTLS": smtp.WithStartTLS(), "TLS": smtp.WithTLS()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, d, clock := smtp.Start(t, option), onSQLite(t), newClock()
			stranger := connectTo(t, server.URL())
			enqueue(t, d, newOutbox(d, nil, clock.now), to(reader))
			sendDue(t, newOutbox(d, stranger, clock.now))
			wantStatus(t, d, mail.Waiting, 1, "certificate signed by unknown authority")
			if len(server.Messages()) != 0 {
				t.Fatal("a mail went to a server that could not prove who it is")
			}

			known := connectTo(t, server.URL())
			known.RootCAs = server.Roots()
			clock.advance(time.Minute)
			sendDue(t, newOutbox(d, known, clock.now))
			wantStatus(t, d, mail.Sent, 2, "")
			if !server.Messages()[0].TLS {
				t.Error("the mail was not encrypted")
			}
		})
	}
}

func TestPasswordIsNotSentWithoutEncryption(t *testing.T) {
	t.Parallel()
	server, d := smtp.Start(t, smtp.WithLogin("u", "p", "PLAIN", "LOGIN")), onSQLite(t)
	o := newOutbox(d, connectTo(t, server.URL()+"?tls=starttls"), time.Now)
	enqueue(t, d, o, to(reader))
	sendDue(t, o)
	wantStatus(t, d, mail.Waiting, 1, "does not support STARTTLS")
}

func TestEveryLoginMechanismWorks(t *testing.T) {
	t.Parallel()
	const user, password = "turnpike", "p@ss/word"
	for name, options := range map[string][]smtp.Option{
		"PLAIN behind STARTTLS":        {smtp.WithLogin(user, password, "PLAIN"), smtp.WithStartTLS()},
		"LOGIN behind STARTTLS":        {smtp.WithLogin(user, password, "LOGIN"), smtp.WithStartTLS()},
		"PLAIN over TLS":               {smtp.WithLogin(user, password, "LOGIN", "PLAIN"), smtp.WithTLS()},
		"LOGIN over TLS":               {smtp.WithLogin(user, password, "LOGIN"), smtp.WithTLS()},
		"PLAIN on this machine":        {smtp.WithLogin(user, password, "PLAIN")},
		"LOGIN on this machine":        {smtp.WithLogin(user, password, "LOGIN")},
		"among what is not understood": {smtp.WithLogin(user, password, "GSSAPI", "XOAUTH2", "PLAIN")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, d, clock := smtp.Start(t, options...), onSQLite(t), newClock()
			wrong, err := url.Parse(server.URL())
			if err != nil {
				t.Fatal(err)
			}
			wrong.User = url.UserPassword(user, "s3ntinel")
			s := connectTo(t, wrong.String())
			s.RootCAs = server.Roots()
			enqueue(t, d, newOutbox(d, nil, clock.now), to(reader))
			sendDue(t, newOutbox(d, s, clock.now))
			// The operator may have mistyped it: the mail is not lost by that.
			if m := wantStatus(t, d, mail.Waiting, 1, "535"); strings.Contains(m.LastError, "s3ntinel") {
				t.Errorf("the password is in the error: %s", m.LastError)
			}

			s = connectTo(t, server.URL())
			s.RootCAs = server.Roots()
			clock.advance(time.Minute)
			sendDue(t, newOutbox(d, s, clock.now))
			wantStatus(t, d, mail.Sent, 2, "")
			if got := server.Messages()[0].User; got != user {
				t.Errorf("logged in as %q", got)
			}
		})
	}
}

func TestMailIsWellFormed(t *testing.T) {
	t.Parallel()
	server, d, clock := smtp.Start(t), onSQLite(t), newClock()
	o := newOutbox(d, connectTo(t, server.URL()), clock.now)
	data := paused()
	data.Workspace = "Büro 東京"
	enqueue(t, d, o, mail.Message{WorkspaceID: workspace, To: reader, Data: data})
	made := clock.now()
	clock.advance(time.Hour)
	sendDue(t, o)
	m := wantStatus(t, d, mail.Sent, 1, "")
	raw := server.Messages()[0]
	header, text := read(t, raw)
	for name, want := range map[string]string{
		"From":           `"Turnpike" <turnpike@example.com>`,
		"To":             "<owner@example.com>",
		"Message-Id":     "<" + m.ID + "@example.com>",
		"Date":           made.Format(time.RFC1123Z),
		"Auto-Submitted": "auto-generated",
		"Content-Type":   "text/plain; charset=UTF-8",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(header.Get("Subject"))
	if err != nil || subject != "Webhook endpoint paused in Büro 東京 (live)" || subject != m.Subject {
		t.Errorf("the subject is %q (%v)", subject, err)
	}
	if !strings.Contains(text, "Büro 東京") {
		t.Errorf("the text is %q", text)
	}
	for line := range strings.Lines(string(raw.Data)) {
		if len(line) > 80 || strings.ContainsFunc(line, func(r rune) bool { return r > '~' }) {
			t.Errorf("a line is long or not ASCII: %q", line)
		}
	}
}

func TestCustomerTextCannotInjectHeadersOrParagraphs(t *testing.T) {
	t.Parallel()
	server, d := smtp.Start(t), onSQLite(t)
	o := newOutbox(d, connectTo(t, server.URL()), time.Now)
	enqueue(t, d, o, to(reader))
	for _, end := range []string{"\r\n", "\n", "\r", "\v", "\f", "\u0085", "\u2028", "\r\n\r\n", "\r\n.\r\n", "\x00\n"} {
		evil := "x" + end + "Bcc: victim@example.com" + end + "Injected: yes" + end + "\u202e\xff"
		enqueue(t, d, o,
			mail.Message{WorkspaceID: workspace, To: reader, Data: mail.EndpointPaused{
				Workspace: evil, WorkspaceID: evil, Environment: evil, EndpointID: evil, URL: evil, Description: evil, LastError: evil}},
			mail.Message{WorkspaceID: workspace, To: reader, Data: &mail.HeldExpiring{
				Workspace: evil, WorkspaceID: evil, Environment: evil, EndpointID: evil, URL: evil}})
	}
	sendDue(t, o)
	got := server.Messages()
	if len(got) != 21 {
		t.Fatalf("%d mails were taken, want 21", len(got))
	}
	honest, _ := read(t, got[0])
	for _, m := range got {
		header, text := read(t, m)
		if !slices.Equal(m.To, []string{reader}) || len(header) != len(honest) || header.Get("Injected") != "" || header.Get("Bcc") != "" {
			t.Errorf("to %v with the headers %v", m.To, header)
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "Bcc") || strings.HasPrefix(line, "Injected") || strings.ContainsAny(line, "\r\v\f\u0085\u2028\u202e\x00") {
				t.Errorf("a line of its own: %q", line)
			}
		}
	}
}

func TestInvalidAddressIsNotSentToTheServer(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "nobody", "a@example.com\r\nRCPT TO:<victim@example.com>", "a@example.com\nBcc: victim@example.com", "a@example.com, victim@example.com"} {
		server, d := smtp.Start(t), onSQLite(t)
		o := newOutbox(d, connectTo(t, server.URL()), time.Now)
		enqueue(t, d, o, to(address))
		sendDue(t, o)
		wantStatus(t, d, mail.Failed, 1, "rejected")
		if got := server.Messages(); len(got) != 0 {
			t.Errorf("%q: a mail went to %v", address, recipients(got))
		}
	}
}

func TestEveryValidConfigurationIsAccepted(t *testing.T) {
	t.Parallel()
	accepted := 0
	for _, scheme := range []string{"smtp://", "smtps://", "http://", ""} {
		for _, user := range []string{"", "u:p@", "u:p%40%2F@", "u@", ":p@"} {
			for _, host := range []string{"mail.example.com", "127.0.0.1:2525", "[::1]", "localhost:0", ":25", ""} {
				for _, rest := range []string{"", "/", "/x", "?tls=starttls", "?tls=insecure-plaintext", "?tls=off", "?starttls=off", "#x"} {
					c := config.Default()
					c.SMTP.URL, c.Mail.From = config.SecretURL(scheme+user+host+rest), sender
					if c.SMTP.URL == "" { // no server, and no mistake
						continue
					}
					invalid := c.Validate()
					if _, err := mail.NewSMTP(string(c.SMTP.URL), c.Mail.From); invalid == nil && err != nil {
						t.Errorf("%s is accepted, and then: %v", string(c.SMTP.URL), err)
					}
					if invalid == nil {
						accepted++
					}
				}
			}
		}
	}
	if accepted == 0 {
		t.Error("no address was accepted")
	}
	if _, err := mail.NewSMTP("smtp://h", "nobody"); err == nil {
		t.Error("an invalid sender was accepted")
	}
}
