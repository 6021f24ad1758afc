package dashboard

import (
	"strings"

	"turnpike/internal/accounts"
	"turnpike/internal/fault"
)

// Actions on live resources that cannot be undone ask for the resource's name, which the person has to type.

// TypedName returns the name that the person has to type, or an empty string in test.
func (s *shell) TypedName(name string) string {
	if s.Env != accounts.Live {
		return ""
	}
	return name
}

// checkTypedName checks that the person typed the name in live. Pages show repeated spaces as one.
func (req *request) checkTypedName(name string) error {
	oneSpace := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	if req.env == accounts.Live && oneSpace(req.form("confirm_name")) != oneSpace(name) {
		return fault.Invalid("confirm_name", "Type %q to confirm.", name)
	}
	return nil
}
