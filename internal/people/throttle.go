package people

import (
	"context"
	"net/netip"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/fault"
)

const (
	failureWindow = 15 * time.Minute
	// An account has a few free attempts from each network and from each known browser, and more from all
	// unknown networks together. An address has more, because an office may share it.
	freeFromNetwork = 5
	freePerAccount  = 50
	freePerAddress  = 20
	// A second factor or a confirmation has a few attempts in all, because it needs the password first.
	freePerProof = 5

	firstWait = 30 * time.Second
	// maxWait is short, so that an attacker can't lock an account permanently. It allows about a hundred
	// guesses a day from each network.
	maxWait = 15 * time.Minute
)

// failureCounter counts failures of a subject.
type failureCounter struct {
	subject string
	free    int64
	own     bool // success resets it; a shared counter is only decremented
	logged  bool // the admin log shows when the free attempts are exhausted
}

// loginCounters returns the counters of a login, in the order in which they are locked. A known browser
// only has its own counter, so that attacks from elsewhere never lock the person out there. A known network
// skips the counter of all networks, but keeps the address's: otherwise someone who shares the address
// could tell who has an account.
func loginCounters(email string, known familiarity, from Browser) []failureCounter {
	account, address := emailSubject(email), addressSubject(from.IP)
	if known == knownDevice {
		return []failureCounter{{subject: deviceSubject(account, from.Device), free: freeFromNetwork, own: true, logged: true}}
	}
	counters := withAddress(address, failureCounter{subject: networkSubject(account, address), free: freeFromNetwork, own: true, logged: true})
	if known == knownNetwork {
		return counters
	}
	return append([]failureCounter{{subject: account, free: freePerAccount, logged: true}}, counters...)
}

// proofCounters returns the counters of a second factor or a confirmation.
func proofCounters(subject string, known familiarity, from Browser) []failureCounter {
	proof := failureCounter{subject: subject, free: freePerProof, own: true, logged: true}
	if known == knownDevice {
		return []failureCounter{proof}
	}
	return withAddress(addressSubject(from.IP), proof)
}

func withAddress(address string, list ...failureCounter) []failureCounter {
	if address == "" { // the address is unknown
		return list
	}
	return append(list, failureCounter{subject: address, free: freePerAddress})
}

// loginAttempt counts as a failure from its start, so that concurrent attempts get no more guesses.
// Success uncounts it.
type loginAttempt struct {
	counters  []failureCounter
	exhausted int64 // the failures, if this attempt exhausted the free ones; else 0
}

// startAttempt counts an attempt, or rejects it without counting while a counter blocks it.
func (p *People) startAttempt(ctx context.Context, counters []failureCounter) (*loginAttempt, error) {
	a := &loginAttempt{counters: counters}
	err := p.db.Write(ctx, func(tx *db.Tx) error {
		a.exhausted = 0
		for _, c := range counters {
			failures, err := countAttempt(ctx, tx, c.subject, c.free, p.now())
			if err != nil {
				return err
			}
			if c.logged && failures == c.free {
				a.exhausted = failures
			}
		}
		return nil
	})
	return a, err
}

// startProofAttempt is startAttempt for a known person.
func (p *People) startProofAttempt(ctx context.Context, userID, subject string, from Browser) (*loginAttempt, error) {
	known, err := p.familiarityOf(ctx, p.db, userID, from)
	if err != nil {
		return nil, err
	}
	return p.startAttempt(ctx, proofCounters(subject, known, from))
}

func countAttempt(ctx context.Context, tx *db.Tx, subject string, free int64, now time.Time) (int64, error) {
	var failures, first, until int64
	// The update only locks and returns the row.
	err := tx.QueryRow(ctx, `INSERT INTO login_failures (subject, failures, first_at, blocked_until) VALUES ($1, 0, $2, 0)
		ON CONFLICT (subject) DO UPDATE SET subject = excluded.subject RETURNING failures, first_at, blocked_until`,
		subject, now.UnixMicro()).Scan(&failures, &first, &until)
	if err != nil {
		return 0, err
	}
	if wait := time.UnixMicro(until).Sub(now); wait > 0 {
		limited := fault.New(fault.RateLimitExceeded, "Too many attempts. Retry in %s.", wait.Round(time.Second))
		limited.RetryAfter = wait
		return 0, limited
	}
	quiet := first // the failures are forgotten one window after this
	if failures >= free {
		quiet = until
	}
	if time.UnixMicro(quiet).Add(failureWindow).Before(now) {
		failures, first = 0, now.UnixMicro()
	}
	failures++
	until = 0
	if failures >= free {
		until = now.Add(waitAfter(failures - free)).UnixMicro()
	}
	_, err = tx.Exec(ctx, "UPDATE login_failures SET failures = $2, first_at = $3, blocked_until = $4 WHERE subject = $1", subject, failures, first, until)
	return failures, err
}

// waitAfter doubles with each failure after the free ones.
func waitAfter(beyond int64) time.Duration {
	if beyond > 5 {
		return maxWait
	}
	return min(firstWait<<beyond, maxWait)
}

// succeeded resets the person's own counters and uncounts this attempt in shared ones: signing in to one
// account must not clear the way to others.
func (a *loginAttempt) succeeded(ctx context.Context, tx *db.Tx, now time.Time) error {
	for _, c := range a.counters {
		var err error
		if c.own {
			err = deleteFailures(ctx, tx, c.subject)
		} else {
			err = uncountFailure(ctx, tx, c.subject, now)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func deleteFailures(ctx context.Context, tx *db.Tx, subject string) error {
	_, err := tx.Exec(ctx, "DELETE FROM login_failures WHERE subject = $1", subject)
	return err
}

// uncountFailure removes this attempt and its block. The block ends now instead of being deleted, because
// failures are forgotten some time after its end.
func uncountFailure(ctx context.Context, tx *db.Tx, subject string, now time.Time) error {
	_, err := tx.Exec(ctx, `UPDATE login_failures SET failures = failures - 1,
		blocked_until = CASE WHEN blocked_until > $2 THEN $2 ELSE blocked_until END WHERE subject = $1 AND failures > 0`, subject, now.UnixMicro())
	return err
}

// cancelAttempt uncounts an attempt that was neither right nor wrong, for example in an overload.
func (p *People) cancelAttempt(ctx context.Context, a *loginAttempt) error {
	ctx = context.WithoutCancel(ctx)
	return p.db.Write(ctx, func(tx *db.Tx) error {
		for _, c := range a.counters {
			if err := uncountFailure(ctx, tx, c.subject, p.now()); err != nil {
				return err
			}
		}
		return nil
	})
}

// emailSubject is hashed, because the input has any length.
func emailSubject(email string) string { return "email:" + hashToken(email) }

// networkSubject is an account from one network.
func networkSubject(account, address string) string { return account + " " + address }

// deviceSubject is an account from a known browser.
func deviceSubject(account, device string) string { return account + " device:" + hashToken(device) }

func factorSubject(userID string) string  { return "factor:" + userID }
func confirmSubject(userID string) string { return "confirm:" + userID }

// addressSubject counts an IPv6 /64 as one address, because clients usually have all of it.
func addressSubject(ip string) string {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return ""
	}
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		network, _ := addr.Prefix(64) // 64 fits every IPv6 address
		return "address:" + network.String()
	}
	return "address:" + addr.String()
}
