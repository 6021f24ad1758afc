package dashboard

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/federation"
	"turnpike/internal/ids"
	"turnpike/internal/web"
)

type federationData struct {
	Rules []ruleRow
	Next  pager
}

type ruleRow struct {
	*federation.Rule
	KeyName string // empty if the key is gone
}

func (req *request) ruleRows(list ...*federation.Rule) ([]ruleRow, error) {
	names, err := req.s.Keys.Names(req.Context(), req.s.DB, req.workspace.In(req.env), web.Map(list, func(r *federation.Rule) string { return r.KeyID }))
	return web.Map(list, func(r *federation.Rule) ruleRow { return ruleRow{r, names[r.KeyID]} }), err
}

func federationPage(req *request) (*view, error) {
	page := req.page(ids.FederationRule)
	found, err := req.s.Federation.List(req.Context(), req.s.DB, req.principal.Visibility(), page)
	if err != nil {
		return nil, err
	}
	d := federationData{Next: req.pager(page, found.More, func() string { return found.Cursor })}
	d.Rules, err = req.ruleRows(found.Rows...)
	return &view{template: "federation", title: "Federation rules", data: d, live: true}, err
}

type ruleForm struct {
	Rule   *federation.Rule
	Keys   []*access.Key
	Scopes string
	Grants string // one per line
	Claims string // of the metadata
	allowedForm
}

// Windows are the windows of users' budgets.
func (ruleForm) Windows() []accounts.Window { return accounts.Windows }

// Seen returns the fingerprint of the rule.
func (f ruleForm) Seen() string { return ruleFingerprint(f.Rule) }

func ruleFingerprint(r *federation.Rule) string {
	return fingerprint(r.Name, r.Issuer, r.Audience, r.Subject, r.KeyID, strings.Join(r.Scopes, " "), newAllowedForm(r.Allowed), showGrants(r.Grants), r.UserClaim, r.UserLimits, r.ExpiresIn, strings.Join(r.MetadataClaims, " "))
}

// keysToChoose is how many keys the form suggests.
const keysToChoose = 200

func (req *request) newRuleForm(r *federation.Rule) (ruleForm, error) {
	keys, _, err := req.s.Keys.Search(req.Context(), req.s.DB, req.principal.Visibility(), access.KeyFilter{State: "active", Sort: access.SortByName}, db.Page{Limit: keysToChoose})
	return ruleForm{r, keys, strings.Join(r.Scopes, " "), showGrants(r.Grants), strings.Join(r.MetadataClaims, " "), newAllowedForm(r.Allowed)}, err
}

func newRulePage(req *request) (*view, error) {
	f, err := req.newRuleForm(&federation.Rule{ExpiresIn: int64(access.MaxTokenLifetime.Seconds())})
	return &view{template: "federation_new", title: "New federation rule", data: f}, err
}

// readRule reads the form and returns the errors of all fields that could not be read.
func (req *request) readRule(q db.Querier, r *federation.Rule) error {
	r.Name, r.Issuer, r.Audience, r.Subject, r.KeyID = req.form("name"), req.form("issuer"), req.form("audience"), req.form("subject"), req.form("key_id")
	r.Scopes, r.MetadataClaims = words(req.form("scopes")), words(req.form("metadata_claims"))
	r.UserClaim = req.form("user_claim")
	var invalid [3]error
	r.UserLimits, invalid[0] = req.readUserLimits()
	seconds, err := req.formNumber("expires_in")
	if r.ExpiresIn, invalid[1] = 0, err; seconds != nil {
		r.ExpiresIn = *seconds
	}
	r.Grants, invalid[2] = parseGrants(req.form("grants"))
	routes := func() ([]string, error) {
		k, err := req.s.Keys.Get(req.Context(), q, req.principal.Visibility(), r.KeyID)
		if fault.Is(err, fault.NotFound) { // the rule's own checks report it
			return req.routesIn(q, "")()
		}
		if err != nil {
			return nil, err
		}
		return req.routesIn(q, k.Project)()
	}
	granted := federation.CheckGranted(r.Grants, func(a catalog.Allowed) error { return req.s.Gateway.CheckAllowed(a, routes) })
	return errors.Join(append(invalid[:], req.readAllowed(&r.Allowed, routes), granted)...)
}

// The prefixes of models, providers and users' limits in the form of a grant. No scope begins with them.
const (
	modelPrefix    = "model:"
	providerPrefix = "provider:"
	budgetPrefix   = "budget:" // credits, and a window after a slash
	ratePrefix     = "rpm:"
)

func showUserLimits(l accounts.UserLimits) (words []string) {
	if l.Budget != nil || l.Window != "" {
		word := budgetPrefix
		if l.Budget != nil {
			word += l.Budget.String()
		}
		if l.Window != "" {
			word += "/" + string(l.Window)
		}
		words = append(words, word)
	}
	if l.RequestsPerMinute != nil {
		words = append(words, ratePrefix+strconv.FormatInt(*l.RequestsPerMinute, 10))
	}
	return words
}

