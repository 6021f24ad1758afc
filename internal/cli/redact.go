package cli

import (
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"turnpike/internal/config"
	"turnpike/internal/leaks"
)

// redacted replaces a secret in a support bundle.
const redacted = "***"

// minSecret is the length of the shortest value that is removed from text. Shorter
// ones would match parts of ordinary words.
const minSecret = 4

var (
	secretVariable = regexp.MustCompile(`(?i)KEY|SECRET|TOKEN|PASS|CREDENTIAL|HEADERS|AUTH|DATABASE_URL|SMTP_URL`)
	// secretShapes match secrets that no setting has, such as those of clients in
	// the log. The first group is kept.
	secretShapes = []*regexp.Regexp{
		regexp.MustCompile(`(?i)((?:bearer|basic)\s+)[^\s"',;]+`),
		regexp.MustCompile(`(://[^/\s:@"]*:)[^/\s@"]+(?:@)`),
		regexp.MustCompile(`\b(tp_[a-z]+_)[A-Za-z0-9]{8,}`),
		regexp.MustCompile(`\b(whsec_|sk-|AKIA|ghp_|glpat-|xox[abp]-)[A-Za-z0-9+/=_-]{8,}`),
		regexp.MustCompile(`\b(eyJ)[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+`),
		regexp.MustCompile(`(?i)((?:setup|reset|invite|invitation|join|token|signature|sig|key|secret|password|code)(?:=|%3D))[^&\s"']+`),
		regexp.MustCompile(`(?i)("[a-z_]*(?:password|secret|token|api_key|apikey|authorization|cookie)"\s*:\s*")[^"]+`),
		regexp.MustCompile(`(/(?:dashboard/)?(?:setup|reset|invitations?|join|links?)/)[A-Za-z0-9_-]{12,}`),
	}
)

// redactor removes secrets from text.
type redactor struct{ values []string }

// newRedactor knows the secrets in the settings, in the environment and in the data directory.
func newRedactor(c config.Config, environ []string) *redactor {
	values := c.Secrets()
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if !secretVariable.MatchString(name) {
			continue
		}
		values = append(values, value)
		for part := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ',' || r == '=' }) { // OTLP headers
			values = append(values, part)
		}
		if strings.HasSuffix(name, "_FILE") {
			if text, err := os.ReadFile(value); err == nil {
				values = append(values, strings.TrimSpace(string(text)))
			}
		}
	}
	if text, err := os.ReadFile(filepath.Join(c.Data, "master.key")); err == nil {
		values = append(values, strings.TrimSpace(string(text)))
	}
	r := &redactor{}
	for _, v := range values {
		escaped, _ := json.Marshal(v) // never fails for a string
		for _, form := range []string{v, strings.Trim(string(escaped), `"`), url.QueryEscape(v), url.PathEscape(v)} {
			if len(form) >= minSecret && !plainValues[form] {
				r.values = append(r.values, form)
			}
		}
	}
	// Longer ones first, because a secret may contain another.
	slices.SortFunc(r.values, func(a, b string) int { return len(b) - len(a) })
	r.values = slices.Compact(r.values)
	return r
}

// plainValues are values of such variables that aren't secrets.
var plainValues = map[string]bool{"true": true, "false": true, "none": true, "Bearer": true, "Authorization": true, "authorization": true}

func (r *redactor) redact(text []byte) []byte {
	for _, v := range r.values {
		text = bytes.ReplaceAll(text, []byte(v), []byte(redacted))
	}
	for _, secret := range leaks.Find(text) {
		text = bytes.ReplaceAll(text, []byte(secret), []byte(redacted))
	}
	for i, shape := range secretShapes {
		with := "${1}" + redacted
		if i == 1 {
			with += "@"
		}
		text = shape.ReplaceAll(text, []byte(with))
	}
	return text
}
