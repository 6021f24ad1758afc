package people

// Hashes is how many password hashes were computed.
func (p *People) Hashes() int64 { return p.passwords.hashed.Load() }

// Crowd makes as many wait for a hash as may, until release is called.
func (p *People) Crowd() (release func()) {
	p.passwords.waiting.Add(maxWaiting)
	return func() { p.passwords.waiting.Add(-maxWaiting) }
}
