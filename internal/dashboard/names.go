package dashboard

import (
	"slices"

	"turnpike/internal/audit"
	"turnpike/internal/ids"
)

// keyNames are the names of keys of the environment; an id may come twice.
func (v *visit) keyNames(list []string) (map[string]string, error) {
	list = slices.Clone(list)
	slices.Sort(list)
	return v.s.Keys.Names(v.ctx(), v.s.DB, v.workspace.ID, v.env, slices.Compact(list))
}

// peopleNames are what the people among some actors are called; an id may come
// twice. Who has left the workspace is still known by name. The ids must be from
// what the workspace has written down: anybody's name is found by them.
func (v *visit) peopleNames(actors ...string) (map[string]string, error) {
	list := slices.DeleteFunc(slices.Clone(actors), func(id string) bool { return !ids.Valid(ids.User, id) })
	slices.Sort(list)
	return v.s.People.Names(v.ctx(), v.s.DB, slices.Compact(list))
}

// actorName is what somebody is called who has done something.
func actorName(actor string, people, keys map[string]string) string {
	switch {
	case people[actor] != "":
		return people[actor]
	case keys[actor] != "":
		return "key " + keys[actor]
	case actor == audit.Operator.Name:
		return "the operator"
	case actor == "anonymous":
		return "somebody not signed in"
	}
	return actor
}
