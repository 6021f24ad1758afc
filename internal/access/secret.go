package access

import (
	"turnpike/internal/accounts"
	"turnpike/internal/keyring"
)

// KindOf returns the kind of an environment's keys.
func KindOf(env accounts.Environment) keyring.Kind {
	if env == accounts.Live {
		return keyring.LiveKey
	}
	return keyring.TestKey
}

// ParseSecret checks the format and checksum of a secret of the API, also of the admin API, and returns its kind.
func ParseSecret(s string) (kind keyring.Kind, ok bool) {
	switch kind, ok := keyring.ParseSecret(s); kind {
	case keyring.LiveKey, keyring.TestKey, keyring.ScopedToken, keyring.AdminKey:
		return kind, ok
	}
	return "", false
}

func lastFour(secret string) string { return secret[len(secret)-4:] }
