package people

import (
	"context"

	"github.com/coreos/go-oidc/v3/oidc"

	"turnpike/internal/db"
)

// Hashes returns how many password hashes were computed.
func (p *People) Hashes() int64 { return p.passwords.hashed.Load() }

func (p *People) FillHashQueue() (release func()) {
	p.passwords.waiting.Add(maxWaiting)
	return func() { p.passwords.waiting.Add(-maxWaiting) }
}

// Accept is the part of AcceptInvitation after its first check, for tests of concurrent requests. So are
// ConsumeResetLink, CompletePasswordLogin and LockLinkedPerson.
func (p *People) Accept(ctx context.Context, i *Invitation, name, hash string) error {
	_, err := p.accept(ctx, i, name, hash, Browser{})
	return err
}

// ConsumeResetLink: see Accept.
func (p *People) ConsumeResetLink(ctx context.Context, l *Link, hash string) error {
	_, err := p.consumeResetLink(ctx, l.Token, l.Person.ID, hash, Browser{})
	return err
}

// CompletePasswordLogin: see Accept.
func (p *People) CompletePasswordLogin(ctx context.Context, compared *Person) error {
	_, err := p.completePasswordLogin(ctx, compared, compared.passwordHash, &loginAttempt{}, signInParams{method: ByPassword})
	return err
}

// LockLinkedPerson: see Accept.
func (p *People) LockLinkedPerson(ctx context.Context, i Identity, subject, userID string) error {
	return p.db.Write(ctx, func(tx *db.Tx) error {
		_, err := p.lockLinkedPerson(ctx, tx, &claims{token: &oidc.IDToken{Issuer: i.Issuer, Subject: subject}}, userID)
		return err
	})
}

// CheckPassword is checkPassword.
func CheckPassword(password, email string) error { return checkPassword(password, email) }
