package access

import (
	"slices"
	"strings"

	"turnpike/internal/accounts"
)

// developerLacks are the scopes that developers don't have. Billing belongs to the whole workspace, so
// it is withheld in both environments.
var developerLacks = map[accounts.Environment][]Scope{
	accounts.Live: {BillingWrite, KeysWrite, ProjectsWrite},
	accounts.Test: {BillingWrite},
}

// RoleScopes returns the scopes of a role in an environment: all for owners and admins, all but
// developerLacks for developers, and reading for viewers.
func RoleScopes(role accounts.Role, env accounts.Environment) []string {
	lacks, known := developerLacks[env]
	if !known {
		return nil
	}
	switch role {
	case accounts.Owner, accounts.Admin:
		return []string{wildcard}
	case accounts.Developer:
		return namesOf(func(s Scope) bool { return !slices.Contains(lacks, s) && !byNameOnly.Allows(s) })
	case accounts.Viewer:
		return namesOf(func(s Scope) bool { return strings.HasSuffix(string(s), ":read") && !byNameOnly.Allows(s) })
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

// RoleGrant returns what RoleScopes grants.
func RoleGrant(role accounts.Role, env accounts.Environment) Grant {
	var g Grant
	for _, name := range RoleScopes(role, env) {
		g |= expand(name)
	}
	return g
}

// ManagesMembers reports whether the role may invite, change and remove members.
func ManagesMembers(role accounts.Role) bool { return role == accounts.Owner || role == accounts.Admin }

// MayChangeRole reports whether a member with the role by may change a role. An empty role means no
// member: before an invitation or after a removal. Only owners may change owners.
func MayChangeRole(by, from, to accounts.Role) bool {
	if from == accounts.Owner || to == accounts.Owner {
		return by == accounts.Owner
	}
	return ManagesMembers(by)
}
