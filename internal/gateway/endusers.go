package gateway

import (
	"context"

	"github.com/go-json-experiment/json"

	"turnpike/internal/audit"
	"turnpike/internal/endusers"
	"turnpike/internal/fault"
	"turnpike/internal/limits"
	"turnpike/internal/openai"
	"turnpike/internal/spend"
)

// identifyUser finds the end user of a call: its token's, or the one that the body of a key's call names if the
// workspace reads it. A token is in the hands of a user, who must not name another one. names is nil if the body was
// not read yet. A blocked user is refused.
func (g *Gateway) identifyUser(ctx context.Context, c *Call, names *openai.UserNames) error {
	if g.EndUsers == nil || c.Batch != nil && c.Prepaid != nil { // the latter was checked when it was prepared
		return nil
	}
	p := c.Principal
	var u *endusers.Active
	var err error
	switch {
	case p.EndUserID != "":
		u, err = g.EndUsers.OfToken(ctx, p.Tenant, p.EndUserID)
	case p.ForToken:
		return nil
	default:
		u, err = g.EndUsers.OfRequest(ctx, p.Tenant, func() (string, error) {
			if names == nil {
				names = namesIn(c.Body)
			}
			return userOf(names)
		})
	}
	if err != nil || u == nil {
		return err
	}
	c.user = u
	c.Record.Note(func(e *audit.Entry) { e.EndUser = u.ID })
	if u.BlockedAt != nil {
		return fault.New(fault.UserBlocked, "This user is blocked. An admin can unblock it with PATCH /v1/users/%s.", u.ID)
	}
	return nil
}

// namesIn returns the end user that a body names.
func namesIn(body []byte) *openai.UserNames {
	var in struct {
		User             string `json:"user"`
		SafetyIdentifier string `json:"safety_identifier"`
	}
	if len(body) == 0 || json.Unmarshal(body, &in) != nil { // the provider rejects other types
		return &openai.UserNames{}
	}
	return &openai.UserNames{User: in.User, SafetyIdentifier: in.SafetyIdentifier}
}

// userOf returns the name of the end user, or an empty string.
func userOf(in *openai.UserNames) (string, error) {
	param, name := "user", in.User
	if in.SafetyIdentifier != "" {
		param, name = "safety_identifier", in.SafetyIdentifier
	}
	if name == "" {
		return "", nil
	}
	return name, endusers.CheckName(param, name)
}

// userCap returns the account of the call's end user.
func (c Call) userCap() (spend.Cap, bool) {
	if c.user == nil {
		return spend.Cap{}, false
	}
	return spend.Cap{Account: spend.Account{Level: spend.EndUser, ID: c.user.ID}, Window: c.user.Window, Limit: c.user.Budget}, true
}

// userSubject returns the rate limit of the call's end user.
func (c Call) userSubject() (limits.Subject, bool) {
	if c.user == nil || c.user.RequestsPerMinute == nil || c.Step {
		return limits.Subject{}, false
	}
	return limits.Subject{ID: c.user.ID, Limits: limits.Limits{RequestsPerMinute: *c.user.RequestsPerMinute}}, true
}
