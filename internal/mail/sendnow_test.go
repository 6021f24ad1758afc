package mail_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"turnpike/internal/mail"
	"turnpike/test/fakes/smtp"
)

func TestSendNowReturnsTheServersResponse(t *testing.T) {
	t.Parallel()
	server, d := smtp.Start(t), onSQLite(t)
	client, err := mail.NewSMTP(server.URL(), "turnpike@example.com")
	if err != nil {
		t.Fatal(err)
	}
	o := newOutbox(d, client, time.Now)
	data := mail.Test{Workspace: "Acme", AskedBy: "Ada", At: time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC)}
	if err := o.SendNow(t.Context(), reader, data); err != nil || !o.Sends() {
		t.Fatal(err)
	}
	header, text := read(t, server.Wait(t, 1)[0])
	if header.Get("Subject") != "Test email from https://api.example.com" || !strings.Contains(text, "Acme") || !strings.Contains(text, "4 March 2026, 05:06 UTC, by Ada") {
		t.Errorf("the mail is %v\n%s", header, text)
	}
	server.Reject(1, 550, "nobody of that name")
	if err := o.SendNow(t.Context(), reader, data); err == nil || !strings.Contains(err.Error(), "nobody of that name") {
		t.Errorf("of a refusal it says %v", err)
	}
	server.Down()
	if err := o.SendNow(t.Context(), reader, data); err == nil {
		t.Error("of a server that is down it says nothing")
	}
	if list, err := mail.List(t.Context(), d, workspace, 10); err != nil || len(list) != 0 {
		t.Errorf("%d mails are kept: %v", len(list), err)
	}
	none := newOutbox(d, nil, time.Now)
	if err := none.SendNow(t.Context(), reader, data); !errors.Is(err, mail.ErrNoServer) || none.Sends() {
		t.Errorf("without a server it says %v", err)
	}
}
