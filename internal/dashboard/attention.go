package dashboard

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/agents"
	"turnpike/internal/db"
	"turnpike/internal/gateway"
	"turnpike/internal/leaks"
	"turnpike/internal/logsearch"
	"turnpike/internal/spend"
)

const (
	// expiringWithin is how far ahead home warns of expiring keys.
	expiringWithin = 7 * 24 * time.Hour
	// leakWindow is how long home shows a leak report.
	leakWindow = 30 * 24 * time.Hour
	// homeRows is how many items of a kind home shows.
	homeRows = 5
	// attentionShown is how many items are visible at first.
	attentionShown = 6
)

// severity orders what needs attention, the worst first.
type severity int

const (
	broken  severity = iota // something doesn't work
	tight                   // something will stop working
	waiting                 // someone has to decide
)

// Class returns the CSS class.
func (s severity) Class() string { return []string{"bad", "warn", "info"}[s] }

// Label names the severity for screen readers.
func (s severity) Label() string { return []string{"Urgent", "Warning", "Waiting"}[s] }

// attention is something that someone should look at.
type attention struct {
	Severity severity
	Icon     string
	Title    string
	Text     string
	Link     string     // to where it is fixed, or empty
	Verb     string     // of the time: since, found, expires
	At       *time.Time // or nil
}

// attentionList collects the items of a page.
type attentionList struct {
	req  *request
	list []attention
}

// add adds an item, if the person may see what it is about.
func (l *attentionList) add(scope access.Scope, a attention) {
	if scope == "" || l.req.principal.Grant.Allows(scope) {
		l.list = append(l.list, a)
	}
}

