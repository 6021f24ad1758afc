package dashboard

import "testing"

func TestAMessageBeginsWithACapitalUnlessItBeginsWithAValue(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"tick the deliveries first":               "Tick the deliveries first",
		"nothing was sent: it is paused":          "Nothing was sent: it is paused",
		"e-mail addresses have an @":              "E-mail addresses have an @",
		"dev@example.com is a member already":     "dev@example.com is a member already",
		`"dev" is not an e-mail address`:          `"dev" is not an e-mail address`,
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
