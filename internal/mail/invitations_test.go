package mail_test

import (
	"strings"
	"testing"
	"time"

	"turnpike/internal/mail"
)

func TestInvitationsAndResetsHaveTheirLinkAndExpiry(t *testing.T) {
	t.Parallel()
	const link = "https://api.example.com/dashboard/invitation?token=abc_-1"
	until := time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC)
	for _, data := range []mail.Data{
		mail.Invitation{Workspace: "Acme", InvitedBy: "Ada\nBcc: x@example.com", Role: "developer", URL: link, ExpiresAt: until},
		mail.PasswordReset{Email: "ada@example.com", IP: "192.0.2.1", URL: link, ExpiresAt: until},
	} {
		subject, text := rendered(t, data)
		if strings.Contains(subject, "token=") {
			t.Errorf("the subject, which is logged, holds the secret: %q", subject)
		}
		for _, want := range []string{"\n   " + link + "\n", "4 March 2026, 05:06 UTC", "https://api.example.com"} {
			if !strings.Contains(text, want) {
				t.Errorf("the text lacks %q:\n%s", want, text)
			}
		}
		if strings.Contains(text, "\nBcc") || strings.Contains(text, "\n\n\n") {
			t.Errorf("the text contains an injected line:\n%s", text)
		}
	}
	if _, text := rendered(t, mail.PasswordReset{Email: "ada@example.com", URL: link, ExpiresAt: until}); strings.Contains(text, "Asked for") {
		t.Errorf("the text contains unknown values:\n%s", text)
	}
}
