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

// Someone else may have created the account with that address.
func TestUserWithoutWorkspaceGetsALinkAndLosesTheOldPassword(t *testing.T) {
	t.Parallel()
	l := dataDirectory(t)
	s, err := app.OpenStore(t.Context(), l.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	service := people.New(s.DB, s.Ring, people.Options{})
	w := &accounts.Workspace{Name: "acme"}
	invitation := &people.Invitation{Email: "bob@example.com", Role: accounts.Viewer}
	var link *people.Link
	err = s.DB.Write(t.Context(), func(tx *db.Tx) error {
		if err := accounts.CreateWorkspace(t.Context(), tx, w, time.Now()); err != nil {
			return err
		}
		invitation.WorkspaceID = w.ID
		link, err = service.Invite(t.Context(), tx, people.Operator(), invitation)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	const old = "the password of mallory"
	in, err := service.AcceptInvitation(t.Context(), link.Token, people.NewAccount{Name: "Mallory", Password: old}, people.Browser{})
	if err != nil {
		t.Fatal(err)
	}
	err = s.DB.Write(t.Context(), func(tx *db.Tx) error {
		return service.RemoveMember(t.Context(), tx, people.Operator(), w.ID, in.Person.ID)
	})
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut strings.Builder
	code := Main(strings.Fields("users create --email bob@example.com --workspace acme --data "+l.Data), strings.NewReader(""), &out, &errOut)
	if code != 0 || !strings.Contains(out.String(), "Link for bob@example.com to choose a password, once") {
		t.Fatalf("exit %d, %s%s", code, &out, &errOut)
	}
	if in, err := service.Login(t.Context(), "bob@example.com", old, "", people.Browser{}); err == nil {
		t.Errorf("the old password still works: %+v", in)
	}
}
