package people_test

import (
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/people"
	"turnpike/internal/visibility"
)

// victim is the address of a person without an account.
const victim = "victim@corp.example"

// squatter is an attacker who created an account for another person's address.
// Without a mail server, the owner of a workspace sees its invitation links.
type squatter struct {
	*people.SignIn
	evil     *accounts.Workspace
	password string
	device   *authenticator
}

func (w *fixture) squat() *squatter {
	w.t.Helper()
	evil := w.workspace("evil")
	in, err := w.AcceptInvitation(w.t.Context(), w.invitedTo(evil), people.NewAccount{Name: "Mallory", Password: "the password of mallory"}, browser)
	if err != nil {
		w.t.Fatal(err)
	}
	device, _ := w.register(in.Session, "of mallory")
	return &squatter{SignIn: in, evil: evil, password: "the password of mallory", device: device}
}

// invitedTo returns the token of an invitation for the victim.
func (w *fixture) invitedTo(to *accounts.Workspace) string {
	w.t.Helper()
	var link *people.Link
	w.write(func(tx *db.Tx) (err error) {
		link, err = w.Invite(w.t.Context(), tx, people.Operator(), &people.Invitation{WorkspaceID: to.ID, Email: victim, Role: accounts.Admin})
		return err
	})
	return link.Token
}

// out checks that the squatter can't sign in in any way.
func (w *fixture) out(m *squatter) {
	w.t.Helper()
	if w.alive(m.Token) {
		w.t.Error("the session goes on")
	}
	if in, err := w.Login(w.t.Context(), victim, m.password, "", browser); !fault.Is(err, fault.Authentication) {
		w.t.Errorf("the password: %+v, %v", in, err)
	}
	if in, err := w.FinishPasskeyLogin(w.t.Context(), party, m.device.get(w.startPasskeyLogin()), "", browser); !fault.Is(err, fault.Authentication) {
		w.t.Errorf("the passkey: %+v, %v", in, err)
	}
}

// joined checks that the victim is an admin of acme and the only user of the
// account.
func (w *fixture) joined(in *people.SignIn) {
	w.t.Helper()
	if role, err := people.RoleIn(w.t.Context(), w.db, in.Person.ID, w.acme.ID); err != nil || role != accounts.Admin {
		w.t.Errorf("the victim is %q, %v", role, err)
	}
	if ways, err := w.Passkeys(w.t.Context(), w.db, in.Person.ID); err != nil || len(ways) != 0 {
		w.t.Errorf("passkeys are left: %v, %v", ways, err)
	}
	if ways, err := w.Identities(w.t.Context(), w.db, in.Person.ID); err != nil || len(ways) != 0 {
		w.t.Errorf("links to a provider are left: %v, %v", ways, err)
	}
}

func (w *fixture) operatorsLink(userID string) (link *people.Link) {
	w.t.Helper()
	w.write(func(tx *db.Tx) (err error) {
		link, err = w.NewPasswordLink(w.t.Context(), tx, userID, people.ResetLimit)
		return err
	})
	return link
}

func TestPasswordResetRemovesOtherCredentials(t *testing.T) {
	for name, link := range map[string]func(w *fixture, m *squatter) *people.Link{
		"mailed":         func(w *fixture, _ *squatter) *people.Link { return w.requestReset(victim) },
		"the operator's": func(w *fixture, m *squatter) *people.Link { return w.operatorsLink(m.Person.ID) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, w *fixture) {
				m := w.squat()
				i := newIssuer(t)
				o := provider(i)
				a := w.begin(i, o, "mallory", victim) // mallory had the address before the victim
				a.Replaced = m.Token
				linked, err := w.FinishOIDC(t.Context(), o, a, browser)
				if err != nil {
					t.Fatal(err)
				}
				m.Token = linked.Token
				if err := w.LockLinkedPerson(t.Context(), people.Identity{Issuer: i.URL}, "mallory", m.Person.ID); err != nil {
					t.Fatal(err)
				}
				w.write(func(tx *db.Tx) error {
					_, err := w.StartTOTP(t.Context(), tx, linked.Session, "Turnpike")
					return err
				})
				w.advance(10 * time.Minute)
				invitation := w.invitedTo(w.acme)
				if _, err := w.ResetPassword(t.Context(), link(w, m).Token, password, browser); err != nil {
					t.Fatal(err)
				}
				in := w.login(victim)
				if _, err := w.JoinWorkspace(t.Context(), in.Session, invitation, browser); err != nil {
					t.Fatal(err)
				}
				w.joined(in)
				w.out(m)
				_, err = w.FinishOIDC(t.Context(), o, w.begin(i, o, "mallory", victim), browser)
				want(t, err, fault.Authentication)
				want(t, w.LockLinkedPerson(t.Context(), people.Identity{Issuer: i.URL}, "mallory", m.Person.ID), fault.Authentication)
				_, err = w.PendingTOTP(t.Context(), w.db, in.Session, "Turnpike")
				want(t, err, fault.InvalidState) // another person has seen its secret
				found, err := audit.FindActions(t.Context(), w.db, visibility.Filter{Tenant: accounts.Tenant{WorkspaceID: m.evil.ID}, Shared: true}, audit.ActionFilter{}, db.Page{Limit: 100, Asc: true})
				if err != nil {
					t.Fatal(err)
				}
				var said []string
				for _, a := range found.Rows {
					if a.Action == "password.reset" {
						said = append(said, string(a.Detail))
					}
				}
				if len(said) != 1 || !strings.Contains(said[0], "passkeys_removed") || !strings.Contains(said[0], "identities_removed") {
					t.Errorf("the admin log says %q", said)
				}
			})
		})
	}
}

