package dashboard

import (
	"cmp"
	"slices"

	"turnpike/internal/audit"
	"turnpike/internal/ids"
)

// unique returns the list in order, without duplicates.
func unique(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }

// keyNames returns the names of keys of the environment. IDs may repeat.
func (req *request) keyNames(list []string) (map[string]string, error) {
	return req.s.Keys.Names(req.Context(), req.s.DB, req.workspace.In(req.env), unique(list))
}

// keyName returns the name of a key, or its ID if it has none.
func (req *request) keyName(id string) (string, error) {
	names, err := req.keyNames([]string{id})
	return cmp.Or(names[id], id), err
}

// peopleNames returns the names of the people among some actors. IDs may repeat, and
// people who have left the workspace are included. The IDs must come from records of
// the workspace, because any person is found by ID.
func (req *request) peopleNames(actors ...string) (map[string]string, error) {
	list := slices.DeleteFunc(unique(actors), func(id string) bool { return !ids.Valid(ids.User, id) })
	return req.s.People.Names(req.Context(), req.s.DB, list)
}

func actorName(actor string, people, keys map[string]string) string {
	switch {
	case people[actor] != "":
		return people[actor]
	case keys[actor] != "":
		return "API key " + keys[actor]
	case actor == audit.Operator.Name:
		return "the operator"
	case actor == "anonymous":
		return "someone not signed in"
	}
	return actor
}
