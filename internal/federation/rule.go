// Package federation exchanges tokens of OpenID Connect issuers, such as GitHub Actions or a Kubernetes
// cluster, for scoped tokens. A rule says which tokens of an issuer it accepts, whose key pays, and what
// the scoped token may do.
package federation

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

const (
	maxRules     = 100 // per workspace and environment
	maxGrants    = 20
	maxClaims    = 10 // that a grant requires
	maxClaimText = 512
)

// Rule accepts tokens of an issuer and exchanges them for scoped tokens of a key.
type Rule struct {
	ID string
	accounts.Tenant
	Project  string // of the key
	Name     string
	Issuer   string
	Audience string
	Subject  string // may contain * after its beginning
	KeyID    string // the parent of the scoped tokens
	// Scopes are what each token may do. Grants add to them.
	Scopes []string
	// Allowed are models and providers that each token may use. Grants add to them.
	Allowed catalog.Allowed
	Grants  []Grant
	// ExpiresIn is the lifetime of the scoped tokens in seconds.
	ExpiresIn int64
	// UserClaim is the claim that has the name of the token's end user, whose account gets the limits. It is empty for
	// tokens without an end user.
	UserClaim  string
	UserLimits accounts.UserLimits
	// MetadataClaims are claims that the scoped token's metadata contains, and so the request log.
	MetadataClaims []string
	CreatedAt      time.Time
	CreatedBy      string
	LastUsedAt     *time.Time
}

// Grant adds scopes to tokens with some claims, limits their models, providers and end users, or shortens their lifetime.
type Grant struct {
	// Claims must all match. A * in a value stands for anything.
	Claims map[string]string `json:"claims"`
	Scopes []string          `json:"scopes"`
	// A token may use what the lists of the rule and of all grants that apply have together, or everything that
	// the key may use if there is no list.
	catalog.Allowed
	ExpiresIn *int64 `json:"expires_in"`
	// UserLimits replace those of the rule, field by field. Later grants win.
	UserLimits accounts.UserLimits `json:"user_limits,omitzero"`
}

const ruleColumns = "id, workspace_id, environment, project, name, issuer, audience, subject, key_id, scopes, grants, expires_in, metadata_claims, created_at, created_by, last_used_at, allowed_models, allowed_providers, user_claim, user_budget, user_window, user_requests_per_minute"

var scanRule = db.Scanner(func(r *Rule) []any {
	return []any{&r.ID, &r.WorkspaceID, &r.Environment, &r.Project, &r.Name, &r.Issuer, &r.Audience, &r.Subject, &r.KeyID, &r.Scopes, &r.Grants, &r.ExpiresIn,
		&r.MetadataClaims, &r.CreatedAt, &r.CreatedBy, &r.LastUsedAt, &r.Allowed.Models, &r.Allowed.Providers, &r.UserClaim, &r.UserLimits.Budget, &r.UserLimits.Window,
		&r.UserLimits.RequestsPerMinute}
})

// Create stores a new rule.
func (s *Service) Create(ctx context.Context, tx *db.Tx, by access.Caller, r *Rule) error {
	if err := s.Check(ctx, tx, by, r); err != nil {
		return err
	}
	// The lock makes the count exact.
	if err := accounts.LockWorkspace(ctx, tx, r.WorkspaceID); err != nil {
		return err
	}
	n, err := db.Value[int](tx.QueryRow(ctx, "SELECT count(*) FROM federation_rules WHERE workspace_id = $1 AND environment = $2", r.WorkspaceID, r.Environment))
	if err != nil {
		return err
	}
	if n >= maxRules {
		return fault.New(fault.LimitReached, "A workspace can have at most %d federation rules per environment. Delete one first.", maxRules)
	}
	r.ID, r.CreatedAt, r.CreatedBy = ids.New(ids.FederationRule), s.Now(), by.Actor.Name
	_, err = tx.Exec(ctx, db.Insert("federation_rules", ruleColumns),
		r.ID, r.WorkspaceID, r.Environment, db.OrNull(r.Project), r.Name, r.Issuer, r.Audience, r.Subject, r.KeyID, db.JSON(r.Scopes), db.JSON(r.Grants), r.ExpiresIn,
		db.JSON(r.MetadataClaims), r.CreatedAt.UnixMicro(), r.CreatedBy, nil, db.NullList(r.Allowed.Models), db.NullList(r.Allowed.Providers), db.OrNull(r.UserClaim), (*int64)(r.UserLimits.Budget),
		db.OrNull(r.UserLimits.Window), r.UserLimits.RequestsPerMinute)
	if err != nil {
		return err
	}
	return s.log(ctx, tx, by.Actor, r, "federation_rule.created")
}

