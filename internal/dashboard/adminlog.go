package dashboard

import (
	"net/url"
	"slices"
	"strings"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/ids"
)

type actionRow struct {
	*audit.Action
	Who        string
	TargetName string
	TargetLink string // of its page, or empty
	Request    string // the page of the API request, or empty
	Text       string // the detail, indented, or empty
}

// actionRows adds the names of people, keys and endpoints, and links.
func (req *request) actionRows(list []*audit.Action) ([]actionRow, error) {
	named := map[string][]string{}
	for _, a := range list {
		for _, id := range []string{a.Actor, a.Target} {
			if i := strings.IndexByte(id, '_'); i > 0 && ids.Valid(id[:i+1], id) && !slices.Contains(named[id[:i+1]], id) {
				named[id[:i+1]] = append(named[id[:i+1]], id)
			}
		}
	}
	people, err := req.peopleNames(named[ids.User]...)
	if err != nil {
		return nil, err
	}
	keys, err := req.keyNames(named[ids.Key])
	if err != nil {
		return nil, err
	}
	endpoints, err := req.s.Webhooks.Named(req.Context(), req.s.DB, req.principal.Visibility(), named[ids.Endpoint]...)
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
			r.TargetName, r.TargetLink = keys[a.Target], req.to("keys/"+a.Target)
		case endpoints[a.Target] != nil:
			r.TargetName, r.TargetLink = endpointName(endpoints[a.Target]), req.to("webhooks/"+a.Target)
		case ids.Valid(ids.Run, a.Target):
			r.TargetLink = req.to("runs/" + a.Target)
		case strings.HasPrefix(a.Action, "project."):
			r.TargetLink = req.to("projects/" + url.PathEscape(a.Target))
		case a.Target == req.workspace.ID:
			r.TargetName = "this workspace"
		}
		// Requests of the dashboard have IDs, but no log entries.
		if ids.Valid(ids.Key, a.Actor) && ids.Valid(ids.Request, a.RequestID) {
			r.Request = req.to("requests/" + a.RequestID)
		}
		if text := string(a.Detail); text != "null" && text != "{}" {
			r.Text = escapeInvisible(showJSON(a.Detail))
		}
		rows[i] = r
	}
	return rows, nil
}

type adminLogData struct {
	Rows     []actionRow
	Members  []*accounts.User // choices of the filter
	Actions  []string         // on the page
	Filtered bool
	Looked   *scanned // nil if the search is complete
	Next     pager
}

// membersOffered is how many people the filter offers; the rows link to others.
const membersOffered = 200

func adminLogPage(req *request) (*view, error) {
	f := audit.ActionFilter{Actor: req.query("actor"), Action: req.query("action"), Target: req.query("target")}
	page := req.page(ids.AdminAction)
	found, err := audit.FindActions(req.Context(), req.s.DB, req.principal.Visibility(), f, page)
	if err != nil {
		return nil, err
	}
	d := adminLogData{Filtered: f != (audit.ActionFilter{}), Next: req.pager(page, found.More, func() string { return found.Cursor })}
	d.Looked = scanLimit(found, d.Next)
	if d.Rows, err = req.actionRows(found.Rows); err != nil {
		return nil, err
	}
	for _, a := range found.Rows {
		if !slices.Contains(d.Actions, a.Action) {
			d.Actions = append(d.Actions, a.Action)
		}
	}
	slices.Sort(d.Actions)
	if d.Members, err = accounts.ListUsers(req.Context(), req.s.DB, req.workspace.ID); err != nil {
		return nil, err
	}
	d.Members = d.Members[:min(len(d.Members), membersOffered)]
	// The selected actor is always offered.
	if f.Actor != "" && !slices.ContainsFunc(d.Members, func(u *accounts.User) bool { return u.ID == f.Actor }) && f.Actor != audit.Operator.Name {
		name := f.Actor
		if len(d.Rows) > 0 {
			name = d.Rows[0].Who
		}
		d.Members = append(d.Members, &accounts.User{ID: f.Actor, Name: name})
	}
	return &view{template: "log", title: "Admin log", data: d, live: !d.Filtered && page.After == ""}, nil
}
