package contentlog

import (
	"regexp"
	"slices"
	"strings"

	"turnpike/internal/keyring"
)

// masked stands for a secret.
const masked = "***"

// secretNames are the members whose strings are secret, in lower case and without dashes and underscores.
var secretNames = map[string]bool{"authorization": true, "apikey": true, "xapikey": true, "password": true, "passwd": true, "secret": true, "clientsecret": true,
	"accesstoken": true, "refreshtoken": true, "idtoken": true, "authtoken": true, "bearertoken": true, "privatekey": true, "secretkey": true, "cookie": true, "setcookie": true}

// shape is the format of a secret. A text is searched for it only if it has one of the words, in lower case. The
// groups are kept.
type shape struct {
	words   []string
	pattern *regexp.Regexp
}

var shapes = []shape{
	{[]string{"-----begin"}, regexp.MustCompile(`(-----BEGIN [A-Z ]*PRIVATE KEY-----)[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`)},
	{[]string{"sk-"}, regexp.MustCompile(`\b(sk-(?:ant-|proj-|svcacct-|or-)?)[A-Za-z0-9_-]{16,}`)},
	{[]string{"_live_", "_test_"}, regexp.MustCompile(`\b([srp]k_(?:live|test)_)[A-Za-z0-9]{10,}`)},
	{[]string{string(keyring.WebhookSecret), "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "npm_", "hf_", "gsk_", "xai-", "pypi-", "dop_v1_", "shpat_", "sq0"},
		regexp.MustCompile(`\b(whsec_|gh[pousr]_|github_pat_|glpat-|npm_|hf_|gsk_|xai-|pypi-|dop_v1_|shpat_|sq0[a-z]{3}-)[A-Za-z0-9+/=_-]{16,}`)},
	{[]string{"xox", "xapp-"}, regexp.MustCompile(`\b(xox[abeoprs]-|xapp-)[A-Za-z0-9-]{10,}`)},
	{[]string{"akia", "asia"}, regexp.MustCompile(`\b(AKIA|ASIA)[A-Z0-9]{16}\b`)},
	{[]string{"aiza", "ya29."}, regexp.MustCompile(`\b(AIza|ya29\.)[A-Za-z0-9_-]{20,}`)},
	{[]string{"sg."}, regexp.MustCompile(`\b(SG\.)[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}`)},
	{[]string{"eyj"}, regexp.MustCompile(`\b(eyJ)[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`)},
	{[]string{"bearer", "basic"}, regexp.MustCompile(`(?i)\b((?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{12,}`)},
	{[]string{"://"}, regexp.MustCompile(`(://[^/\s:@"'<>]*:)[^/\s@"'<>]+(@)`)},
	{[]string{"key", "secret", "passw", "token", "authorization"},
		regexp.MustCompile(`(?i)\b((?:[a-z0-9]+[_-])*(?:api[_-]?key|secret(?:[_-]?(?:access[_-]?)?key)?|password|passwd|(?:access|refresh|auth|bearer|id)[_-]?token|authorization|private[_-]?key)\\?["']?\s*[:=]\s*\\?["']?)[^\s"',;&}\\]{6,}`)},
}

// mask replaces the secrets in a text.
func mask(s string) string {
	if len(s) < 8 { // no secret is that short
		return s
	}
	s = keyring.Mask(s)
	lower := strings.ToLower(s)
	for _, form := range shapes {
		if slices.ContainsFunc(form.words, func(w string) bool { return strings.Contains(lower, w) }) {
			s = form.pattern.ReplaceAllString(s, "${1}"+masked+"${2}")
		}
	}
	return s
}
