package people

import (
	"context"
	"net/netip"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/fault"
)

const (
	window = 15 * time.Minute
	// An account has a few free attempts. An address has more, because an office
	// may share one.
	freePerAccount = 5
	freePerAddress = 20

	firstWait = 30 * time.Second
	// maxWait is short enough that nobody is locked out for good by somebody who
	// keeps trying: about a hundred guesses a day.
	maxWait = 15 * time.Minute
)

// attempt is a try that is counted as a failure from its beginning, so that
// many at once get no more than one after the other. Success takes it back.
type attempt struct {
	account string
	address string // empty when it is not known
	count   int64  // of the account's failures, this one included
}

// begin counts an attempt, or refuses it while its account or address must wait.
func (p *People) begin(ctx context.Context, account string, from Browser) (*attempt, error) {
	a := &attempt{account: account, address: addressSubject(from.IP)}
	err := p.db.Write(ctx, func(tx *db.Tx) (err error) {
		now := p.now()
		a.count, err = countAttempt(ctx, tx, a.account, freePerAccount, now)
		if err == nil && a.address != "" {
			_, err = countAttempt(ctx, tx, a.address, freePerAddress, now)
		}
		return err
	})
	return a, err
}

func countAttempt(ctx context.Context, tx *db.Tx, subject string, free int64, now time.Time) (int64, error) {
	var failures, first, until int64
	// The update changes nothing; it locks the row and returns it.
	err := tx.QueryRow(ctx, `INSERT INTO login_failures (subject, failures, first_at, blocked_until) VALUES ($1, 0, $2, 0)
		ON CONFLICT (subject) DO UPDATE SET subject = excluded.subject RETURNING failures, first_at, blocked_until`,
		subject, now.UnixMicro()).Scan(&failures, &first, &until)
	if err != nil {
		return 0, err
	}
	if wait := time.UnixMicro(until).Sub(now); wait > 0 {
		refused := fault.New(fault.RateLimitExceeded, "there were too many attempts; try again in %s", wait.Round(time.Second))
		refused.RetryAfter = wait
		return 0, refused
	}
	quiet := first // since when nothing has to be remembered, but for a window
	if failures >= free {
		quiet = until
	}
	if time.UnixMicro(quiet).Add(window).Before(now) {
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

// waitAfter doubles with each failure beyond the free ones.
func waitAfter(beyond int64) time.Duration {
	if beyond > 5 {
		return maxWait
	}
	return min(firstWait<<beyond, maxWait)
}

// succeeded forgets the account's failures. Of the address's it takes back only
// this attempt: whoever has one account must not clear the way to others.
func (a *attempt) succeeded(ctx context.Context, tx *db.Tx) error {
	if err := forgetFailures(ctx, tx, a.account); err != nil || a.address == "" {
		return err
	}
	return takeBack(ctx, tx, a.address)
}

func forgetFailures(ctx context.Context, tx *db.Tx, subject string) error {
	_, err := tx.Exec(ctx, "DELETE FROM login_failures WHERE subject = $1", subject)
	return err
}

// The block is this attempt's own: another one would have kept it from beginning.
func takeBack(ctx context.Context, tx *db.Tx, subject string) error {
	_, err := tx.Exec(ctx, "UPDATE login_failures SET failures = failures - 1, blocked_until = 0 WHERE subject = $1 AND failures > 0", subject)
	return err
}

// undo takes an attempt back that was not decided, for want of time or memory.
func (p *People) undo(ctx context.Context, a *attempt) error {
	ctx = context.WithoutCancel(ctx)
	return p.db.Write(ctx, func(tx *db.Tx) error {
		if err := takeBack(ctx, tx, a.account); err != nil || a.address == "" {
			return err
		}
		return takeBack(ctx, tx, a.address)
	})
}

// emailSubject is hashed, because anybody may type anything of any length.
func emailSubject(email string) string { return "email:" + hashToken(email) }

func factorSubject(userID string) string  { return "factor:" + userID }
func confirmSubject(userID string) string { return "confirm:" + userID }

// addressSubject counts a network of IPv6 as one: whoever has one address of it
// has them all.
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
