package mail_test

import (
	"strings"
	"testing"
	"time"

	"turnpike/internal/mail"
	"turnpike/test/fakes/smtp"
)

// rendered is the text of a mail, and its subject.
func rendered(t *testing.T, data mail.Data) (subject, text string) {
	t.Helper()
	d, server := onSQLite(t), smtp.Start(t)
	o := newOutbox(d, connectTo(t, server.URL()), time.Now)
	enqueue(t, d, o, mail.Message{WorkspaceID: workspace, To: reader, Data: data})
	sendDue(t, o)
	_, text = read(t, server.Messages()[0])
	return wantStatus(t, d, mail.Sent, 1, "").Subject, text
}

func TestPausedEmailSaysWhatHappenedAndWhatToDo(t *testing.T) {
	t.Parallel()
	subject, text := rendered(t, paused())
	if subject != "Webhook endpoint paused in Acme (live)" {
		t.Errorf("the subject is %q", subject)
	}
	for _, want := range []string{"Acme (live)", "wh_1", "https://hooks.example.com/in", "Orders", "503 Service Unavailable", "6 delivery attempts",
		"4 March 2026, 05:06 UTC", "No event is lost", "30 days", "POST https://api.example.com/v1/webhooks/wh_1/resume\n",
		"https://api.example.com/dashboard/w/ws_1/live/webhooks/wh_1\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	bare := paused()
	bare.Description = ""
	if _, text := rendered(t, bare); strings.Contains(text, "Description") || strings.Contains(text, "\n\n\n") {
		t.Errorf("the text contains unknown values:\n%s", text)
	}
}

func TestHeldEmailSaysHowManyDeliveriesExpireAndWhen(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 23, 30, 0, 0, time.FixedZone("", -3600))
	data := mail.HeldExpiring{Workspace: "Acme", WorkspaceID: "ws_1", Environment: "test", EndpointID: "wh_1", URL: "https://hooks.example.com/in",
		Held: 1234, OldestAt: at.AddDate(0, 0, -23), ExpiresAt: at.AddDate(0, 0, 7)}
	subject, text := rendered(t, data)
	if subject != "Held webhook events will be discarded from 12 March 2026: Acme (test)" {
		t.Errorf("the subject is %q", subject)
	}
	for _, want := range []string{"1234 deliveries, the oldest since 10 February 2026, 00:30 UTC", "from 12 March 2026, 00:30 UTC",
		"https://hooks.example.com/in", "https://api.example.com/dashboard/w/ws_1/test/webhooks/wh_1\n", "POST https://api.example.com/v1/webhooks/wh_1/resume\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	data.Held = 1
	if _, text := rendered(t, data); !strings.Contains(text, "1 delivery,") {
		t.Errorf("one is not one:\n%s", text)
	}
}

func TestLeakEmailSaysWhichKeysWereRevoked(t *testing.T) {
	t.Parallel()
	data := mail.KeyRevoked{Workspace: "Acme", Environment: "live", KeyID: "key_1", KeyName: "Shop", KeyHint: "tp_live_…x7Qm", Found: "by turnpike scan",
		URL: "https://git.example.com/app/.env", DetectedAt: time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC)}
	subject, text := rendered(t, data)
	if subject != "Leaked API key revoked: tp_live_…x7Qm in Acme (live)" {
		t.Errorf("the subject is %q", subject)
	}
	for _, want := range []string{"Acme (live)", "tp_live_…x7Qm (Shop, key_1)", "4 March 2026, 05:06 UTC, by turnpike scan", "https://git.example.com/app/.env\n",
		"POST https://api.example.com/v1/keys\n", "GET https://api.example.com/v1/audit?key=key_1\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	data.URL, data.Previous = "", true
	subject, text = rendered(t, data)
	if subject != "Leaked API key secret disabled: tp_live_…x7Qm in Acme (live)" || strings.Contains(text, "Where:") ||
		strings.Contains(text, "/v1/keys") || !strings.Contains(text, "new secret still works") || strings.Contains(text, "\n\n\n") {
		t.Errorf("of an old secret it says %q\n%s", subject, text)
	}
}

func TestSeenEmailSaysThatTheKeyStillWorks(t *testing.T) {
	t.Parallel()
	subject, text := rendered(t, mail.KeySeen{Workspace: "Acme", Environment: "live", KeyID: "key_1", KeyName: "Shop", KeyHint: "tp_live_…x7Qm",
		DetectedAt: time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC)})
	if subject != "API key seen in a request: tp_live_…x7Qm in Acme (live)" {
		t.Errorf("the subject is %q", subject)
	}
	for _, want := range []string{"The key still works", "Acme (live)", "tp_live_…x7Qm (Shop, key_1)", "4 March 2026, 05:06 UTC",
		"POST https://api.example.com/v1/keys/key_1/rotate\n", "GET https://api.example.com/v1/audit?key=key_1\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
}

func TestLongTextsAreTruncated(t *testing.T) {
	t.Parallel()
	data := paused()
	data.Workspace, data.LastError, data.Description = strings.Repeat("ü", 500), strings.Repeat("e", 10_000), strings.Repeat("d", 10_000)
	subject, text := rendered(t, data)
	if n := len([]rune(subject)); n != 200 || !strings.HasSuffix(subject, "…") {
		t.Errorf("the subject has %d characters", n)
	}
	if strings.Contains(text, strings.Repeat("e", 301)) || len(text) > 10_000 {
		t.Errorf("the text has %d bytes", len(text))
	}
}

func TestUnbilledEmailSaysHowToServeRequestsAgain(t *testing.T) {
	t.Parallel()
	subject, text := rendered(t, mail.UnbilledLimit{Workspace: "Acme", WorkspaceID: "ws_1", Unbilled: "512", Limit: "500", ResetsAt: time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)})
	if subject != "Requests of Acme are stopped: too many unbilled credits" {
		t.Errorf("the subject is %q", subject)
	}
	for _, want := range []string{"Acme (ws_1)", "512 credits", "500 credits", "1 April 2026, 00:00 UTC", "turnpike workspaces unbilled ws_1 --reset\n", "ignore_unbilled"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
}
