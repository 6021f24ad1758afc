package access

import (
	"slices"
	"strings"

	"turnpike/internal/accounts"
)

// withheld is what a developer lacks. Billing is the whole workspace's, so it is
// withheld in both environments; keys and projects are their environment's, and
// the sandbox is for developers to play in.
var withheld = map[accounts.Environment][]Scope{
	accounts.Live: {BillingWrite, KeysWrite, ProjectsWrite},
	accounts.Test: {BillingWrite},
}

// RoleScopes names the scopes that a role has in an environment: an owner and an
// admin have all, a viewer may read, a developer has all but what is withheld.
// An unknown role or environment has none.
func RoleScopes(role accounts.Role, env accounts.Environment) []string {
	lacks, known := withheld[env]
	if !known {
		return nil
	}
	switch role {
	case accounts.Owner, accounts.Admin:
		return []string{everything}
	case accounts.Developer:
		return namesOf(func(s Scope) bool { return !slices.Contains(lacks, s) })
	case accounts.Viewer:
		return namesOf(func(s Scope) bool { return strings.HasSuffix(string(s), ":read") })
	}
	return nil
}

func namesOf(in func(Scope) bool) []string {
	var names []string
	for _, s := range registry {
		if in(s) {
			names = append(names, string(s))
		}
	}
	return names
}

// RoleGrant is what RoleScopes grants together.
func RoleGrant(role accounts.Role, env accounts.Environment) Grant {
	var g Grant
	for _, name := range RoleScopes(role, env) {
		g |= expand(name)
	}
	return g
}

// ManagesMembers reports whether the role may invite, change and remove members.
func ManagesMembers(role accounts.Role) bool { return role == accounts.Owner || role == accounts.Admin }

// MayChangeRole reports whether somebody with the role by may turn a member from
// one role into another. An empty role stands for no member: before an
// invitation, or after a removal. Only an owner makes or unmakes owners.
func MayChangeRole(by, from, to accounts.Role) bool {
	if from == accounts.Owner || to == accounts.Owner {
		return by == accounts.Owner
	}
	return ManagesMembers(by)
}
