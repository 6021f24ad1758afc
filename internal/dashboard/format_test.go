package dashboard

import "testing"

func TestCapitalLeavesValuesUnchanged(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"tick the deliveries first":               "Tick the deliveries first",
		"nothing was sent: it is paused":          "Nothing was sent: it is paused",
		"re-enter the address":                    "Re-enter the address",
		"dev@example.com is a member already":     "dev@example.com is a member already",
		`"dev" is not an email address`:           `"dev" is not an email address`,
		"monthly_budget must be a number":         "monthly_budget must be a number",
		"example.com does not answer":             "example.com does not answer",
		"Already a sentence.":                     "Already a sentence.",
		"ärger":                                   "ärger",
		"":                                        "",
		"https://example.com/ cannot be reached.": "https://example.com/ cannot be reached.",
	} {
		if got := capital(message); got != want {
			t.Errorf("%q becomes %q", message, got)
		}
	}
}
