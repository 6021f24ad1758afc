package dashboard

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/fault"
)

// rulesForm is the approval rules in the form of a tool server.
type rulesForm struct {
	tools.ApprovalRules
	Lines string // the conditions, one in each line
}

func newRulesForm(r tools.ApprovalRules) rulesForm {
	lines := make([]string, len(r.Conditions))
	for i, c := range r.Conditions {
		lines[i] = strings.Join([]string{c.Path, string(c.Operator), string(c.Value)}, " ")
	}
	return rulesForm{r, strings.Join(lines, "\n")}
}

// Choices are the roles that can decide.
func (rulesForm) Choices() []accounts.Role {
	return []accounts.Role{accounts.Owner, accounts.Admin, accounts.Developer}
}

// May reports whether the rules name a role.
func (f rulesForm) May(role accounts.Role) bool { return slices.Contains(f.Roles, role) }

// TwoApprovers reports whether two people must approve a call.
func (f rulesForm) TwoApprovers() bool { return f.Approvers > 1 }

// Reports reports whether the model learns that no one decided in time.
func (f rulesForm) Reports() bool { return f.OnExpiry == tools.ExpiryReports }

// Shown returns the rules that aren't the defaults, in words.
func (f rulesForm) Shown() (list []string) {
	if len(f.Roles) > 0 {
		names := make([]string, len(f.Roles))
		for i, r := range f.Roles {
			names[i] = string(r)
		}
		list = append(list, "decided by "+strings.Join(names, " or "))
	}
	if f.TwoApprovers() {
		list = append(list, "two approvers")
	}
	if f.ExcludeCreator {
		list = append(list, "not the creator")
	}
	if f.Lines != "" {
		list = append(list, "only if "+strings.ReplaceAll(f.Lines, "\n", " or "))
	}
	if f.Reports() {
		list = append(list, "reported to the model if no one decides")
	}
	return list
}

// readRules reads the approval rules of the form.
func (req *request) readRules() (r tools.ApprovalRules, err error) {
	if req.form("on_expiry") == string(tools.ExpiryReports) {
		r.OnExpiry = tools.ExpiryReports
	}
	for _, role := range req.R.PostForm["approval_roles"] {
		r.Roles = append(r.Roles, accounts.Role(role))
	}
	if req.form("two_approvers") != "" {
		r.Approvers = 2
	}
	r.ExcludeCreator = req.form("exclude_creator") != ""
	r.Conditions, err = parseConditions(req.form("conditions"))
	return r, err
}

// parseConditions reads one condition in each line, such as /amount gt 100. A value that isn't JSON is a string.
func parseConditions(text string) (list []tools.Condition, err error) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		path, rest, _ := strings.Cut(line, " ")
		operator, value, found := strings.Cut(strings.TrimSpace(rest), " ")
		if !found {
			return nil, fault.Invalid("conditions", "Enter one condition in each line: a path, an operator and a value, as in /amount gt 100.")
		}
		c := tools.Condition{Path: path, Operator: tools.Operator(operator), Value: jsontext.Value(strings.TrimSpace(value))}
		if !c.Value.IsValid() {
			if c.Value, err = jsontext.AppendQuote(nil, string(c.Value)); err != nil {
				return nil, fault.Invalid("conditions", "The values of conditions must be valid UTF-8.")
			}
		}
		list = append(list, c)
	}
	return list, nil
}

// rulesFields are the inputs of approval rules, by the names of the API.
var rulesFields = map[string]string{"roles": "approval_roles", "approvers": "two_approvers", "exclude_creator": "exclude_creator", "on_expiry": "on_expiry", "conditions": "conditions"}

var conditionParam = regexp.MustCompile(`^conditions\[(\d+)\]\.(\w+)$`)

// rulesErrors returns err with the errors of approval rules as errors of their inputs. Those of all conditions
// become one. param is the path of the rules.
func rulesErrors(err error, param string) error {
	var list []error
	var conditions []string
	for _, f := range fault.All(err) {
		name, found := strings.CutPrefix(f.Param, param+".")
		if m := conditionParam.FindStringSubmatch(name); found && m != nil {
			at, _ := strconv.Atoi(m[1]) // digits
			conditions = append(conditions, fmt.Sprintf("Condition %d: The %s %s", at+1, m[2], strings.TrimPrefix(f.Message, f.Param+" ")))
			continue
		}
		if field := rulesFields[name]; found && field != "" {
			f = fault.Param(f.Code, field, "%s", field+strings.TrimPrefix(f.Message, f.Param))
		}
		list = append(list, f)
	}
	if conditions != nil {
		list = append(list, fault.Invalid("conditions", "%s", strings.Join(conditions, " ")))
	}
	if list == nil {
		return err
	}
	return errors.Join(list...)
}