// RuleChange is a caller's change of a rule that it can see.
type RuleChange struct {
	access.Change[Rule]
	Visibility visibility.Filter
	ID         string
}

// Change changes a rule. Tokens that it has issued stay valid until they expire. Like a deletion, a change needs
// the right to manage the key that the stored rule has.
func (s *Service) Change(ctx context.Context, tx *db.Tx, c RuleChange) (*Rule, error) {
	r, err := s.GetLocked(ctx, tx, c.Visibility, c.ID)
	if err != nil {
		return nil, err
	}
	if err := c.Apply(r); err != nil {
		return nil, err
	}
	return r, s.update(ctx, tx, c.By, r)
}

// update stores a changed rule.
func (s *Service) update(ctx context.Context, tx *db.Tx, by access.Caller, r *Rule) error {
	if err := s.checkStored(ctx, tx, by, r); err != nil {
		return err
	}
	if err := s.Check(ctx, tx, by, r); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE federation_rules SET project = $2, name = $3, issuer = $4, audience = $5, subject = $6, key_id = $7, scopes = $8, grants = $9, expires_in = $10,
		metadata_claims = $11, allowed_models = $12, allowed_providers = $13, user_claim = $14, user_budget = $15, user_window = $16, user_requests_per_minute = $17 WHERE id = $1`, r.ID, db.OrNull(r.Project), r.Name, r.Issuer, r.Audience, r.Subject, r.KeyID, db.JSON(r.Scopes), db.JSON(r.Grants), r.ExpiresIn,
		db.JSON(r.MetadataClaims), db.NullList(r.Allowed.Models), db.NullList(r.Allowed.Providers), db.OrNull(r.UserClaim), (*int64)(r.UserLimits.Budget), db.OrNull(r.UserLimits.Window),
		r.UserLimits.RequestsPerMinute); err != nil {
		return err
	}
	return s.log(ctx, tx, by.Actor, r, "federation_rule.updated")
}

// Delete deletes a rule.
func (s *Service) Delete(ctx context.Context, tx *db.Tx, by access.Caller, r *Rule) error {
	if err := s.checkStored(ctx, tx, by, r); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "DELETE FROM federation_rules WHERE id = $1", r.ID); err != nil {
		return err
	}
	return s.log(ctx, tx, by.Actor, r, "federation_rule.deleted")
}

// checkStored checks that the caller may manage the key that the rule has in the database, whether or not that key
// still works.
func (s *Service) checkStored(ctx context.Context, tx *db.Tx, by access.Caller, r *Rule) error {
	id, err := db.Value[string](tx.QueryRow(ctx, "SELECT key_id FROM federation_rules WHERE id = $1", r.ID))
	if err != nil {
		return db.OrNoSuch(err, "federation rule", r.ID)
	}
	k, err := s.Keys.Get(ctx, tx, visibility.Filter{Tenant: r.Tenant}, id)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil
	case err != nil:
		return err
	case !by.CanManage(k):
		return tooWide(id)
	}
	return nil
}

func tooWide(keyID string) error {
	return fault.Param(fault.InsufficientScope, "key_id", "The key %s is wider than what you may manage, so its tokens can't be handed out by a rule of yours.", keyID)
}

func (s *Service) log(ctx context.Context, tx *db.Tx, by audit.Actor, r *Rule, action string) error {
	return by.Log(ctx, tx, audit.Action{Tenant: r.Tenant, Project: r.Project, Action: action, Target: r.ID}, map[string]any{"name": r.Name, "issuer": r.Issuer,
		"audience": r.Audience, "subject": r.Subject, "key_id": r.KeyID, "scopes": r.Scopes, "grants": r.Grants, "expires_in": r.ExpiresIn}, s.Now())
}

// Get returns a visible rule.
func (s *Service) Get(ctx context.Context, q db.Querier, vis visibility.Filter, id string) (*Rule, error) {
	return s.get(ctx, q, vis, id, "")
}

// GetLocked is Get, and locks the rule.
func (s *Service) GetLocked(ctx context.Context, tx *db.Tx, vis visibility.Filter, id string) (*Rule, error) {
	return s.get(ctx, tx, vis, id, tx.Lock("federation_rules"))
}

func (s *Service) get(ctx context.Context, q db.Querier, vis visibility.Filter, id, lock string) (*Rule, error) {
	r, err := db.FindOne(ctx, q, db.Search{Table: "federation_rules", Columns: ruleColumns, Where: vis.Rows(), Lock: lock}, id, scanRule)
	return r, db.OrNoSuch(err, "federation rule", id)
}

// List returns a page of the visible rules.
func (s *Service) List(ctx context.Context, q db.Querier, vis visibility.Filter, page db.Page) (*db.Found[*Rule], error) {
	search := db.Search{Table: "federation_rules", Columns: ruleColumns, Where: vis.Rows()}
	return db.Find(ctx, q, search, page, db.Record[*Rule]{Scan: scanRule, ID: func(r *Rule) string { return r.ID }})
}

// Check validates a rule and its parent key, and returns the errors of all fields. A rule that no token can
// satisfy is rejected.
func (s *Service) Check(ctx context.Context, tx *db.Tx, by access.Caller, r *Rule) error {
	r.ExpiresIn = cmp.Or(r.ExpiresIn, int64(access.MaxTokenLifetime/time.Second))
	errs := []error{accounts.CheckName("name", r.Name), s.checkIssuer(r), checkText("audience", r.Audience), checkSubject(r.Subject), checkLifetime("expires_in", r.ExpiresIn)}
	parent, err := s.parent(ctx, tx, by, r)
	if _, invalid := fault.As(err); err != nil && !invalid {
		return err
	}
	errs = append(errs, err)
	if err == nil {
		r.Project = parent.Project
		errs = append(errs, r.checkScopes(parent), r.checkGrants(parent), r.checkAllowed(parent))
	}
	return errors.Join(append(errs, r.checkUser(), r.checkMetadata())...)
}

func (r *Rule) checkScopes(parent *access.Principal) (err error) {
	switch {
	case len(r.Scopes) > 0:
		r.Scopes, err = access.CheckTokenScopes(parent, "scopes", r.Scopes)
	case !slices.ContainsFunc(r.Grants, func(g Grant) bool { return len(g.Scopes) > 0 }):
		err = fault.Missing("scopes", "scopes must name what the tokens may do, unless a grant does.")
	}
	return err
}

// checkAllowed checks the lists of the rule and its grants, which may all apply to a token.
func (r *Rule) checkAllowed(parent *access.Principal) error {
	if err := cmp.Or(r.Allowed.Check(), parent.CheckTokenModels(r.Allowed)); err != nil {
		return err
	}
	all := r.Allowed
	for _, g := range r.Grants {
		if g.Models != nil && len(g.Models) == 0 || g.Providers != nil && len(g.Providers) == 0 {
			return fault.Invalid("grants", "allowed_models and allowed_providers of a grant must have at least one entry. Omit them to add nothing.")
		}
		all = all.Join(g.Allowed)
	}
	return inGrants(cmp.Or(all.Check(), parent.CheckTokenModels(all)))
}

// CheckGranted checks that the models and providers in grants exist.
func CheckGranted(grants []Grant, exist func(catalog.Allowed) error) error {
	for _, g := range grants {
		if err := exist(g.Allowed); err != nil {
			return inGrants(err)
		}
	}
	return nil
}

// inGrants makes an error about a list one about the grants.
func inGrants(err error) error {
	if f, ok := fault.As(err); ok {
		f.Param = "grants"
	}
	return err
}

// checkIssuer requires a URL that the server may call. An issuer has no query, and its exact text is compared.
func (s *Service) checkIssuer(r *Rule) error {
	if r.Issuer == "" {
		return fault.Missing("issuer", "issuer must be the https:// URL of an OpenID Connect issuer, such as https://token.actions.githubusercontent.com.")
	}
	u, err := s.Guard.CheckURL("issuer", r.Issuer)
	if err != nil {
		return err
	}
	if u.RawQuery != "" {
		return fault.Invalid("issuer", "issuer must be a URL without a query.")
	}
	return nil
}

func checkText(param, text string) error {
	if text == "" {
		return fault.Missing(param, "%s is required.", param)
	}
	if len(text) > maxClaimText || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fault.Invalid(param, "%s must be text of at most %d bytes without control characters.", param, maxClaimText)
	}
	return nil
}

// checkSubject requires a subject that is pinned: anyone can get a token of a public issuer.
func checkSubject(subject string) error {
	if err := checkText("subject", subject); err != nil {
		return err
	}
	if strings.HasPrefix(subject, "*") {
		return fault.Invalid("subject", "subject must not begin with *, because any client of the issuer could then use the rule. Write its beginning, such as repo:acme/app:*.")
	}
	return nil
}

func checkLifetime(param string, seconds int64) error {
	if most := int64(access.MaxTokenLifetime / time.Second); seconds < 1 || seconds > most {
		return fault.Invalid(param, "%s must be from 1 to %d seconds.", param, most)
	}
	return nil
}

// parent returns the principal of the rule's key, which the caller must be allowed to manage.
func (s *Service) parent(ctx context.Context, tx *db.Tx, by access.Caller, r *Rule) (*access.Principal, error) {
	if r.KeyID == "" {
		return nil, fault.Missing("key_id", "key_id is required: the key that the tokens belong to.")
	}
	vis := visibility.Filter{Tenant: r.Tenant}
	if by.Principal != nil {
		vis = by.Principal.Visibility()
	}
	k, err := s.Keys.Get(ctx, tx, vis, r.KeyID)
	if fault.Is(err, fault.NotFound) {
		return nil, fault.Invalid("key_id", "There is no key %s in this environment.", r.KeyID)
	}
	if err != nil {
		return nil, err
	}
	if !by.CanManage(k) {
		return nil, tooWide(r.KeyID)
	}
	p, err := access.PrincipalOf(ctx, tx, k.ID, nil, s.Now())
	if err == nil && p == nil {
		err = fault.Invalid("key_id", "The key %s is revoked or has expired. Choose another one.", r.KeyID)
	}
	return p, err
}

func (r *Rule) checkGrants(parent *access.Principal) error {
	if len(r.Grants) > maxGrants {
		return fault.Invalid("grants", "grants can have at most %d entries.", maxGrants)
	}
	for i := range r.Grants {
		g := &r.Grants[i]
		if len(g.Claims) == 0 || len(g.Claims) > maxClaims {
			return fault.Invalid("grants", "Each grant must name 1 to %d claims with the values that it requires.", maxClaims)
		}
		for _, name := range slices.Sorted(maps.Keys(g.Claims)) {
			if err := cmp.Or(checkText("grants", name), checkText("grants", g.Claims[name])); err != nil {
				return err
			}
		}
		if g.ExpiresIn != nil {
			if err := checkLifetime("grants", *g.ExpiresIn); err != nil {
				return err
			}
		}
		hasLimits := g.UserLimits != (accounts.UserLimits{})
		if len(g.Scopes) == 0 && g.ExpiresIn == nil && g.IsUnlimited() && !hasLimits {
			return fault.Invalid("grants", "Each grant must have scopes, allowed_models, allowed_providers, user_limits or expires_in. Otherwise it has no effect.")
		}
		if hasLimits && r.UserClaim == "" {
			return fault.Missing("user_claim", "user_claim is required with user_limits of a grant. It is the claim with the name of the user, such as sub.")
		}
		if err := g.UserLimits.Check("user_limits."); err != nil {
			return inGrants(err)
		}
		if len(g.Scopes) > 0 {
			var err error
			if g.Scopes, err = access.CheckTokenScopes(parent, "grants", g.Scopes); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Rule) checkUser() error {
	if r.UserClaim == "" {
		if r.UserLimits != (accounts.UserLimits{}) {
			return fault.Missing("user_claim", "user_claim is required with user_limits. It is the claim with the name of the user, such as sub.")
		}
		return nil
	}
	return cmp.Or(checkText("user_claim", r.UserClaim), r.UserLimits.Check("user_limits."))
}

func (r *Rule) checkMetadata() error {
	if len(r.MetadataClaims) > maxClaims {
		return fault.Invalid("metadata_claims", "metadata_claims can have at most %d entries.", maxClaims)
	}
	for _, name := range r.MetadataClaims {
		if err := checkText("metadata_claims", name); err != nil {
			return err
		}
	}
	return nil
}
