package dashboard

import (
	"net/url"

	"turnpike/internal/accounts"
	"turnpike/internal/fault"
	"turnpike/internal/people"
)

type invitationData struct {
	Invitation *people.Invitation
	Workspace  string // its name
	By         string // who has invited
	SignedInAs string // empty for a newcomer
	Back       string // this page, for whoever must sign in as somebody else first
}

// invitationPage is where the link of an invitation leads. Who has an account
// signs in first.
func invitationPage(v *visit) (*view, error) {
	if err := v.requirePrivate(); err != nil {
		return nil, err
	}
	i, hasAccount, err := v.s.People.FindInvitation(v.ctx(), v.s.DB, v.query("token"))
	if err != nil {
		return nil, err
	}
	if v.session == nil && hasAccount {
		v.redirect("/dashboard/login?next="+url.QueryEscape(v.r.URL.RequestURI()), flash{Notice: "Sign in as " + i.Email + " to accept the invitation. " +
			"If you have never chosen a password for it, somebody else may have: choose a new one first, by Forgot your password."})
		return nil, nil
	}
	d := invitationData{Invitation: i, Back: v.r.URL.RequestURI()}
	if v.session != nil {
		d.SignedInAs = v.session.Person.Email
	}
	w, err := accounts.GetWorkspace(v.ctx(), v.s.DB, i.WorkspaceID)
	if err != nil {
		return nil, err
	}
	d.Workspace = w.Name
	if d.By, err = v.nameOf(i.InvitedBy); err != nil {
		return nil, err
	}
	return &view{template: "invitation", title: "Join " + w.Name, data: d}, nil
}

// nameOf is how somebody is called who has done something.
func (v *visit) nameOf(actor string) (string, error) {
	person, err := v.s.People.Get(v.ctx(), v.s.DB, actor)
	if fault.Is(err, fault.NotFound) {
		return actor, nil
	}
	if err != nil {
		return "", err
	}
	if person.Name == "" {
		return person.Email, nil
	}
	return person.Name, nil
}

func acceptInvitation(v *visit) (*view, error) {
	if err := v.requirePrivate(); err != nil {
		return nil, err
	}
	token := v.query("token")
	i, _, err := v.s.People.FindInvitation(v.ctx(), v.s.DB, token)
	if err != nil {
		return nil, err
	}
	joined := flash{Notice: "Welcome. You begin in test mode, where nothing costs credits."}
	place := "/dashboard/w/" + i.WorkspaceID + "/" + string(accounts.Test) + "/"
	if v.session != nil {
		renewed, err := v.s.People.JoinByInvitation(v.ctx(), v.session, token, v.browser())
		if err != nil {
			return nil, err
		}
		v.keepSession(renewed)
		v.redirect(place, joined)
		return nil, nil
	}
	in, err := v.s.People.AcceptInvitation(v.ctx(), token, people.Newcomer{Name: v.form("name"), Password: v.r.PostFormValue("password")}, v.browser())
	if err != nil {
		return nil, err
	}
	v.signedInWith(in, place, joined)
	return nil, nil
}
