package tools

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/accounts"
	"turnpike/internal/fault"
)

func TestConditionsDecideWhichCallsNeedApproval(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path      string
		operator  Operator
		value     string
		arguments string
		want      bool
	}{
		{"/amount", Greater, "100", `{"amount":100.5}`, true},
		{"/amount", Greater, "100", `{"amount":100}`, false},
		{"/amount", GreaterOrEqual, "100", `{"amount":1e2}`, true},
		{"/amount", Less, "0", `{"amount":-0.1}`, true},
		{"/amount", LessOrEqual, "0", `{"amount":1}`, false},
		{"/amount", Equal, "1.0", `{"amount":1}`, true},
		{"/to", Equal, `"me"`, `{"to":"me"}`, true},
		{"/to", NotEqual, `"me"`, `{"to":"me"}`, false},
		{"/to", NotEqual, `"me"`, `{"to":"you"}`, true},
		{"/a/b/1", Equal, "true", `{"a":{"b":[false,true]}}`, true},
		{"/a/b/1", Equal, "true", `{"a":{"b":[true,false]}}`, false},
		{"/a~1b", Equal, "null", `{"a/b":null}`, true},
		// The model must not avoid an approval by an odd value.
		{"/amount", Greater, "100", `{}`, true},
		{"/amount", Greater, "100", `{"amount":"5"}`, true},
		{"/amount", Greater, "100", `{"amount":{"x":5}}`, true},
		{"/amount", Equal, `"5"`, `{"amount":["5"]}`, true},
		{"/a/b/9", Equal, "true", `{"a":{"b":[]}}`, true},
	} {
		r := ApprovalRules{Conditions: []Condition{{c.path, c.operator, jsontext.Value(c.value)}}}
		if err := r.Check("r"); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		if got := r.Apply(json.RawMessage(c.arguments)); got != c.want {
			t.Errorf("%s %s %s in %s: got %t, want %t", c.path, c.operator, c.value, c.arguments, got, c.want)
		}
	}
	if !(&ApprovalRules{}).Apply(json.RawMessage(`{}`)) {
		t.Error("without conditions, a call needs no approval")
	}
}

func TestInvalidApprovalRulesNameTheField(t *testing.T) {
	t.Parallel()
	many := make([]Condition, maxConditions+1)
	for param, r := range map[string]ApprovalRules{
		"r.on_expiry":              {OnExpiry: "ignore"},
		"r.roles":                  {Roles: []accounts.Role{"king"}},
		"r.approvers":              {Approvers: 3},
		"r.conditions":             {Conditions: many},
		"r.conditions[0].path":     {Conditions: []Condition{{"amount", Equal, jsontext.Value("1")}}},
		"r.conditions[0].operator": {Conditions: []Condition{{"/a", "like", jsontext.Value("1")}}},
		"r.conditions[0].value":    {Conditions: []Condition{{"/a", Greater, jsontext.Value(`"1"`)}}},
	} {
		f, ok := fault.As(r.Check("r"))
		if !ok || f.Param != param || !strings.Contains(f.Message, param) {
			t.Errorf("%s: got %v", param, f)
		}
	}
	spec := Spec{Approval: Approval{mode: never}}
	if f, ok := fault.As(spec.setRules("tools[0]", &ApprovalRules{})); !ok || f.Param != "tools[0].approval_rules" {
		t.Errorf("rules of a tool without approvals: got %v", f)
	}
}