// readAttention returns what needs attention in the environment, the most severe first.
func (req *request) readAttention(d *homeData) ([]attention, error) {
	l := &attentionList{req: req}
	if req.env == accounts.Live {
		l.addCredits(d)
		if err := l.addBudgets(); err != nil {
			return nil, err
		}
		if err := l.addProviders(d.Start == nil); err != nil {
			return nil, err
		}
	}
	for _, add := range []func() error{func() error { return l.addErrorSpike(d) }, l.addLeaks, l.addEndpoints, l.addKeys, l.addRuns, l.addToolCalls} {
		if err := add(); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(l.list, func(a, b attention) int { return cmp.Compare(a.Severity, b.Severity) })
	return l.list, nil
}

// addCredits adds the workspace's credits if they are used up or low, or don't last until the month ends.
func (l *attentionList) addCredits(d *homeData) {
	left := d.Money.Remaining()
	if left == nil || !d.Money.Low() && !d.RunsOut() && *left > 0 {
		return
	}
	title := "Credits are low"
	if !d.Money.Low() {
		title = "Credits run out before the month ends"
	}
	a := attention{Severity: tight, Icon: "wallet", Title: title, Link: l.req.to("billing"),
		Text: fmt.Sprintf("%s of %s credits left this month", showCredits(*left), showCredits(*d.Money.Workspace.MonthlyCredits))}
	if d.Runway > 0 {
		a.Text += ", " + d.ShowRunway() + " at the current rate"
	}
	a.Text += l.req.inDollars(*left, *d.Money.Workspace.MonthlyCredits)
	if *left <= 0 {
		end := d.Money.Period.End()
		a.Severity, a.Title, a.Verb, a.At = broken, "Out of credits", "resets", &end
		a.Text = fmt.Sprintf("all %s credits of this month are spent, so live requests are rejected", showCredits(*d.Money.Workspace.MonthlyCredits))
	}
	l.add(access.BillingRead, a)
}

// addBudgets adds the budgets of projects, keys and their limits, and those of end users in sum.
func (l *attentionList) addBudgets() error {
	budgets, err := spend.TightBudgets(l.req.Context(), l.req.ledger(), l.req.workspace.ID, l.req.now(), homeRows+1)
	if err != nil {
		return err
	}
	for _, b := range budgets[:min(len(budgets), homeRows)] {
		scope, page, noun := access.KeysRead, "keys/"+b.Owner.ID, "Key"
		if b.Owner.Level == spend.Project {
			scope, page, noun = access.ProjectsRead, "projects/"+url.PathEscape(b.Owner.ID), "Project"
		}
		a := attention{Severity: tight, Icon: "gauge", Title: noun + " " + b.Name, Link: l.req.to(page), Verb: "since", At: b.RefusedAt}
		state := fmt.Sprintf("%d%% of its %s spent", percent(int64(b.Spent), int64(b.Budget)), budgetName(b))
		if b.Exhausted() {
			a.Severity, state = broken, budgetName(b)+" exhausted, requests are rejected"
		}
		if end := spend.PeriodIn(b.Window, l.req.now()).End(); a.At == nil && !end.IsZero() {
			a.Verb, a.At = "resets", &end
		}
		a.Text = fmt.Sprintf("%s: %s of %s credits", state, showRounded(b.Spent), showRounded(b.Budget)) + l.req.inDollars(b.Spent, b.Budget)
		l.add(scope, a)
	}
	if len(budgets) > homeRows {
		l.add(access.KeysRead, attention{Severity: tight, Icon: "gauge", Title: "More budgets are nearly exhausted", Link: l.req.to("keys")})
	}
	n, first, err := spend.RefusedUsers(l.req.Context(), l.req.ledger(), l.req.workspace.In(l.req.env), l.req.now().Add(-day))
	if err != nil || n == 0 {
		return err
	}
	title := "1 user reached their budget"
	if n > 1 {
		title = showCount(n) + " users reached their budgets"
	}
	l.add(access.UsersRead, attention{Severity: tight, Icon: "users", Title: title, Text: "in the last 24 hours, and their requests are rejected", Link: l.req.to("users"), Verb: "since", At: first})
	return nil
}

// budgetName returns what a budget is called: monthly budget, daily budget for gpt-5.
func budgetName(b spend.TightBudget) string {
	name := map[accounts.Window]string{accounts.WindowDay: "daily budget", accounts.WindowWeek: "weekly budget", accounts.WindowLifetime: "lifetime budget"}[b.Window]
	name = cmp.Or(name, "monthly budget")
	if b.Limit != nil && b.Limit.Models != nil {
		name += " for " + shortened(strings.Join(b.Limit.Models, ", "), 40)
	}
	return name
}

// addProviders adds providers that fail, and says if there are none. The gateway knows what this
// node has seen.
func (l *attentionList) addProviders(sayNone bool) error {
	link, err := l.req.providersPage()
	if err != nil {
		return err
	}
	if len(l.req.s.Facts().Providers) == 0 {
		if sayNone {
			l.add("", attention{Severity: broken, Icon: "plug", Title: "No provider is connected", Text: "so live requests are rejected", Link: link})
		}
		return nil
	}
	failing := l.req.s.Gateway.Failing()
	for some := range slices.Values(byProvider(failing)) {
		name, models := some[0].Provider, make([]string, len(some))
		since := some[0].Since
		for i, f := range some {
			models[i] = f.Model
			if f.Since.Before(since) {
				since = f.Since
			}
		}
		a := attention{Severity: broken, Icon: "server", Title: "Provider " + name + " is failing", Text: "on " + shortened(strings.Join(models, ", "), 60), Link: link + "/providers/" + url.PathEscape(name), Verb: "since", At: &since}
		if link == "" {
			a.Link = l.req.logLink("provider", name, "status", "failed", "last", "1h")
		}
		l.add("", a)
	}
	return nil
}

// byProvider groups a sorted list.
func byProvider(list []gateway.FailingModel) (out [][]gateway.FailingModel) {
	for i, f := range list {
		if i == 0 || f.Provider != list[i-1].Provider {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], f)
	}
	return out
}

