package dashboard

import (
	"strings"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/mail"
	"turnpike/internal/people"
)

// forgotTakes is how long the answer to a forgotten password takes at least.
// Writing a mail takes longer than not writing one, and must not tell who has
// an account.
const forgotTakes = 300 * time.Millisecond

type forgotData struct{ Mails bool }

func forgotPage(v *visit) (*view, error) {
	if err := v.requirePrivate(); err != nil {
		return nil, err
	}
	return &view{template: "forgot", title: "Forgot your password?", data: forgotData{Mails: v.s.Facts.MailServer != ""}}, nil
}

// forgot mails a link to whoever has the address, and says the same to everybody.
func forgot(v *visit) (*view, error) {
	if err := v.requirePrivate(); err != nil {
		return nil, err
	}
	if v.s.Facts.MailServer == "" {
		return nil, fault.New(fault.InvalidState, "this server sends no mail")
	}
	email := v.form("email")
	if email == "" {
		return nil, fault.Missing("email", "type your e-mail address")
	}
	if err := v.greetStranger(); err != nil {
		return nil, err
	}
	ready := time.NewTimer(forgotTakes)
	defer ready.Stop()
	err := v.write(func(tx *db.Tx) error {
		link, err := v.s.People.RequestPasswordReset(v.ctx(), tx, email, v.browser())
		if err != nil || link == nil {
			return err
		}
		return v.s.Outbox.Enqueue(v.ctx(), tx, mail.Message{WorkspaceID: link.WorkspaceID, To: link.Person.Email,
			Data: mail.PasswordReset{Email: link.Person.Email, IP: v.ip.String(), URL: link.URL(v.s.PublicURL), ExpiresAt: *link.ExpiresAt}})
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-ready.C:
	case <-v.ctx().Done():
	}
	v.redirect("/dashboard/forgot", flash{Notice: "If somebody here has this address, a link is on its way to it. It works for one hour. " +
		"Nothing came? Look among the unwanted mails, or ask again in five minutes."})
	return nil, nil
}

type passwordData struct {
	Email   string
	Removes string // the other ways to sign in, which end with the old password; or empty
	App     bool   // there is an authenticator app, which stays
}

// named is how people call the ways to sign in that a new password removes.
func named(ways people.OtherWays) string {
	var names []string
	if ways.Passkeys > 0 {
		names = append(names, "your passkeys")
	}
	if ways.Identities > 0 {
		names = append(names, "the link to your account at the sign-in provider")
	}
	return strings.Join(names, " and ")
}

// passwordPage is where a link to a new password leads.
func passwordPage(v *visit) (*view, error) {
	if err := v.requirePrivate(); err != nil {
		return nil, err
	}
	person, err := v.s.People.FindPasswordLink(v.ctx(), v.s.DB, v.query("token"))
	if err != nil {
		return nil, err
	}
	factor, err := v.s.People.GetSecondFactor(v.ctx(), v.s.DB, person.ID)
	if err != nil {
		return nil, err
	}
	ways, err := v.s.People.OtherWays(v.ctx(), v.s.DB, person.ID)
	if err != nil {
		return nil, err
	}
	d := passwordData{Email: person.Email, Removes: named(ways), App: factor.Enabled}
	return &view{template: "password", title: "Choose a password", data: d}, nil
}

func resetPassword(v *visit) (*view, error) {
	if err := v.requirePrivate(); err != nil {
		return nil, err
	}
	removed, err := v.s.People.ResetPassword(v.ctx(), v.query("token"), v.r.PostFormValue("password"), v.browser())
	if err != nil {
		return nil, err
	}
	// Whoever was signed in here was so by the old password, or is somebody else.
	if err := v.signOut(); err != nil {
		return nil, err
	}
	notice := "Your password is set, and you are signed out everywhere. Sign in with it."
	if names := named(removed); names != "" {
		notice += " This has removed " + names + ". Add what is yours again under Your account."
	}
	v.redirect("/dashboard/login", flash{Notice: notice})
	return nil, nil
}
