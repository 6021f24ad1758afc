package people

import "context"

// Hashes is how many password hashes were computed.
func (p *People) Hashes() int64 { return p.passwords.hashed.Load() }

// MaxWaiting is how many may wait for a hash.
const MaxWaiting = maxWaiting

// HoldTurns takes every turn to hash, until release is called.
func (p *People) HoldTurns() (release func()) {
	for range cap(p.passwords.turns) {
		p.passwords.turns <- struct{}{}
	}
	return func() {
		for range cap(p.passwords.turns) {
			<-p.passwords.turns
		}
	}
}

// Waiting is how many wait for a hash or compute one.
func (p *People) Waiting() int64 { return p.passwords.waiting.Load() }

// VerifyOnce compares a password of nobody.
func VerifyOnce(p *People, ctx context.Context) error {
	_, err := p.passwords.verify(ctx, "", "")
	return err
}
