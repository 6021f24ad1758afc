package access

import (
	"turnpike/internal/accounts"
	"turnpike/internal/keyring"
)

// The prefixes of the secrets of the API. The other kinds are in package keyring.
const (
	PrefixLive   = string(keyring.LiveKey)
	PrefixTest   = string(keyring.TestKey)
	PrefixScoped = string(keyring.ScopedToken)
	PrefixAdmin  = string(keyring.AdminKey)
)

// PrefixOf returns the key prefix of an environment.
func PrefixOf(env accounts.Environment) string {
	if env == accounts.Live {
		return PrefixLive
	}
	return PrefixTest
}

func newSecret(prefix string) string { return keyring.NewSecret(keyring.Kind(prefix)) }

// ParseSecret checks the format and checksum of a secret of the API, also of the admin API, and returns its prefix.
func ParseSecret(s string) (prefix string, ok bool) {
	switch kind, ok := keyring.ParseSecret(s); kind {
	case keyring.LiveKey, keyring.TestKey, keyring.ScopedToken, keyring.AdminKey:
		return string(kind), ok
	}
	return "", false
}

func lastFour(secret string) string { return secret[len(secret)-4:] }
