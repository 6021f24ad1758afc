package people

import (
	_ "embed" // for the list of common passwords
	"slices"
	"strings"
	"unicode/utf8"

	"turnpike/internal/accounts"
	"turnpike/internal/fault"
)

// minDistinctCharacters is the minimum of different characters in a password.
const minDistinctCharacters = 5

//go:embed common_passwords.txt
var commonPasswords string

// keyboardRows are the alphabet, the digits, and the rows of QWERTY, QWERTZ and AZERTY keyboards.
var keyboardRows = []string{"abcdefghijklmnopqrstuvwxyz", "0123456789",
	"qwertyuiopasdfghjklzxcvbnm", "qwertzuiopasdfghjklyxcvbnm", "azertyuiopqsdfghjklmwxcvbn"}

// checkPassword rejects passwords that are too short or easy to guess by someone who knows the email
// address.
func checkPassword(password, email string) error {
	lower := accounts.NormalizeEmail(password)
	switch {
	case utf8.RuneCountInString(password) < minPassword:
		return fault.Invalid("password", "The password must have at least %d characters. Choose a few words that only you would put together.", minPassword)
	case !utf8.ValidString(password):
		return fault.Invalid("password", "The password has characters that Turnpike can't use. Choose a few words that only you would put together.")
	case len(password) > maxPassword:
		return fault.Invalid("password", "The password is too long. Use at most %d characters.", maxPassword)
	case isOwnEmail(lower, accounts.NormalizeEmail(email)):
		return fault.Invalid("password", "The password must not be your email address. Choose a few words that only you would put together.")
	case strings.Contains(commonPasswords, "\n"+lower+"\n"):
		return fault.Invalid("password", "This password is one of the 10,000 most common ones. Choose a few words that only you would put together.")
	case isPattern(lower):
		return fault.Invalid("password", "This password is a simple pattern. Choose a few words that only you would put together.")
	}
	return nil
}

// isOwnEmail reports whether a password is the email address or its local part, possibly surrounded by
// digits or punctuation.
func isOwnEmail(password, email string) bool {
	local, _, _ := strings.Cut(email, "@")
	core := strings.Trim(password, "0123456789 .,;:!?*#+-_")
	return password != "" && (password == email || password == local || core == email || core == local)
}

// isPattern reports whether a password has few distinct characters or follows a keyboard row.
func isPattern(password string) bool {
	runes := []rune(password)
	backward := slices.Clone(runes)
	slices.Reverse(backward)
	for _, row := range keyboardRows {
		long := strings.Repeat(row, len(password)/len(row)+2)
		if strings.Contains(long, password) || strings.Contains(long, string(backward)) {
			return true
		}
	}
	slices.Sort(runes)
	return len(slices.Compact(runes)) < minDistinctCharacters
}