// providersPage returns the page where the person can connect a provider, or an empty string if an
// operator has to.
func (req *request) providersPage() (string, error) {
	is, err := req.isOperator()
	if err != nil || !is {
		return "", err
	}
	return "/dashboard/server", nil
}

// An error spike: in the last hour at least spikeErrors requests failed, at least spikePercent of all, and that share is
// at least spikeFactor times the one of the day before.
const (
	spikeErrors  = 10
	spikePercent = 5
	spikeFactor  = 3
	// spikeHours is how many hours of the log an error spike is found in. If it has too many requests for that, usage
	// has enough model requests.
	spikeHours = 3
)

func isErrorSpike(hour, before logHour) bool {
	if hour.Failed < spikeErrors || hour.Failed*100 < hour.Requests*spikePercent {
		return false
	}
	return before.Requests == 0 || float64(hour.Failed)/float64(hour.Requests) >= spikeFactor*float64(before.Failed)/float64(before.Requests)
}

// maxMinuteUsage limits the rows that an error spike is computed from.
const maxMinuteUsage = 5000

func (l *attentionList) addErrorSpike(d *homeData) error {
	hour, before, noun := d.Errors.sum(0, 1), d.Errors.sum(1, min(24, max(1, d.Errors.complete))), "requests"
	if d.Errors.complete < spikeHours {
		var err error
		if hour, before, err = l.modelErrors(d.hours); err != nil {
			return err
		}
		noun = "model requests"
	}
	if !isErrorSpike(hour, before) {
		return nil
	}
	l.add(access.AuditRead, attention{Severity: broken, Icon: "activity", Title: "Errors are up", Link: l.req.logLink("status", "failed", "last", "1h"), Verb: "since", At: hour.First,
		Text: fmt.Sprintf("%s of %s %s failed in the last hour (%s, against %s the day before)", showCount(hour.Failed), showCount(hour.Requests), noun, rate(hour.Failed, hour.Requests), cmp.Or(strings.ReplaceAll(rate(before.Failed, before.Requests), none, ""), "none"))})
	return nil
}

// modelErrors returns the model requests of the last hour and of the day before it.
func (l *attentionList) modelErrors(hours *hourlyUsage) (hour, before logHour, err error) {
	if hours.last(2).Errors < spikeErrors { // there can't be a spike in the last hour
		return hour, before, nil
	}
	u := spend.UsageQuery{Tenant: l.req.workspace.In(l.req.env), Start: l.req.now().Add(-time.Hour), End: l.req.now(), Bucket: spend.ByMinute}
	minutes, _, err := spend.RecentUsage(l.req.Context(), l.req.usage(), u, maxMinuteUsage)
	for _, m := range minutes {
		hour.Requests += m.Requests
		hour.Failed += m.Errors
		if m.Errors > 0 && hour.First == nil {
			hour.First = &m.Start
		}
	}
	day := hours.sum(2, 25)
	return hour, logHour{Requests: day.Requests, Failed: day.Errors}, err
}

func (l *attentionList) addLeaks() error {
	notes, _, err := leaks.List(l.req.Context(), l.req.s.DB, l.req.workspace.In(l.req.env), db.Page{Limit: homeRows})
	for _, n := range notes {
		if n.ReportedAt.After(l.req.now().Add(-leakWindow)) {
			title, page := "Leaked key ", "keys/"
			if n.IsEndpoint() {
				title, page = "Leaked webhook secret ", "webhooks/"
			}
			l.add(access.KeysRead, attention{Severity: broken, Icon: "shield", Title: title + n.Hint, Text: strings.ReplaceAll(string(n.Outcome), "_", " "),
				Link: l.req.to(page + n.KeyID), Verb: "found", At: &n.ReportedAt})
		}
	}
	return err
}

