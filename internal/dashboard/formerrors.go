package dashboard

import (
	"html/template"
	"maps"
	"regexp"
	"slices"
	"strings"

	"turnpike/internal/fault"
)

// formErrors are the reasons why a form was rejected. Those with a Param belong to a field.
type formErrors []*fault.Error

// formFields are the names of inputs whose errors have another name in the API.
var formFields = map[string]string{"temporary_raise": "temporary_raise.budget", "oauth.grant_type": "oauth", "oauth.client_id": "oauth_client_id", "oauth.client_secret": "oauth_client_secret",
	"oauth.scope": "oauth_scope", "oauth.issuer": "oauth_issuer", "oauth.token_url": "oauth_token_url", "grace_period_seconds": "grace", "api_key": "api_key_secret",
	"user_limits.budget": "budget", "user_limits.window": "window", "user_limits.requests_per_minute": "requests_per_minute"}

// newFormErrors returns the errors of a rejected form, the first one of each field. The
// error f is err itself or the first in it.
func newFormErrors(err error, f *fault.Error) (list formErrors) {
	all := fault.All(err)
	if len(all) == 0 {
		all = []*fault.Error{f}
	}
	for _, one := range all {
		if name, ok := formFields[one.Param]; ok {
			field := *one
			if rest, found := strings.CutPrefix(field.Message, field.Param+" "); found {
				field.Message = name + " " + rest
			}
			field.Param, one = name, &field
		}
		if one.Param == "" || list.of(one.Param) == nil {
			list = append(list, one)
		}
	}
	return list
}

// of returns the error of a field, or nil.
func (list formErrors) of(field string) *fault.Error {
	for _, f := range list {
		if f.Param == field {
			return f
		}
	}
	return nil
}

// Wrong reports whether the field has an error.
func (s *shell) Wrong(field string) bool { return s.Problem.of(field) != nil }

// Autofocus returns the attribute for a page's first field, unless another field has to be corrected.
func (s *shell) Autofocus() template.HTMLAttr {
	if s.Problem != nil {
		return ""
	}
	return "autofocus"
}

// Check returns the attributes of an input with an error. The first of them gets the focus.
func (s *shell) Check(field string) template.HTMLAttr { return s.check(field, `aria-invalid="true"`) }

// CheckGroup is Check for a fieldset.
func (s *shell) CheckGroup(field string) template.HTMLAttr {
	return s.check(field, `data-invalid tabindex="-1"`)
}

func (s *shell) check(field, attributes string) template.HTMLAttr {
	f := s.Problem.of(field)
	if f == nil || s.shown[f] {
		return ""
	}
	attributes += ` aria-describedby="` + errorID(field) + `"`
	if !s.focused {
		s.focused = true
		attributes += " autofocus"
	}
	return template.HTMLAttr(attributes)
}

// FieldError returns the message below an input with an error. Each error is shown once.
func (s *shell) FieldError(field string) template.HTML {
	f := s.Problem.of(field)
	if f == nil || s.shown[f] {
		return ""
	}
	s.shown[f] = true
	return template.HTML(`<small class="field-error" id="` + errorID(field) + `">` + template.HTMLEscapeString(formMessage(f)) + `</small>`)
}

// Summary returns the messages that aren't shown below a field.
func (s *shell) Summary() (messages []string) {
	for _, f := range s.Problem {
		if !s.shown[f] {
			messages = append(messages, formMessage(f))
		}
	}
	return messages
}

// Discarded returns what was sent to a form that someone else changed meanwhile, so that it can be
// typed again.
func (s *shell) Discarded() (list []struct{ Name, Value string }) {
	for _, name := range slices.Sorted(maps.Keys(s.req.discarded)) {
		value := strings.Join(s.req.discarded[name], ", ")
		if value != "" && name != "seen" && name != "limits" && !strings.HasSuffix(name, ".id") && isSaved(name) && !isSecret(name) {
			list = append(list, struct{ Name, Value string }{fieldName(name), value})
		}
	}
	return list
}

var notInID = regexp.MustCompile(`[^a-zA-Z0-9_-]+`)

func errorID(field string) string { return "error-" + notInID.ReplaceAllString(field, "-") }

// fieldNames are the names of fields on pages, for messages that begin with the name of the API.
// Others are the API's, with spaces.
var fieldNames = map[string]string{
	"url": "The address", "rate_limit": "The limit", "monthly_budget": "The budget per month", "monthly_credits": "The credits per month",
	"allowed_ips": "Allowed IPs", "allowed_tools": "The tools", "allowed_models": "The models", "allowed_providers": "The providers",
	"alert_thresholds": "Alert at", "alert_threshold": "The alert", "requests_per_second": "The rate limit", "id": "The ID", "external_id": "The external ID",
	"oauth": "The grant", "oauth_client_id": "The client ID", "oauth_client_secret": "The client secret", "oauth_scope": "The scope", "oauth_issuer": "The authorization server", "oauth_token_url": "The token URL",
	"temporary_raise.budget": "The raised budget", "temporary_raise.until": "The last day of the raise", "webhook.url": "The URL", "base_url": "The base URL",
	"alert_email": "The email", "content_log_days": "Keep content", "content_log_opt_out": "The content log", "key_id": "The key", "timeout_ms": "The timeout", "confirm_name": "The name", "api_key_secret": "The key",
	"approval_roles": "The roles", "two_approvers": "The number of approvers", "exclude_creator": "This rule",
}

// fieldMessages replace messages about fields without a value.
var fieldMessages = map[string]string{
	"name": "Enter a name.", "url": "Enter the address, as in https://example.com/path.", "events": "Select at least one event, or All events.",
	"scopes": "Select at least one permission.", "webhook.url": "Enter the URL.", "id": "Enter an ID.", "models": "Enter at least one model.",
}

// onlyAPI are parts of messages that concern only clients of the API.
var onlyAPI = regexp.MustCompile(`,? or null( for no limit)?\b| \((GET|POST|PATCH|PUT|DELETE) /v1[^)]*\)`)

// formMessage returns a message in the words of the form.
func formMessage(f *fault.Error) string {
	if text, ok := fieldMessages[f.Param]; ok && f.Code == fault.MissingParameter {
		return text
	}
	text := onlyAPI.ReplaceAllString(f.Message, "")
	last := f.Param[strings.LastIndexByte(f.Param, '.')+1:]
	for _, name := range []string{f.Param, last} {
		rest, found := strings.CutPrefix(text, name+" ")
		if name == "" || !found {
			continue
		}
		if _, known := fieldNames[name]; !known {
			name = last
		}
		return fieldName(name) + " " + rest
	}
	return text
}

func fieldName(name string) string {
	if label, known := fieldNames[name]; known {
		return label
	}
	return "The " + strings.ReplaceAll(name, "_", " ")
}
