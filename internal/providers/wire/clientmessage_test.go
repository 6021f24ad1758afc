package wire

import (
	"strings"
	"testing"

	"turnpike/internal/providers"
)

// Providers name the operator's organization, projects, resources and keys in their errors.
func TestProvidersWordsReachTheClientWithoutTheAccount(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"temperature must be at most 2.":                                                         "temperature must be at most 2.",
		"Unsupported parameter: user_location_filter":                                            "Unsupported parameter: user_location_filter",
		"The model `x` does not exist in org-a1B2c3D4e5F6 (project proj_9Zy8Xw7Vu6Ts).":          "The model `x` does not exist in *** (project ***).",
		"projects/acme-prod/locations/us/models/m not found by sa1@acme.iam.gserviceaccount.com": "***/locations/us/models/m not found by ***",
		"arn:aws:bedrock:us-east-1:123456789012:profile/a is unknown":                            "*** is unknown",
		"subscriptions/3f2504e0-4f89-11d3-9a0c-0305e82c3301 in account 123456789012":             "*** in account ***",
		"Incorrect key sk-proj-abcdefgh12345678 or the-secret-of-a-header":                       "Incorrect key *** or ***",
		"It repeats " + "tp_live_" + strings.Repeat("a", 38):                                     "It repeats tp_live_***",
		strings.Repeat("é", 2000):                                                                strings.Repeat("é", 1024) + "…",
	} {
		f := &providers.Failure{Kind: providers.KindInvalid, Status: 400}
		if got := clientMessage(f, words, []string{"the-secret-of-a-header"}); got != want {
			t.Errorf("%.80q: got %q, want %q", words, got, want)
		}
	}
}

func TestOnlyErrorsAboutTheRequestReachTheClient(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529} {
		told := status == 400 || status == 404 || status == 413 || status == 422
		if got := clientMessage(&providers.Failure{Kind: KindOf(status), Status: status}, "words", nil); (got == "words") != told {
			t.Errorf("%d: got %q", status, got)
		}
	}
	// An account without credit, as some providers report it.
	if got := clientMessage(&providers.Failure{Kind: providers.KindAuth, Status: 400}, "words", nil); got != "" {
		t.Errorf("an error about the account: got %q", got)
	}
}
