package people_test

import (
	"strings"
	"testing"

	"turnpike/internal/fault"
	"turnpike/internal/people"
)

func TestPasswordMustBeHardToGuess(t *testing.T) {
	t.Parallel()
	const email = "ada.lovelace@example.com"
	for why, bad := range map[string][]string{
		"at least 10 characters": {"", "short", "123456789", "пароль и"},
		"at most 256 characters": {strings.Repeat("a few words ", 22)},
		"can't use":              {"bad\xff utf8 text"},
		"most common":            {"1234567890", "password12", "Password12", "QWERTYUIOP", "qwertyuiop", "password123", "Password1234", "iloveyou12", "1q2w3e4r5t", "administrator"},
		"simple pattern": {strings.Repeat("x", 13), strings.Repeat("x", 256), "ababababababab", "112211221122", "34567890123", "9876543210987", "klmnopqrstu",
			"ZYXWVUTSRQPO", "ghjklzxcvbnm", "lkjhgfdsapoiuyt", "qsdfghjklmwx"},
		"email address": {email, " Ada.Lovelace@example.com", "ada.lovelace", "Ada.Lovelace1", "ada.lovelace2026!"},
	} {
		for _, password := range bad {
			err := people.CheckPassword(password, email)
			want(t, err, fault.InvalidParameter)
			if err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("%q: got %v, want a refusal that says %q", password, err, why)
			}
		}
	}
	for _, good := range []string{"correct horse battery", "пароль и слово", "x7#Kp9!mQ2", "lovelace wrote the first", "abcdefghij but longer"} {
		if err := people.CheckPassword(good, email); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}

func TestHashCostMeetsOWASPMinimum(t *testing.T) {
	t.Parallel()
	if people.DefaultCost.Memory < 19<<10 || people.DefaultCost.Passes < 2 {
		t.Errorf("a hash costs %+v, want at least 19 MiB and two passes", people.DefaultCost)
	}
}
