package people

import (
	"context"

	"github.com/coreos/go-oidc/v3/oidc"

	"turnpike/internal/db"
)

// Hashes is how many password hashes were computed.
func (p *People) Hashes() int64 { return p.passwords.hashed.Load() }

// Crowd makes as many wait for a hash as may, until release is called.
func (p *People) Crowd() (release func()) {
	p.passwords.waiting.Add(maxWaiting)
	return func() { p.passwords.waiting.Add(-maxWaiting) }
}

// Accept, UseReset, PasswordWasRight and KnownStill are what follows the first
// look and the hash: with them a test is the slower of two requests.
func (p *People) Accept(ctx context.Context, i *Invitation, name, hash string) error {
	_, err := p.accept(ctx, i, name, hash, Browser{})
	return err
}

// UseReset is described at Accept.
func (p *People) UseReset(ctx context.Context, l *Link, hash string) error {
	_, err := p.useReset(ctx, l.Token, l.Person.ID, hash, Browser{})
	return err
}

// PasswordWasRight is described at Accept.
func (p *People) PasswordWasRight(ctx context.Context, compared *Person) error {
	_, err := p.passwordWasRight(ctx, compared, "", &attempt{}, "", Browser{})
	return err
}

// KnownStill is described at Accept.
func (p *People) KnownStill(ctx context.Context, i Identity, subject, userID string) error {
	return p.db.Write(ctx, func(tx *db.Tx) error {
		_, err := p.knownStill(ctx, tx, &oidc.IDToken{Issuer: i.Issuer, Subject: subject}, userID)
		return err
	})
}
