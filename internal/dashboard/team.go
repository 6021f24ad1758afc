package dashboard

import (
	"slices"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/mail"
	"turnpike/internal/people"
)

type teamData struct {
	Now         time.Time
	Roles       []accounts.Role // that can be invited
	Mails       bool            // whether there is a mail server
	Members     []memberRow
	MorePeople  pager
	Invitations []invitationRow
	MoreInvited pager
	Link        string // of an invitation, right after it was made
	LinkFor     string
}

// memberRow is a member, with what the person who looks may do to them.
type memberRow struct {
	*teamMember
	Me      bool
	Choices []accounts.Role // that they can be given, theirs included
	Remove  bool
}

// invitationRow is an invitation, with what became of it.
type invitationRow struct {
	*people.Invitation
	State  string
	By     string
	Manage bool // whether the person who looks may revoke it and send it again
}

// teamPage shows who is in the workspace, and to those who manage it also who is
// invited. Paging goes by the ids, which say of which list they are.
func teamPage(v *visit) (*view, error) {
	d := teamData{Now: v.now(), Roles: v.rolesFor(""), Mails: v.s.Outbox.Sends()}
	page := v.page(ids.User)
	members, more, err := teamMembers(v.ctx(), v.s.DB, v.workspace.ID, page)
	if err != nil {
		return nil, err
	}
	d.MorePeople = v.pager(page, more, func() string { return members[len(members)-1].ID })
	for _, m := range members {
		me := m.ID == v.session.UserID
		d.Members = append(d.Members, memberRow{teamMember: m, Me: me, Choices: v.rolesFor(m.Role),
			Remove: !me && access.MayChangeRole(v.role, m.Role, "")})
	}
	if access.ManagesMembers(v.role) {
		if err := v.addInvitations(&d); err != nil {
			return nil, err
		}
	}
	return &view{template: "team", title: "Team", data: d}, nil
}

// rolesFor are the roles that the person may give to somebody who has one, or
// to a newcomer.
func (v *visit) rolesFor(from accounts.Role) []accounts.Role {
	return slices.DeleteFunc(slices.Clone(accounts.Roles), func(to accounts.Role) bool { return !access.MayChangeRole(v.role, from, to) })
}

func (v *visit) addInvitations(d *teamData) error {
	page := v.page(people.InvitationID)
	list, more, err := v.s.People.Invitations(v.ctx(), v.s.DB, v.workspace.ID, page)
	if err != nil {
		return err
	}
	d.MoreInvited = v.pager(page, more, func() string { return list[len(list)-1].ID })
	names := map[string]string{}
	for _, i := range list {
		if _, known := names[i.InvitedBy]; !known {
			if names[i.InvitedBy], err = v.nameOf(i.InvitedBy); err != nil {
				return err
			}
		}
		d.Invitations = append(d.Invitations, invitationRow{Invitation: i, State: i.Status(v.now()), By: names[i.InvitedBy], Manage: access.MayChangeRole(v.role, i.Role, "")})
		if link := v.shownSecret(i.ID); link != "" {
			d.Link, d.LinkFor = link, i.Email
		}
	}
	return nil
}

func invite(v *visit) (*view, error) {
	i := &people.Invitation{WorkspaceID: v.workspace.ID, Email: v.form("email"), Role: accounts.Role(v.form("role"))}
	var link *people.Link
	err := v.write(func(tx *db.Tx) (err error) {
		if link, err = v.s.People.Invite(v.ctx(), tx, v.session.Caller(v.browser()), i); err != nil {
			return err
		}
		return v.mailInvitation(tx, i, link)
	})
	if err != nil {
		return nil, err
	}
	v.invited(i, link)
	return nil, nil
}

func inviteAgain(v *visit) (*view, error) {
	id, err := v.pathID(people.InvitationID, "invitation")
	if err != nil {
		return nil, err
	}
	var i *people.Invitation
	var link *people.Link
	err = v.write(func(tx *db.Tx) (err error) {
		if i, link, err = v.s.People.InviteAgain(v.ctx(), tx, v.session.Caller(v.browser()), v.workspace.ID, id); err != nil {
			return err
		}
		return v.mailInvitation(tx, i, link)
	})
	if err != nil {
		return nil, err
	}
	v.invited(i, link)
	return nil, nil
}

