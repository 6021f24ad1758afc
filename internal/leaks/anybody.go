package leaks

import (
	"context"
	"strings"

	"turnpike/internal/fault"
)

// MaxKeys is how many keys anybody may report at once.
const MaxKeys = 100

// FromAnybody takes keys that somebody has reported. What became of them is
// not told.
func (s *Service) FromAnybody(ctx context.Context, secrets []string, from Report) error {
	if len(secrets) > MaxKeys {
		return fault.Invalid("keys", "at most %d keys can be reported at once; send the others in another request", MaxKeys)
	}
	for _, secret := range secrets {
		from.Secret = strings.TrimSpace(secret)
		if _, err := s.Revoke(ctx, from); err != nil {
			return err
		}
	}
	return nil
}