func (l *attentionList) addEndpoints() error {
	list, err := failingEndpoints(l.req.Context(), l.req.s.DB, l.req.workspace.In(l.req.env), l.req.now().Add(-day))
	for _, e := range list {
		a := attention{Severity: tight, Icon: "webhook", Title: "Webhook " + cmp.Or(e.Description, e.URL), Text: "failing", Link: l.req.to("webhooks/" + e.ID), Verb: "failed", At: e.LastFailure}
		if e.Paused {
			a.Severity, a.Text = broken, "paused"
			if e.PausedReason == "manual" {
				a.Severity, a.Text = tight, "paused manually"
			}
		}
		if e.LastError != "" && e.PausedReason != "manual" {
			a.Text += ": " + shortReason(e.LastError)
		}
		l.add(access.WebhooksRead, a)
	}
	return err
}

func (l *attentionList) addKeys() error {
	keys, err := l.req.s.Keys.EndingSoon(l.req.Context(), l.req.s.DB, l.req.principal.Visibility(), l.req.now().Add(expiringWithin), homeRows)
	for _, k := range keys {
		a := attention{Severity: tight, Icon: "key-round", Title: "Key " + k.Name, Text: "expires, and its requests will be rejected", Link: l.req.to("keys/" + k.ID), Verb: "expires", At: k.ExpiresAt}
		if k.Previous != nil {
			a.Text, a.At = "old secret …"+k.Previous.LastFour+" stops working", &k.Previous.ExpiresAt
		}
		l.add(access.KeysRead, a)
	}
	return err
}

// addRuns adds the runs that wait for a decision, with the tool and the first words of the input.
func (l *attentionList) addRuns() error {
	runs, err := l.req.awaitingApproval()
	if err != nil {
		return err
	}
	for _, r := range runs.Rows[:min(len(runs.Rows), homeRows)] {
		a := attention{Severity: waiting, Icon: "hand", Title: "Approve a tool call", Link: l.req.to("runs/" + r.ID), Verb: "expires", At: r.DueAt}
		calls, err := l.req.s.Agents.Calls(l.req.Context(), l.req.s.DB, r.ID, r.StepsUsed, r.StepsUsed)
		if err != nil {
			return err
		}
		for _, action := range agents.Object(r, calls).RequiredActions {
			if action.Type == "approval" {
				a.Title = "Approve " + action.Tool
				break
			}
		}
		input, err := l.req.s.Agents.Input(l.req.Context(), l.req.s.DB, r.ID, 1)
		if err != nil {
			return err
		}
		if len(input) > 0 {
			a.Text = firstWords(input[0].Text)
		}
		l.add(access.AgentRunsRead, a)
	}
	if len(runs.Rows) > homeRows {
		l.add(access.AgentRunsRead, attention{Severity: waiting, Icon: "hand", Title: "More runs need approval", Link: l.req.to("runs?q=status:" + string(agents.AwaitingApproval))})
	}
	return nil
}

func (l *attentionList) addToolCalls() error {
	if !l.req.principal.Grant.Allows(access.ToolServersRead) {
		return nil
	}
	calls, err := l.req.pendingToolCalls()
	for _, c := range calls[:min(len(calls), homeRows)] {
		l.add(access.ToolServersRead, attention{Severity: waiting, Icon: "hand", Title: "Approve " + c.Tool, Text: firstWords(c.Arguments), Link: l.req.to("approvals"), Verb: "expires", At: &c.ExpiresAt})
	}
	return err
}

// firstWords returns the start of a text in one line.
func firstWords(s string) string {
	return shortened(strings.Join(strings.Fields(escapeInvisible(clip(s, 500).Text)), " "), 90)
}

// logLink returns the request log with a search: names of fields, each with its value.
func (req *request) logLink(terms ...string) string {
	return req.to("requests?" + url.Values{"q": {searchText(terms...)}}.Encode())
}

// searchText returns a search for names of fields, each with its value.
func searchText(terms ...string) string {
	var search []string
	for term := range slices.Chunk(terms, 2) {
		search = append(search, logsearch.Of(term[0], term[1]).String())
	}
	return strings.Join(search, " ")
}