// parseUserLimit reads a word of a grant if it is a limit of users.
func parseUserLimit(word string, l *accounts.UserLimits) (found bool, err error) {
	if text, isBudget := strings.CutPrefix(word, budgetPrefix); isBudget {
		amount, window, _ := strings.Cut(text, "/")
		l.Window = accounts.Window(window)
		if amount == "" && window != "" {
			return true, nil
		}
		budget, err := credits.Parse(amount)
		if err != nil {
			return true, fault.Invalid("grants", "%q is not a budget, such as budget:50/day.", word)
		}
		l.Budget = &budget
		return true, nil
	}
	text, isRate := strings.CutPrefix(word, ratePrefix)
	if !isRate {
		return false, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return true, fault.Invalid("grants", "%q is not a rate, such as rpm:60.", word)
	}
	l.RequestsPerMinute = &n
	return true, nil
}

// showGrants returns grants as the form has them: claims, an arrow, and scopes, models, providers or seconds.
func showGrants(list []federation.Grant) string {
	lines := make([]string, len(list))
	for i, g := range list {
		var claims []string
		for _, name := range slices.Sorted(maps.Keys(g.Claims)) {
			claims = append(claims, name+"="+g.Claims[name])
		}
		gives := slices.Clone(g.Scopes)
		for _, pattern := range g.Models {
			gives = append(gives, modelPrefix+pattern)
		}
		for _, name := range g.Providers {
			gives = append(gives, providerPrefix+name)
		}
		gives = append(gives, showUserLimits(g.UserLimits)...)
		if g.ExpiresIn != nil {
			gives = append(gives, fmt.Sprintf("%ds", *g.ExpiresIn))
		}
		lines[i] = strings.Join(claims, " ") + " -> " + strings.Join(gives, " ")
	}
	return strings.Join(lines, "\n")
}

func parseGrants(text string) ([]federation.Grant, error) {
	var list []federation.Grant
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		claims, gives, found := strings.Cut(line, "->")
		if !found {
			return nil, fault.Invalid("grants", "Write each grant on its own line, as in ref=refs/heads/main -> images:create 300s.")
		}
		g := federation.Grant{Claims: map[string]string{}}
		for _, pair := range strings.Fields(claims) {
			name, value, found := strings.Cut(pair, "=")
			if !found {
				return nil, fault.Invalid("grants", "%q is not a claim with a value, such as ref=refs/heads/main.", pair)
			}
			g.Claims[name] = value
		}
		for _, word := range words(gives) {
			if isLimit, err := parseUserLimit(word, &g.UserLimits); err != nil {
				return nil, err
			} else if isLimit {
				continue
			}
			if seconds, err := strconv.ParseInt(strings.TrimSuffix(word, "s"), 10, 64); err == nil && strings.HasSuffix(word, "s") {
				g.ExpiresIn = &seconds
			} else if pattern, isModel := strings.CutPrefix(word, modelPrefix); isModel {
				g.Models = append(g.Models, pattern)
			} else if name, isProvider := strings.CutPrefix(word, providerPrefix); isProvider {
				g.Providers = append(g.Providers, name)
			} else {
				g.Scopes = append(g.Scopes, word)
			}
		}
		list = append(list, g)
	}
	return list, nil
}

func createRule(req *request) (*view, error) {
	r := &federation.Rule{Tenant: req.workspace.In(req.env)}
	invalid := req.readRule(req.s.DB, r)
	err := req.write(func(tx *db.Tx) error {
		if invalid != nil {
			return errors.Join(invalid, req.s.Federation.Check(req.Context(), tx, req.caller(), r))
		}
		return req.s.Federation.Create(req.Context(), tx, req.caller(), r)
	})
	if err != nil {
		return nil, err
	}
	return req.redirect(req.to("federation/"+r.ID), flash{Notice: "Rule created."})
}

func (req *request) rule() (*federation.Rule, error) {
	return req.s.Federation.Get(req.Context(), req.s.DB, req.principal.Visibility(), req.id())
}

type ruleData struct {
	Rule   ruleRow
	Grants string
	Code   []codeTab // that gets a token
	allowedForm
}

func showRule(req *request, r *federation.Rule) (*view, error) {
	rows, err := req.ruleRows(r)
	if err != nil {
		return nil, err
	}
	return &view{template: "federation_rule", title: r.Name, data: ruleData{rows[0], showGrants(r.Grants), tokenTabs(req.s.PublicURL+"/oauth/token", r.ID), newAllowedForm(r.Allowed)}}, nil
}

func editRulePage(req *request, r *federation.Rule) (*view, error) {
	f, err := req.newRuleForm(r)
	return &view{template: "federation_edit", title: "Edit federation rule", data: f}, err
}

func editRule(req *request) (*view, error) {
	return req.save(req.to("federation/"+req.id()), "Rule saved.", func(tx *db.Tx) error {
		_, err := req.s.Federation.Change(req.Context(), tx, federation.RuleChange{Visibility: req.principal.Visibility(), ID: req.id(),
			Change: access.Change[federation.Rule]{By: req.caller(), Apply: func(r *federation.Rule) error {
				before := ruleFingerprint(r)
				if invalid := req.readRule(tx, r); invalid != nil {
					return errors.Join(invalid, req.s.Federation.Check(req.Context(), tx, req.caller(), r))
				}
				return req.checkEditConflict(before, ruleFingerprint(r))
			}}})
		return err
	})
}

func deleteRule(req *request) (*view, error) {
	return req.save(req.to("federation"), "Rule deleted. Tokens that it issued expire within 15 minutes.", func(tx *db.Tx) error {
		r, err := req.s.Federation.GetLocked(req.Context(), tx, req.principal.Visibility(), req.id())
		if err != nil {
			return err
		}
		return req.s.Federation.Delete(req.Context(), tx, req.caller(), r)
	})
}