func TestPasswordChangeKeepsOtherCredentials(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		i := newIssuer(t)
		o := provider(i)
		w.member("ada@example.com", accounts.Owner)
		in := w.login("ada@example.com")
		device, _ := w.register(in.Session, "Laptop")
		a := w.begin(i, o, "1", "ada@example.com")
		a.Replaced = in.Token
		linked, err := w.FinishOIDC(t.Context(), o, a, browser)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.ChangePassword(t.Context(), linked.Session, password, "another fine password", browser); err != nil {
			t.Fatal(err)
		}
		if _, err := w.FinishPasskeyLogin(t.Context(), party, device.get(w.startPasskeyLogin()), "", browser); err != nil {
			t.Error(err)
		}
		if _, err := w.FinishOIDC(t.Context(), o, w.begin(i, o, "1", "ada@example.com"), browser); err != nil {
			t.Error(err)
		}
	})
}

// A stolen mailbox doesn't bypass the app. If the app belongs to someone else,
// the person resets the password and then asks the operator.
func TestPasswordResetKeepsAuthenticatorApp(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		m := w.squat()
		_, recovery := w.withApp(m.Session)
		w.advance(10 * time.Minute)
		if _, err := w.ResetPassword(t.Context(), w.requestReset(victim).Token, password, browser); err != nil {
			t.Fatal(err)
		}
		w.half(victim)
		w.out(m)
		w.write(func(tx *db.Tx) error { return w.RemoveSecondFactor(t.Context(), tx, m.Person.ID) })
		in := w.login(victim)
		w.out(m)
		w.withApp(in.Session)
		_, err := w.FinishLogin(t.Context(), w.half(victim), recovery[0], "", browser)
		want(t, err, fault.Authentication)
	})
}

// The session ends while one of its requests is in progress.
func TestEndedSessionCannotChangeSecondFactor(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		m := w.squat()
		late := w.startPasskey(m.Session)
		w.withApp(m.Session)
		w.advance(6 * time.Minute)
		if _, err := w.ResetPassword(t.Context(), w.operatorsLink(m.Person.ID).Token, password, browser); err != nil {
			t.Fatal(err)
		}
		another := newAuthenticator(t, m.Person.ID)
		_, err := w.FinishPasskey(t.Context(), m.Session, party, named("late", another.create(late)), browser)
		want(t, err, fault.Authentication)
		for what, change := range map[string]func(tx *db.Tx) error{
			"renew the codes": func(tx *db.Tx) error {
				_, err := w.RenewRecoveryCodes(t.Context(), tx, m.Session, browser)
				return err
			},
			"remove the app": func(tx *db.Tx) error { return w.DisableTOTP(t.Context(), tx, m.Session, browser) },
		} {
			if err := w.try(change); !fault.Is(err, fault.Authentication) {
				t.Errorf("%s: %v", what, err)
			}
		}
		w.write(func(tx *db.Tx) error { return w.RemoveSecondFactor(t.Context(), tx, m.Person.ID) })
		want(t, w.try(func(tx *db.Tx) error {
			_, err := w.StartTOTP(t.Context(), tx, m.Session, "Turnpike")
			return err
		}), fault.Authentication)
		in := w.login(victim)
		var begun *people.Enrollment
		w.write(func(tx *db.Tx) (err error) {
			begun, err = w.StartTOTP(t.Context(), tx, in.Session, "Turnpike")
			return err
		})
		want(t, w.try(func(tx *db.Tx) error {
			_, err := w.EnableTOTP(t.Context(), tx, m.Session, w.code(begun.Secret), browser)
			return err
		}), fault.Authentication)
	})
}

// Someone else has the operator's link to a first password, and the person
// signs in at the provider meanwhile.
func TestProviderSignInInvalidatesFirstPasswordLink(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		i := newIssuer(t)
		o := provider(i)
		link := w.operatorsLink(w.withoutPassword(victim, accounts.Admin))
		if _, err := w.FinishOIDC(t.Context(), o, w.begin(i, o, "1", victim), browser); err != nil {
			t.Fatal(err)
		}
		_, err := w.ResetPassword(t.Context(), link.Token, password, browser)
		want(t, err, fault.NotFound)
	})
}

