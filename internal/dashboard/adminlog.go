package dashboard

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/internal/logsearch"
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
	Search *searchBox
	Rows   []actionRow
	Looked *scanned // nil if the search is complete
	Next   pager
}

// actionFilter reads the search. box is nil if the browser was redirected.
func (req *request) actionFilter() (f audit.ActionFilter, box *searchBox, err error) {
	members, err := accounts.ListUsers(req.Context(), req.s.DB, req.workspace.ID)
	if err != nil {
		return f, nil, err
	}
	names := []string{audit.Operator.Name}
	for _, u := range members[:min(len(members), maxChoices)] {
		names = append(names, cmp.Or(u.Name, u.Email))
	}
	var actor string
	l := searchable{Example: "action:key.* actor:operator last:7d"}
	l.Fields = []logsearch.Field{
		{Name: "actor", Label: "Actor", Help: "the name or ID of a member or key", Values: named(names), Set: logsearch.Text(&actor)},
		{Name: "action", Label: "Action", Help: "key.created", Set: logsearch.Text(&f.Action)},
		{Name: "target", Label: "Target", Help: "an ID", Set: logsearch.Text(&f.Target)},
	}
	l.Word = func(word string) string {
		if actionName.MatchString(word) {
			return "action"
		}
		return ""
	}
	if box, err = req.search(l); err != nil || box == nil {
		return f, nil, err
	}
	f.Since, f.Until = box.Period.Bounds(req.now())
	f.Actors, err = req.searchActor(box, actor, members)
	return f, box, err
}

// actionName is a name such as key.created, or a pattern such as key.*.
var actionName = regexp.MustCompile(`^[a-z_*]+(\.[a-z_*]+)+$`)

// searchActor finds the members and keys that a search names by ID, name or email.
func (req *request) searchActor(box *searchBox, value string, members []*accounts.User) (actors []string, err error) {
	if value == "" {
		return nil, nil
	}
	if value == audit.Operator.Name || value == "anonymous" || ids.Valid(ids.User, value) || ids.Valid(ids.Key, value) {
		return []string{value}, nil
	}
	for _, u := range members {
		if db.Match(strings.ToLower(value), strings.ToLower(u.Name)) || strings.EqualFold(value, u.Email) {
			actors = append(actors, u.ID)
		}
	}
	keys, err := keysNamed(req.Context(), req.s.DB, req.workspace.In(req.env), value)
	if actors = append(actors, keys...); err == nil && len(actors) == 0 {
		box.Hints = append(box.Hints, "No member or "+string(req.env)+" key is named "+value+".")
	}
	return actors[:min(len(actors), maxChoices)], err
}

func adminLogPage(req *request) (*view, error) {
	f, box, err := req.actionFilter()
	if err != nil || box == nil {
		return nil, err
	}
	page, found := req.page(ids.AdminAction), &db.Found[*audit.Action]{}
	if !box.Unmatched() {
		if found, err = audit.FindActions(req.Context(), req.s.DB, req.principal.Visibility(), f, page); err != nil {
			return nil, err
		}
	}
	d := adminLogData{Search: box, Next: req.pager(page, found.More, func() string { return found.Cursor })}
	d.Looked = scanLimit(found, d.Next)
	d.Rows, err = req.actionRows(found.Rows)
	return &view{template: "log", title: "Admin log", data: d, live: !box.Filtered() && page.After == ""}, err
}
