package tools

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/accounts"
	"turnpike/internal/fault"
)

// Expiry is what happens when no one decides about a call in time.
type Expiry string

// The values of on_expiry.
const (
	ExpiryFails   Expiry = "fail"   // the run fails
	ExpiryReports Expiry = "report" // the model learns that the call wasn't made, and the run continues
)

const (
	maxApprovers  = 2
	maxConditions = 10
)

// ApprovalRules say who decides about the calls of a tool, and which calls need a decision. The zero value has
// the defaults.
type ApprovalRules struct {
	OnExpiry       Expiry          `json:"on_expiry,omitempty"`       // empty means fail
	Roles          []accounts.Role `json:"roles,omitempty"`           // that may decide; empty allows everyone with the scope
	Approvers      int64           `json:"approvers,omitempty"`       // 0 means one
	ExcludeCreator bool            `json:"exclude_creator,omitempty"` // of the run
	// Conditions limit approvals to calls that meet one of them. Without any, every call needs one.
	Conditions []Condition `json:"conditions,omitempty"`
}

// IsZero reports whether all rules are the defaults.
func (r *ApprovalRules) IsZero() bool { return reflect.ValueOf(*r).IsZero() }

// Condition compares a value in the arguments of a call.
type Condition struct {
	Path     string         `json:"path"` // a JSON Pointer, such as /amount
	Operator Operator       `json:"operator"`
	Value    jsontext.Value `json:"value"`
}

// Operator is a comparison.
type Operator string

// The operators. Those after NotEqual compare numbers.
const (
	Equal          Operator = "eq"
	NotEqual       Operator = "ne"
	Greater        Operator = "gt"
	GreaterOrEqual Operator = "gte"
	Less           Operator = "lt"
	LessOrEqual    Operator = "lte"
)

var operators = []Operator{Equal, NotEqual, Greater, GreaterOrEqual, Less, LessOrEqual}

// setRules reads approval_rules of a tool, whose require_approval is set.
func (s *Spec) setRules(at string, given *ApprovalRules) error {
	if given == nil {
		return nil
	}
	param := at + ".approval_rules"
	if s.Registered {
		return fault.Invalid(param, "%s has no server_url, so it names a registered tool server, which has its own approval rules. Omit approval_rules, or send server_url.", at)
	}
	if s.Approval.mode == never {
		return fault.Invalid(param, "%s has approval_rules, but its calls need no approval. Set %s.require_approval to %q.", at, at, always)
	}
	if err := given.Check(param); err != nil {
		return err
	}
	s.Rules = *given
	return nil
}

// Check validates the rules and returns the errors of all fields. param is their path.
func (r *ApprovalRules) Check(param string) error {
	var invalid []error
	if r.OnExpiry != "" && r.OnExpiry != ExpiryFails && r.OnExpiry != ExpiryReports {
		invalid = append(invalid, fault.Invalid(param+".on_expiry", "%s.on_expiry must be fail or report.", param))
	}
	for i, role := range r.Roles {
		if !slices.Contains(accounts.Roles, role) || slices.Contains(r.Roles[:i], role) {
			invalid = append(invalid, fault.Invalid(param+".roles", "%s.roles must have different roles: owner, admin or developer.", param))
			break
		}
	}
	if r.Approvers < 0 || r.Approvers > maxApprovers {
		invalid = append(invalid, fault.Invalid(param+".approvers", "%s.approvers must be 1 or %d.", param, maxApprovers))
	}
	if len(r.Conditions) > maxConditions {
		return errors.Join(append(invalid, fault.Invalid(param+".conditions", "%s.conditions can have at most %d entries.", param, maxConditions))...)
	}
	for i, c := range r.Conditions {
		invalid = append(invalid, c.check(fmt.Sprintf("%s.conditions[%d]", param, i)))
	}
	return errors.Join(invalid...)
}

func (c *Condition) check(at string) error {
	if !jsontext.Pointer(c.Path).IsValid() || c.Path == "" || len(c.Path) > 256 {
		return fault.Invalid(at+".path", "%s.path must be a JSON Pointer to a value in the arguments, such as /amount.", at)
	}
	if !slices.Contains(operators, c.Operator) {
		return fault.Invalid(at+".operator", "%s.operator must be eq, ne, gt, gte, lt or lte.", at)
	}
	switch kind := c.Value.Kind(); {
	case len(c.Value) == 0:
		return fault.Missing(at+".value", "%s.value is required.", at)
	case kind == jsontext.KindBeginObject || kind == jsontext.KindBeginArray:
		return fault.Invalid(at+".value", "%s.value must be a string, a number, a boolean or null.", at)
	case c.Operator != Equal && c.Operator != NotEqual && kind != jsontext.KindNumber:
		return fault.Invalid(at+".value", "%s.value must be a number for the operator %s.", at, c.Operator)
	}
	if _, err := decode(json.RawMessage(c.Value)); err != nil {
		return fault.Invalid(at+".value", "%s.value is not usable: %s.", at, err)
	}
	return nil
}

// Apply reports whether a call with the arguments needs a decision. A value that is missing or can't be compared meets
// a condition, because the model chooses the arguments.
func (r *ApprovalRules) Apply(arguments json.RawMessage) bool {
	if len(r.Conditions) == 0 {
		return true
	}
	value, err := decode(arguments)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(r.Conditions, func(c Condition) bool { return c.met(value) })
}

func (c *Condition) met(arguments any) bool {
	got, found := resolve(arguments, jsontext.Pointer(c.Path))
	want, err := decode(json.RawMessage(c.Value))
	if !found || err != nil {
		return true
	}
	a, aIsNumber := number(got)
	b, bIsNumber := number(want)
	if aIsNumber && bIsNumber {
		return slices.Contains(map[int][]Operator{
			-1: {NotEqual, Less, LessOrEqual}, 0: {Equal, GreaterOrEqual, LessOrEqual}, 1: {NotEqual, Greater, GreaterOrEqual},
		}[a.Cmp(b)], c.Operator)
	}
	switch c.Operator {
	case Equal:
		return got == want
	case NotEqual:
		return got != want
	}
	return true // not a number
}

// number returns a decoded JSON number.
func number(v any) (*big.Rat, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return nil, false
	}
	return new(big.Rat).SetString(n.String())
}

// resolve returns the value that a pointer leads to.
func resolve(v any, p jsontext.Pointer) (any, bool) {
	for token := range p.Tokens() {
		switch in := v.(type) {
		case map[string]any:
			next, found := in[token]
			if !found {
				return nil, false
			}
			v = next
		case []any:
			var i int
			if _, err := fmt.Sscanf(token, "%d", &i); err != nil || i < 0 || i >= len(in) || strings.TrimLeft(token, "0123456789") != "" {
				return nil, false
			}
			v = in[i]
		default:
			return nil, false
		}
	}
	switch v.(type) {
	case map[string]any, []any:
		return nil, false // can't be compared
	}
	return v, true
}