// The provider knows the victim, and someone else created the account.
func TestProviderDoesNotShareAccountCreatedByAnotherPerson(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		i := newIssuer(t)
		o := provider(i)
		m := w.squat()
		w.invitedTo(w.acme)
		_, err := w.FinishOIDC(t.Context(), o, w.begin(i, o, "1", victim), browser)
		want(t, err, fault.Authentication)
		_, err = people.RoleIn(t.Context(), w.db, m.Person.ID, w.acme.ID)
		want(t, err, fault.NotFound)
	})
}

// No one relies on an account without a workspace. So an invitation doesn't ask
// for its password, which may be an attacker's.
func TestAccountWithoutWorkspaceIsReset(t *testing.T) {
	for name, again := range map[string]func(w *fixture, m *squatter) (*people.SignIn, error){
		"by an invitation": func(w *fixture, _ *squatter) (*people.SignIn, error) {
			return w.AcceptInvitation(w.t.Context(), w.invitedTo(w.acme), people.NewAccount{Name: "Vic", Password: password}, browser)
		},
		"by the operator": func(w *fixture, m *squatter) (*people.SignIn, error) {
			w.withoutPassword(victim, accounts.Admin)
			w.write(func(tx *db.Tx) error {
				_, err := w.ResetAccount(w.t.Context(), tx, m.Person.ID, w.acme.ID)
				return err
			})
			w.out(m) // also before the link is used
			if _, err := w.ResetPassword(w.t.Context(), w.operatorsLink(m.Person.ID).Token, password, browser); err != nil {
				return nil, err
			}
			return w.Login(w.t.Context(), victim, password, "", browser)
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, w *fixture) {
				m := w.squat()
				w.withApp(m.Session)
				w.write(func(tx *db.Tx) error {
					return w.RemoveMember(t.Context(), tx, people.Operator(), m.evil.ID, m.Person.ID)
				})
				in, err := again(w, m)
				if err != nil {
					t.Fatal(err)
				}
				if !in.Complete() {
					t.Fatal("the app of somebody else is asked for")
				}
				w.login(victim)
				w.joined(in)
				w.out(m)
			})
		})
	}
}

// A command may have read the account before the person joined.
func TestAccountWithWorkspaceIsNotReset(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		m := w.squat()
		w.write(func(tx *db.Tx) error {
			if anew, err := w.ResetAccount(t.Context(), tx, m.Person.ID, w.acme.ID); err != nil || anew {
				t.Errorf("%v, %v", anew, err)
			}
			return nil
		})
		if !w.alive(m.Token) {
			t.Error("the session has ended")
		}
		if _, err := w.Login(t.Context(), victim, m.password, "", browser); err != nil {
			t.Error(err)
		}
		if ways, err := w.Passkeys(t.Context(), w.db, m.Person.ID); err != nil || len(ways) != 1 {
			t.Errorf("%v, %v", ways, err)
		}
	})
}

// The provider vouches for the invited victim, and no one relies on the account.
func TestProviderAcceptsInvitedPersonWithoutWorkspace(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		i := newIssuer(t)
		o := provider(i)
		signIn := func(subject string) (*people.SignIn, error) {
			return w.FinishOIDC(t.Context(), o, w.begin(i, o, subject, victim), browser)
		}
		m := w.squat()
		w.withApp(m.Session)
		leave := func(from *accounts.Workspace) {
			w.write(func(tx *db.Tx) error {
				return w.RemoveMember(t.Context(), tx, people.Operator(), from.ID, m.Person.ID)
			})
		}
		leave(m.evil)
		_, err := signIn("1")
		want(t, err, fault.Authentication) // no one has invited them
		w.invitedTo(w.acme)
		for range 2 { // the second time the provider's ID is known
			in, err := signIn("1")
			if err != nil {
				t.Fatal(err)
			}
			if !in.Complete() || in.Person.HasPassword() {
				t.Errorf("signed in as %+v", in)
			}
			if role, err := people.RoleIn(t.Context(), w.db, in.Person.ID, w.acme.ID); err != nil || role != accounts.Admin {
				t.Errorf("the victim is %q, %v", role, err)
			}
			w.out(m)
			// Invitations of other people stay open until they are accepted.
			w.invitedTo(m.evil)
			if _, err := signIn("1"); err != nil {
				t.Error(err)
			}
			_, err = people.RoleIn(t.Context(), w.db, in.Person.ID, m.evil.ID)
			want(t, err, fault.NotFound)
			w.write(func(tx *db.Tx) error {
				found, err := w.Invitations(t.Context(), tx, m.evil.ID, db.Page{Limit: 1})
				if err != nil {
					return err
				}
				return w.RevokeInvitation(t.Context(), tx, people.Operator(), m.evil.ID, found.Rows[0].ID)
			})
			leave(w.acme)
			_, err = signIn("1")
			want(t, err, fault.Authentication)
			w.invitedTo(w.acme)
		}
	})
}
