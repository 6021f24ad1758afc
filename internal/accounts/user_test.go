package accounts

import (
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

func TestWorkspacesOfReturnsOnlyMemberships(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var person string
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			for name, members := range map[string][]string{"first": {"ada@example.com"}, "second": {"ada@example.com", "ben@example.com"}, "third": {"ben@example.com"}} {
				w := &Workspace{Name: name}
				if err := CreateWorkspace(t.Context(), tx, w, time.Now()); err != nil {
					return err
				}
				for _, email := range members {
					u := &User{Email: email, WorkspaceID: w.ID, Role: Viewer}
					if err := CreateUser(t.Context(), tx, u, time.Now()); err != nil {
						return err
					}
					if email == "ada@example.com" {
						person = u.ID
					}
				}
			}
			lonely := &Workspace{Name: "nobody's"}
			return CreateWorkspace(t.Context(), tx, lonely, time.Now())
		})
		if err != nil {
			t.Fatal(err)
		}
		list, err := WorkspacesOf(t.Context(), d, person)
		if err != nil || len(list) != 2 || list[0].ID >= list[1].ID || list[0].Name == "third" || list[1].Name == "third" {
			t.Errorf("they are in %+v (%v)", list, err)
		}
		if list, err := WorkspacesOf(t.Context(), d, "usr_nobody"); err != nil || len(list) != 0 {
			t.Errorf("somebody else is in %+v (%v)", list, err)
		}
	})
}

func TestEmailsAreFoldedInASCIIOnly(t *testing.T) {
	t.Parallel()
	for email, want := range map[string]string{
		" Kate@Example.COM ":          "kate@example.com",
		"\u212Aate@example.com":       "\u212Aate@example.com", // the Kelvin sign
		"kate@\u212Aelvin.example":    "kate@\u212Aelvin.example",
		"\u0130da@example.com":        "\u0130da@example.com", // I with a dot
		"\u00dcnal@example.com":       "\u00dcnal@example.com",
		"\uff2bate@example.com":       "\uff2bate@example.com", // full-width
		"o'brien+tag@sub.example.com": "o'brien+tag@sub.example.com",
	} {
		if got := NormalizeEmail(email); got != want {
			t.Errorf("NormalizeEmail(%q) is %q, want %q", email, got, want)
		}
	}
}
