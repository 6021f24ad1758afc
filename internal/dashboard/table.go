package dashboard

import "turnpike/internal/access"

// Route is a line of the table as others may read it.
type Route struct {
	Method    string
	Path      string // all of it, in the syntax of http.ServeMux
	SignedIn  bool   // strangers are led to the sign-in
	Workspace bool   // it belongs to a workspace and an environment
	Scope     access.Scope
	Manages   bool
	Confirm   bool
}

// Routes is the table of all pages, with who may come.
func Routes() []Route {
	var out []Route
	for _, rt := range routes() {
		out = append(out, Route{rt.method, prefix[rt.area] + rt.path, rt.area != open, rt.area == tenant, rt.scope, rt.manages, rt.confirm})
	}
	return out
}
