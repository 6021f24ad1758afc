package dashboard

import (
	"slices"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/mail"
	"turnpike/internal/people"
	"turnpike/internal/web"
)

type teamData struct {
	Roles       []accounts.Role // choices for invitations
	Mails       bool            // a mail server is configured
	Members     []memberRow
	OnlyOwner   bool // the viewer, who can't leave
	Grants      bool // the viewer decides who reads the content of requests
	MorePeople  pager
	Invitations []invitationRow
	MoreInvited pager
	Link        string // of an invitation that was just created
	LinkFor     string
}

// memberRow is a member, with what the viewer may change.
type memberRow struct {
	*teamMember
	Me      bool
	Choices []accounts.Role // possible roles, with the current one
	Remove  bool
}

type invitationRow struct {
	*people.Invitation
	State  string
	By     string
	Manage bool // the viewer may revoke or resend it
}

// membersPerPage is lower than for other lists, because each row has three forms.
const membersPerPage = 40

// teamPage shows the members, and to owners and admins the invitations. The IDs'
// prefixes tell which of the two lists a page belongs to.
func teamPage(req *request) (*view, error) {
	d := teamData{Roles: req.rolesFor(""), Mails: req.s.Outbox.Sends(), Grants: req.role == accounts.Owner}
	page := req.page(ids.User)
	page.Limit = membersPerPage
	found, err := teamMembers(req.Context(), req.s.DB, req.workspace.ID, page)
	if err != nil {
		return nil, err
	}
	if req.role == accounts.Owner {
		owners, err := countOwners(req.Context(), req.s.DB, req.workspace.ID)
		if err != nil {
			return nil, err
		}
		d.OnlyOwner = owners == 1
	}
	d.MorePeople = req.pager(page, found.More, func() string { return found.Cursor })
	for _, m := range found.Rows {
		me := m.ID == req.session.UserID
		choices := req.rolesFor(m.Role)
		if me && d.OnlyOwner {
			choices = nil
		}
		d.Members = append(d.Members, memberRow{teamMember: m, Me: me, Choices: choices,
			Remove: !me && access.MayChangeRole(req.role, m.Role, "")})
	}
	if access.ManagesMembers(req.role) {
		if err := req.addInvitations(&d); err != nil {
			return nil, err
		}
	}
	return &view{template: "team", title: "Team", data: d}, nil
}

// rolesFor returns the roles that the person may give to a member with a role, or to
// someone new.
func (req *request) rolesFor(from accounts.Role) []accounts.Role {
	return slices.DeleteFunc(slices.Clone(accounts.Roles), func(to accounts.Role) bool { return !access.MayChangeRole(req.role, from, to) })
}

func (req *request) addInvitations(d *teamData) error {
	page := req.page(people.InvitationID)
	found, err := req.s.People.Invitations(req.Context(), req.s.DB, req.workspace.ID, page)
	if err != nil {
		return err
	}
	d.MoreInvited = req.pager(page, found.More, func() string { return found.Cursor })
	names, err := req.peopleNames(web.Map(found.Rows, func(i *people.Invitation) string { return i.InvitedBy })...)
	for _, i := range found.Rows {
		d.Invitations = append(d.Invitations, invitationRow{Invitation: i, State: i.Status(req.now()), By: actorName(i.InvitedBy, names, nil),
			Manage: access.MayChangeRole(req.role, i.Role, "")})
		if link := req.shownSecret(i.ID); link != "" {
			d.Link, d.LinkFor = link, i.Email
		}
	}
	return err
}

func invite(req *request) (*view, error) {
	i := &people.Invitation{WorkspaceID: req.workspace.ID, Email: req.form("email"), Role: accounts.Role(req.form("role"))}
	return req.sendInvitation(func(tx *db.Tx) (*people.Invitation, *people.Link, error) {
		link, err := req.s.People.Invite(req.Context(), tx, req.session.Caller(req.browser()), i)
		return i, link, err
	})
}

func inviteAgain(req *request) (*view, error) {
	return req.sendInvitation(func(tx *db.Tx) (*people.Invitation, *people.Link, error) {
		return req.s.People.ResendInvitation(req.Context(), tx, req.session.Caller(req.browser()), req.workspace.ID, req.id())
	})
}