// mailInvitation writes the mail, in the transaction of the invitation. Without
// a mail server there is none: it would only keep the link where nobody needs it.
func (v *visit) mailInvitation(tx *db.Tx, i *people.Invitation, link *people.Link) error {
	if !v.s.Outbox.Sends() {
		return nil
	}
	if err := v.s.People.CheckInvitationMail(v.ctx(), tx, i); err != nil {
		return err
	}
	return v.s.Outbox.Enqueue(v.ctx(), tx, mail.Message{WorkspaceID: i.WorkspaceID, To: i.Email, Data: mail.Invitation{Workspace: v.workspace.Name,
		InvitedBy: v.called(), Role: string(i.Role), URL: link.URL(v.s.PublicURL), ExpiresAt: i.ExpiresAt}})
}

// called is how the person is known to others.
func (v *visit) called() string {
	if p := v.session.Person; p.Name != "" {
		return p.Name + " (" + p.Email + ")"
	}
	return v.session.Person.Email
}

// invited leads back. Where no mail is sent the link is shown to who has invited.
func (v *visit) invited(i *people.Invitation, link *people.Link) {
	if v.s.Outbox.Sends() {
		v.redirect(v.to("team"), flash{Notice: "The invitation to " + i.Email + " is on its way."})
		return
	}
	v.redirect(v.to("team"), flash{Notice: i.Email + " is invited.", Secret: link.URL(v.s.PublicURL), Of: i.ID})
}

func revokeInvitation(v *visit) (*view, error) {
	id, err := v.pathID(people.InvitationID, "invitation")
	if err != nil {
		return nil, err
	}
	err = v.write(func(tx *db.Tx) error {
		return v.s.People.RevokeInvitation(v.ctx(), tx, v.session.Caller(v.browser()), v.workspace.ID, id)
	})
	if err != nil {
		return nil, err
	}
	v.redirect(v.to("team"), flash{Notice: "The invitation is revoked. Its link does not work any more."})
	return nil, nil
}

func changeRole(v *visit) (*view, error) {
	id, err := v.pathID(ids.User, "member")
	if err != nil {
		return nil, err
	}
	to := accounts.Role(v.form("new_role"))
	err = v.write(func(tx *db.Tx) error {
		return v.s.People.ChangeRole(v.ctx(), tx, v.session.Caller(v.browser()), v.workspace.ID, id, to)
	})
	if err != nil {
		return nil, err
	}
	if id == v.session.UserID && to != v.role {
		v.thrownOut("You are now " + string(to) + " of " + v.workspace.Name + ". Sign in again.")
		return nil, nil
	}
	v.redirect(v.to("team"), flash{Notice: "The role is now " + string(to) + "."})
	return nil, nil
}

// thrownOut leads to the sign-in whoever's session has just ended by what they did.
func (v *visit) thrownOut(notice string) {
	v.setCookie(sessionCookie, "", 0)
	v.session = nil
	v.redirect("/dashboard/login", flash{Notice: notice})
}

func removeMember(v *visit) (*view, error) {
	id, err := v.pathID(ids.User, "member")
	if err != nil {
		return nil, err
	}
	if id == v.session.UserID {
		return nil, fault.New(fault.InvalidState, "that is you; to go yourself, leave the workspace")
	}
	err = v.write(func(tx *db.Tx) error {
		return v.s.People.RemoveMember(v.ctx(), tx, v.session.Caller(v.browser()), v.workspace.ID, id)
	})
	if err != nil {
		return nil, err
	}
	v.redirect(v.to("team"), flash{Notice: "They are removed and signed out. Keys that they made work on."})
	return nil, nil
}

// leave takes the person themselves out, which ends their session.
func leave(v *visit) (*view, error) {
	err := v.write(func(tx *db.Tx) error {
		return v.s.People.RemoveMember(v.ctx(), tx, v.session.Caller(v.browser()), v.workspace.ID, v.session.UserID)
	})
	if err != nil {
		return nil, err
	}
	v.thrownOut("You have left " + v.workspace.Name + " and are signed out.")
	return nil, nil
}
