package leaks

import (
	"context"
	"strings"

	"turnpike/internal/fault"
)

// MaxKeys is how many keys a report can have.
const MaxKeys = 100

// FromPublic handles a public report. It does not return the outcomes.
func (s *Service) FromPublic(ctx context.Context, secrets []string, from Report) error {
	if len(secrets) > MaxKeys {
		return fault.Invalid("keys", "A report can have at most %d keys. Send the others in another request.", MaxKeys)
	}
	for _, secret := range secrets {
		from.Secret = strings.TrimSpace(secret)
		if _, err := s.Revoke(ctx, from); err != nil {
			return err
		}
	}
	return nil
}