// sendInvitation creates an invitation and emails its link. Without a mail server, the
// team page shows the link.
func (req *request) sendInvitation(create func(tx *db.Tx) (*people.Invitation, *people.Link, error)) (*view, error) {
	var message flash
	err := req.write(func(tx *db.Tx) error {
		i, link, err := create(tx)
		if err != nil {
			return err
		}
		if !req.s.Outbox.Sends() {
			message = flash{Notice: "Invited " + i.Email + ".", Secret: link.URL(req.s.PublicURL), Of: i.ID}
			return nil
		}
		if err := req.s.People.CheckInvitationEmail(req.Context(), tx, i); err != nil {
			return err
		}
		message.Notice = "Invitation sent to " + i.Email + "."
		return req.s.Outbox.Enqueue(req.Context(), tx, mail.Message{WorkspaceID: i.WorkspaceID, To: i.Email, Data: mail.Invitation{Workspace: req.workspace.Name,
			InvitedBy: req.displayName(), Role: string(i.Role), URL: link.URL(req.s.PublicURL), ExpiresAt: i.ExpiresAt}})
	})
	if err != nil {
		return nil, err
	}
	return req.redirect(req.to("team"), message)
}

// displayName returns the person's name for others.
func (req *request) displayName() string {
	if p := req.session.Person; p.Name != "" {
		return p.Name + " (" + p.Email + ")"
	}
	return req.session.Person.Email
}

func revokeInvitation(req *request) (*view, error) {
	return req.save(req.to("team"), "Invitation revoked. Its link no longer works.", func(tx *db.Tx) error {
		return req.s.People.RevokeInvitation(req.Context(), tx, req.session.Caller(req.browser()), req.workspace.ID, req.id())
	})
}

// allowContent lets a member read the content of requests, or no longer.
func allowContent(req *request) (*view, error) {
	allowed, notice := req.form("content_access") != "", "Content access removed."
	if allowed {
		notice = "Content access granted."
	}
	return req.save(req.to("team"), notice, func(tx *db.Tx) error {
		return req.s.People.AllowContent(req.Context(), tx, req.session.Caller(req.browser()), people.Member{WorkspaceID: req.workspace.ID, UserID: req.id()}, allowed)
	})
}

func changeRole(req *request) (*view, error) {
	id := req.id()
	to := accounts.Role(req.form("new_role"))
	err := req.write(func(tx *db.Tx) error {
		return req.s.People.ChangeRole(req.Context(), tx, req.session.Caller(req.browser()), people.Member{WorkspaceID: req.workspace.ID, UserID: id}, to)
	})
	if err != nil {
		return nil, err
	}
	if id == req.session.UserID && to != req.role {
		return req.endSession("You are now " + string(to) + " of " + req.workspace.Name + ". Sign in again.")
	}
	return req.redirect(req.to("team"), flash{Notice: "Role changed to " + string(to) + "."})
}

// endSession redirects to the sign-in page after an action that ended the session.
func (req *request) endSession(notice string) (*view, error) {
	req.setCookie(sessionCookie, "", 0)
	req.session = nil
	return req.redirect("/dashboard/login", flash{Notice: notice})
}

func removeMember(req *request) (*view, error) {
	id := req.id()
	if id == req.session.UserID {
		return nil, fault.New(fault.InvalidState, "You cannot remove yourself. Leave the workspace instead.")
	}
	return req.save(req.to("team"), "Member removed and signed out. The keys they created still work.", func(tx *db.Tx) error {
		return req.s.People.RemoveMember(req.Context(), tx, req.session.Caller(req.browser()), req.workspace.ID, id)
	})
}

// leave removes the person themselves, which ends their session.
func leave(req *request) (*view, error) {
	err := req.write(func(tx *db.Tx) error {
		return req.s.People.RemoveMember(req.Context(), tx, req.session.Caller(req.browser()), req.workspace.ID, req.session.UserID)
	})
	if err != nil {
		return nil, err
	}
	return req.endSession("You have left " + req.workspace.Name + " and are signed out.")
}
