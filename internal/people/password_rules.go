package people

import (
	_ "embed" // for the list of common passwords
	"slices"
	"strings"
	"unicode/utf8"

	"turnpike/internal/fault"
)

// minDistinct is how many different characters a password has. Nobody's words
// have fewer.
const minDistinct = 5

//go:embed common_passwords.txt
var commonPasswords string

// keyRows are what people type when they run a finger over the alphabet, the
// digits or the keyboard, in the layouts QWERTY, QWERTZ and AZERTY.
var keyRows = []string{"abcdefghijklmnopqrstuvwxyz", "0123456789",
	"qwertyuiopasdfghjklzxcvbnm", "qwertzuiopasdfghjklyxcvbnm", "azertyuiopqsdfghjklmwxcvbn"}

// CheckPassword refuses a password that is too short, or that an attacker who
// knows the person's email address would try first.
func CheckPassword(password, email string) error {
	lower := normal(password)
	switch {
	case len(password) < MinPassword || len(password) > MaxPassword || !utf8.ValidString(password):
		return fault.Invalid("password", "the password must have from %d to %d bytes; a few words that only you would put together are good", MinPassword, MaxPassword)
	case isOwnAddress(lower, normal(email)):
		return fault.Invalid("password", "The password must not be your email address. Choose a few words that only you would put together.")
	case strings.Contains(commonPasswords, "\n"+lower+"\n"):
		return fault.Invalid("password", "This password is one of the 10,000 most common ones. Choose a few words that only you would put together.")
	case isPattern(lower):
		return fault.Invalid("password", "This password is a simple pattern. Choose a few words that only you would put together.")
	}
	return nil
}

// isOwnAddress reports whether a password is the email address or the part in
// front of the @, perhaps with digits or marks around it.
func isOwnAddress(password, email string) bool {
	local, _, _ := strings.Cut(email, "@")
	core := strings.Trim(password, "0123456789 .,;:!?*#+-_")
	return password != "" && (password == email || password == local || core == email || core == local)
}

// isPattern reports whether a password repeats few characters or follows a row
// of keys, in either direction.
func isPattern(password string) bool {
	runes := []rune(password)
	backward := slices.Clone(runes)
	slices.Reverse(backward)
	for _, row := range keyRows {
		long := strings.Repeat(row, len(password)/len(row)+2)
		if strings.Contains(long, password) || strings.Contains(long, string(backward)) {
			return true
		}
	}
	slices.Sort(runes)
	return len(slices.Compact(runes)) < minDistinct
}
