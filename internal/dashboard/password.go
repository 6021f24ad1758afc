package dashboard

import (
	"strings"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/mail"
	"turnpike/internal/people"
)

// minForgotTime is how long the response takes at least. Sending an email takes
// longer than not sending one, which would reveal who has an account.
const minForgotTime = 300 * time.Millisecond

type forgotData struct{ Mails bool }

func forgotPage(req *request) (*view, error) {
	return &view{template: "forgot", title: "Forgot your password?", data: forgotData{Mails: req.s.Facts().MailServer != ""}}, nil
}

// forgot emails a link if someone has the address. The response is always the same.
func forgot(req *request) (*view, error) {
	if req.s.Facts().MailServer == "" {
		return nil, fault.New(fault.InvalidState, "This server does not send email.")
	}
	email := req.form("email")
	if email == "" {
		return nil, fault.Missing("email", "Enter your email address.")
	}
	if err := req.limitAnonymous(); err != nil {
		return nil, err
	}
	ready := time.NewTimer(minForgotTime)
	defer ready.Stop()
	err := req.write(func(tx *db.Tx) error {
		link, err := req.s.People.RequestPasswordReset(req.Context(), tx, email, req.browser())
		if err != nil || link == nil {
			return err
		}
		return req.s.Outbox.Enqueue(req.Context(), tx, mail.Message{WorkspaceID: link.WorkspaceID, To: link.Person.Email,
			Data: mail.PasswordReset{Email: link.Person.Email, IP: req.IP.String(), URL: link.URL(req.s.PublicURL), ExpiresAt: *link.ExpiresAt}})
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-ready.C:
	case <-req.Context().Done():
	}
	return req.redirect("/dashboard/forgot", flash{Notice: "If an account has this address, a link is on its way. It works for one hour. " +
		"If nothing arrives, check your spam folder or try again in five minutes."})
}

type passwordData struct {
	Email   string
	Removes string // other sign-in methods that end with the old password, or empty
	App     bool   // the authenticator app stays
}

// methodNames describes the sign-in methods that a new password removes.
func methodNames(ways people.OtherCredentials) string {
	var names []string
	if ways.Passkeys > 0 {
		names = append(names, "your passkeys")
	}
	if ways.Identities > 0 {
		names = append(names, "the link to your account at the sign-in provider")
	}
	return strings.Join(names, " and ")
}

func passwordPage(req *request) (*view, error) {
	person, err := req.s.People.FindPasswordLink(req.Context(), req.s.DB, req.query("token"))
	if err != nil {
		return nil, err
	}
	factor, err := req.s.People.GetSecondFactor(req.Context(), req.s.DB, person.ID)
	if err != nil {
		return nil, err
	}
	ways, err := req.s.People.OtherCredentials(req.Context(), req.s.DB, person.ID)
	if err != nil {
		return nil, err
	}
	d := passwordData{Email: person.Email, Removes: methodNames(ways), App: factor.Enabled}
	return &view{template: "password", title: "Choose a password", data: d}, nil
}

func resetPassword(req *request) (*view, error) {
	removed, err := req.s.People.ResetPassword(req.Context(), req.query("token"), req.R.PostFormValue("password"), req.browser())
	if err != nil {
		return nil, err
	}
	// The session here is by the old password, or of another person.
	if err := req.signOut(); err != nil {
		return nil, err
	}
	notice := "Password set. You are signed out everywhere. Sign in with the new password."
	if names := methodNames(removed); names != "" {
		notice += " This removed " + names + ". Add them again under Your account."
	}
	return req.redirect("/dashboard/login", flash{Notice: notice})
}
