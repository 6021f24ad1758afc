package dashboard

import (
	"net/url"

	"turnpike/internal/accounts"
	"turnpike/internal/people"
)

type invitationData struct {
	Invitation *people.Invitation
	Workspace  string // its name
	By         string // who invited the person
	SignedInAs string // empty if not signed in
	Back       string // this page, for signing in as someone else first
}

// invitationPage is the page of an invitation's link. People with an account sign in
// first.
func invitationPage(req *request) (*view, error) {
	i, hasAccount, err := req.s.People.FindInvitation(req.Context(), req.s.DB, req.query("token"))
	if err != nil {
		return nil, err
	}
	if req.session == nil && hasAccount {
		return req.redirect("/dashboard/login?next="+url.QueryEscape(req.R.URL.RequestURI()), flash{Notice: "Sign in as " + i.Email + " to accept the invitation. " +
			"If you never chose a password for it, someone else may have: choose a new one with Forgot your password first."})
	}
	d := invitationData{Invitation: i, Back: req.R.URL.RequestURI()}
	if req.session != nil {
		d.SignedInAs = req.session.Person.Email
	}
	w, err := accounts.GetWorkspace(req.Context(), req.s.DB, i.WorkspaceID)
	if err != nil {
		return nil, err
	}
	names, err := req.peopleNames(i.InvitedBy)
	d.Workspace, d.By = w.Name, actorName(i.InvitedBy, names, nil)
	return &view{template: "invitation", title: "Join " + w.Name, data: d}, err
}

func acceptInvitation(req *request) (*view, error) {
	token := req.query("token")
	i, _, err := req.s.People.FindInvitation(req.Context(), req.s.DB, token)
	if err != nil {
		return nil, err
	}
	joined := flash{Notice: "Welcome. You start in test mode, where nothing costs credits."}
	place := "/dashboard/w/" + i.WorkspaceID + "/" + string(accounts.Test) + "/"
	if req.session != nil {
		renewed, err := req.s.People.JoinWorkspace(req.Context(), req.session, token, req.browser())
		if err != nil {
			return nil, err
		}
		req.setSession(renewed)
		return req.redirect(place, joined)
	}
	in, err := req.s.People.AcceptInvitation(req.Context(), token, people.NewAccount{Name: req.form("name"), Password: req.R.PostFormValue("password")}, req.browser())
	if err != nil {
		return nil, err
	}
	return req.finishSignIn(in, place, joined)
}
