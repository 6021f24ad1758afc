package dashboard

import (
	"net/url"
	"slices"
	"strings"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/ids"
)

// actionRow is an act with the names of those it concerns.
type actionRow struct {
	*audit.Action
	Who        string
	TargetName string
	TargetLink string // where it can be seen, or empty
	Request    string // the page of the request that did it, or empty
	Text       string // the detail, indented; empty for none
}

// actionRows finds the names of people, keys and endpoints, and what is there to
// be seen.
func (v *visit) actionRows(list []*audit.Action) ([]actionRow, error) {
	named := map[string][]string{}
	for _, a := range list {
		for _, id := range []string{a.Actor, a.Target} {
			if i := strings.IndexByte(id, '_'); i > 0 && ids.Valid(id[:i+1], id) && !slices.Contains(named[id[:i+1]], id) {
				named[id[:i+1]] = append(named[id[:i+1]], id)
			}
		}
	}
	people, err := v.peopleNames(named[ids.User]...)
	if err != nil {
		return nil, err
	}
	keys, err := v.keyNames(named[ids.Key])
	if err != nil {
		return nil, err
	}
	endpoints, err := v.s.Webhooks.Named(v.ctx(), v.s.DB, v.principal.Visibility(), named[ids.Endpoint]...)
	if err != nil {
		return nil, err
	}
	rows := make([]actionRow, len(list))
	for i, a := range list {
		r := actionRow{Action: a, Who: actorName(a.Actor, people, keys), TargetName: a.Target}
		switch {
		case people[a.Target] != "":
			r.TargetName = people[a.Target]
		case keys[a.Target] != "":
			r.TargetName, r.TargetLink = keys[a.Target], v.to("keys/"+a.Target)
		case endpoints[a.Target] != nil:
			r.TargetName, r.TargetLink = endpointName(endpoints[a.Target]), v.to("webhooks/"+a.Target)
		case ids.Valid(ids.Run, a.Target):
			r.TargetLink = v.to("runs/" + a.Target)
		case strings.HasPrefix(a.Action, "project."):
			r.TargetLink = v.to("projects/" + url.PathEscape(a.Target))
		case a.Target == v.workspace.ID:
			r.TargetName = "this workspace"
		}
		// What people do here has an id, too, but is no request of the log.
		if ids.Valid(ids.Key, a.Actor) && ids.Valid(ids.Request, a.RequestID) {
			r.Request = v.to("requests/" + a.RequestID)
		}
		if text := string(a.Detail); text != "null" && text != "{}" {
			r.Text = exactly(plainJSON(a.Detail))
		}
		rows[i] = r
	}
	return rows, nil
}

type adminLogData struct {
	Rows     []actionRow
	Members  []*accounts.User // that the filter offers
	Actions  []string         // that are on the page
	Filtered bool
	Looked   *looked // nil when the page is whole
	Next     pager
}

// membersOffered is how many people the filter names; others are reached by
// their rows.
const membersOffered = 200

func adminLogPage(v *visit) (*view, error) {
	f := audit.ActionFilter{Actor: v.query("actor"), Action: v.query("action"), Target: v.query("target")}
	page := v.page(ids.AdminAction)
	found, err := audit.FindActions(v.ctx(), v.s.DB, v.principal.Visibility(), f, page)
	if err != nil {
		return nil, err
	}
	d := adminLogData{Filtered: f != (audit.ActionFilter{}), Next: v.pager(page, found.More, func() string { return found.Cursor })}
	d.Looked = lookedThrough(found, d.Next)
	if d.Rows, err = v.actionRows(found.Rows); err != nil {
		return nil, err
	}
	for _, a := range found.Rows {
		if !slices.Contains(d.Actions, a.Action) {
			d.Actions = append(d.Actions, a.Action)
		}
	}
	slices.Sort(d.Actions)
	if d.Members, err = accounts.ListUsers(v.ctx(), v.s.DB, v.workspace.ID); err != nil {
		return nil, err
	}
	d.Members = d.Members[:min(len(d.Members), membersOffered)]
	// The chosen one is offered, whoever it is.
	if f.Actor != "" && !slices.ContainsFunc(d.Members, func(u *accounts.User) bool { return u.ID == f.Actor }) && f.Actor != audit.Operator.Name {
		name := f.Actor
		if len(d.Rows) > 0 {
			name = d.Rows[0].Who
		}
		d.Members = append(d.Members, &accounts.User{ID: f.Actor, Name: name})
	}
	return &view{template: "log", title: "Admin log", data: d, live: !d.Filtered && page.After == ""}, nil
}
