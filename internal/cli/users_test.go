package cli

import (
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/app"
	"turnpike/internal/db"
	"turnpike/internal/people"
)

// TestUserOfNoWorkspaceGetsALinkAndKeepsNoPassword: whoever made the account by
// that address may be somebody else.
func TestUserOfNoWorkspaceGetsALinkAndKeepsNoPassword(t *testing.T) {
	t.Parallel()
	l := dataFolder(t)
	s, err := app.OpenStore(t.Context(), l.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	folk := people.New(s.DB, s.Ring, people.Options{})
	w := &accounts.Workspace{Name: "acme"}
	invitation := &people.Invitation{Email: "bob@example.com", Role: accounts.Viewer}
	var link *people.Link
	err = s.DB.Write(t.Context(), func(tx *db.Tx) error {
		if err := accounts.CreateWorkspace(t.Context(), tx, w, time.Now()); err != nil {
			return err
		}
		invitation.WorkspaceID = w.ID
		link, err = folk.Invite(t.Context(), tx, people.Operator(), invitation)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	const old = "the password of mallory"
	in, err := folk.AcceptInvitation(t.Context(), link.Token, people.Newcomer{Name: "Mallory", Password: old}, people.Browser{})
	if err != nil {
		t.Fatal(err)
	}
	err = s.DB.Write(t.Context(), func(tx *db.Tx) error {
		return folk.RemoveMember(t.Context(), tx, people.Operator(), w.ID, in.Person.ID)
	})
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut strings.Builder
	code := Main(strings.Fields("users create --email bob@example.com --workspace acme --data "+l.Data), strings.NewReader(""), &out, &errOut)
	if code != 0 || !strings.Contains(out.String(), "bob@example.com chooses a password here, once") {
		t.Fatalf("exit %d, %s%s", code, &out, &errOut)
	}
	if in, err := folk.Login(t.Context(), "bob@example.com", old, "", people.Browser{}); err == nil {
		t.Errorf("the old password still works: %+v", in)
	}
}
