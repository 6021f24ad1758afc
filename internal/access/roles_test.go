package access_test

import (
	"slices"
	"strings"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
)

func TestRolesHaveExactlyTheirScopes(t *testing.T) {
	t.Parallel()
	lacks := func(role accounts.Role, env accounts.Environment) (missing []access.Scope) {
		for _, s := range access.Scopes() {
			if !access.RoleGrant(role, env).Allows(s) {
				missing = append(missing, s)
			}
		}
		return missing
	}
	for _, env := range []accounts.Environment{accounts.Live, accounts.Test} {
		for _, role := range []accounts.Role{accounts.Owner, accounts.Admin} {
			if missing := lacks(role, env); !slices.Equal(missing, []access.Scope{access.ContentRead}) {
				t.Errorf("%s lacks %v in %s", role, missing, env)
			}
		}
		for _, s := range access.Scopes() {
			if reads := strings.HasSuffix(string(s), ":read") && s != access.ContentRead; access.RoleGrant(accounts.Viewer, env).Allows(s) != reads {
				t.Errorf("a viewer and %s in %s", s, env)
			}
		}
	}
	if got := lacks(accounts.Developer, accounts.Live); !slices.Equal(got, []access.Scope{access.KeysWrite, access.ProjectsWrite, access.BillingWrite, access.ContentRead}) {
		t.Errorf("a developer lacks %v in live", got)
	}
	if got := lacks(accounts.Developer, accounts.Test); !slices.Equal(got, []access.Scope{access.BillingWrite, access.ContentRead}) {
		t.Errorf("a developer lacks %v in test", got)
	}
	if access.RoleGrant("king", accounts.Live) != 0 || access.RoleGrant(accounts.Owner, "moon") != 0 {
		t.Error("an unknown role or environment has scopes")
	}
}

func TestOnlyOwnersChangeOwners(t *testing.T) {
	t.Parallel()
	const none = accounts.Role("")
	roles := append(slices.Clone(accounts.Roles), none)
	for _, by := range roles {
		for _, from := range roles {
			for _, to := range roles {
				want := by == accounts.Owner || by == accounts.Admin && from != accounts.Owner && to != accounts.Owner
				if got := access.MayChangeRole(by, from, to); got != want {
					t.Errorf("%q turns %q into %q: %t", by, from, to, got)
				}
			}
		}
	}
}
