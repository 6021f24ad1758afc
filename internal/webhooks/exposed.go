package webhooks

import (
	"context"
	"crypto/subtle"

	"turnpike/internal/db"
	"turnpike/internal/keyring"
)

// Exposed is an endpoint whose secret leaked.
type Exposed struct {
	*Endpoint
	Hint     string
	Previous bool // it is the old secret of a rotation, in its grace period
}

// KnowsSecret reports whether an endpoint has the secret. It doesn't write or lock.
func (s *Service) KnowsSecret(ctx context.Context, q db.Querier, secret string) (bool, error) {
	e, err := s.findExposed(ctx, q, secret, "")
	return e != nil, err
}

// FindExposed finds and locks the endpoint with a secret in any workspace. It returns nil if there is none.
func (s *Service) FindExposed(ctx context.Context, tx *db.Tx, secret string) (*Exposed, error) {
	return s.findExposed(ctx, tx, secret, tx.Lock("endpoints"))
}

// maxSameHint is how many endpoints with the same hint are compared. Of ten million endpoints, one other
// has the same hint.
const maxSameHint = 100

// findExposed looks for the hint, because the secrets are encrypted, and compares the secrets.
func (s *Service) findExposed(ctx context.Context, q db.Querier, secret, lock string) (*Exposed, error) {
	if kind, ok := keyring.ParseSecret(secret); !ok || kind != keyring.WebhookSecret {
		return nil, nil
	}
	// A tunnel that mirrors an endpoint has an unused secret.
	candidates, err := db.List(ctx, q, scanEndpoint, "SELECT "+endpointColumns+" FROM endpoints WHERE (secret_hint = $1 OR old_secret_hint = $1)"+
		" AND deleted_at IS NULL AND mirrors IS NULL ORDER BY id LIMIT $2"+lock, hint(secret), int64(maxSameHint))
	if err != nil {
		return nil, err
	}
	for _, e := range candidates {
		for _, sealed := range []string{e.secret, e.oldSecret} {
			if sealed == "" || sealed == e.oldSecret && !e.inGrace(s.Now()) {
				continue
			}
			plain, err := s.Ring.Open(sealed, secretContext(e.ID))
			if err != nil {
				return nil, err
			}
			if subtle.ConstantTimeCompare(plain, []byte(secret)) == 1 {
				return &Exposed{e, hint(secret), sealed == e.oldSecret}, nil
			}
		}
	}
	return nil, nil
}
