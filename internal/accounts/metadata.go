package accounts

import (
	"unicode/utf8"

	"turnpike/internal/fault"
	"turnpike/internal/keyring"
)

const (
	maxMetadata      = 16
	maxMetadataKey   = 64
	maxMetadataValue = 512
)

// CheckMetadata checks the metadata of a job or a run.
func CheckMetadata(m map[string]string) error {
	if len(m) > maxMetadata {
		return fault.Invalid("metadata", "metadata may have at most %d entries.", maxMetadata)
	}
	for k, v := range m {
		if keyring.ContainsSecret(k) || keyring.ContainsSecret(v) {
			return fault.Invalid("metadata", "metadata contains something that looks like an API key, which must not be stored. Remove it.")
		}
		if k == "" || utf8.RuneCountInString(k) > maxMetadataKey || utf8.RuneCountInString(v) > maxMetadataValue {
			return fault.Invalid("metadata", "metadata may have keys of 1 to %d characters, and values of up to %d.", maxMetadataKey, maxMetadataValue)
		}
	}
	return nil
}
