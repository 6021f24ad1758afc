package access

import (
	"turnpike/internal/catalog"
	"turnpike/internal/fault"
)

// LimitSource is what limits the models of a principal.
type LimitSource string

// The sources of limits. The project is the one of the request.
const (
	LimitOfKey      LimitSource = "key"
	LimitOfAncestor LimitSource = "ancestor_key"
	LimitOfToken    LimitSource = "scoped_token"
	LimitOfProject  LimitSource = "project"
)

// ModelLimit limits the models that a principal may use. All limits of a principal apply.
type ModelLimit struct {
	Source LimitSource
	catalog.Allowed
}

// limitModels adds a limit, unless it allows everything.
func (p *Principal) limitModels(source LimitSource, allowed catalog.Allowed) {
	if !allowed.IsUnlimited() {
		p.ModelLimits = append(p.ModelLimits, ModelLimit{source, allowed})
	}
}

// checkModels returns an error if the lists of a key allow more than the principal may use.
func (p *Principal) checkModels(allowed catalog.Allowed) error {
	for _, limit := range p.ModelLimits {
		if err := limit.check(allowed); err != nil {
			return err
		}
	}
	return nil
}

// CheckTokenModels returns an error if the lists of a scoped token allow more than the principal may use. A token
// inherits a list that it omits.
func (p *Principal) CheckTokenModels(allowed catalog.Allowed) error {
	for _, limit := range p.ModelLimits {
		inherited := allowed
		if inherited.Models == nil {
			inherited.Models = limit.Models
		}
		if inherited.Providers == nil {
			inherited.Providers = limit.Providers
		}
		if err := limit.check(inherited); err != nil {
			return err
		}
	}
	return nil
}

func (l ModelLimit) check(allowed catalog.Allowed) error {
	wider := allowed.FirstWider(l.Allowed)
	if wider == nil {
		return nil
	}
	return fault.Param(fault.InsufficientScope, wider.Field, "A key can only hand down what it may use itself, and it may not use %q. Set %s to a part of its own list.", wider.Entry, wider.Field)
}

// TokenLimits are the limits of a scoped token that also apply to the work that it creates.
type TokenLimits struct {
	catalog.Allowed
	EndUserID string `json:"end_user_id,omitzero"` // whom the work is charged to
}

// TokenLimits returns the limits of the principal's token, or nil if it is none.
func (p *Principal) TokenLimits() *TokenLimits {
	if p.Token == nil {
		return nil
	}
	return &TokenLimits{p.Token.Allowed, p.Token.EndUserID}
}

// limitByToken applies the limits of the token that created some work; nil has no effect.
func (p *Principal) limitByToken(limits *TokenLimits) {
	if limits != nil {
		p.limitModels(LimitOfToken, limits.Allowed)
		p.EndUserID, p.ForToken = limits.EndUserID, true
	}
}
