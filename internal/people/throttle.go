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
	// An account has a few free attempts from each network, and from each browser
	// that its owner has signed in with. Strangers everywhere together have more.
	// An address has more, too, because an office may share one.
	freeFromNetwork = 5
	freePerAccount  = 50
	freePerAddress  = 20
	// A second factor, or a proof in a session, has a few from everywhere: nobody
	// gets that far without the password.
	freePerProof = 5

	firstWait = 30 * time.Second
	// maxWait is short enough that nobody is locked out for good by somebody who
	// keeps trying: about a hundred guesses a day from each network.
	maxWait = 15 * time.Minute
)

// counted is what failures are counted for.
type counted struct {
	subject string
	free    int64
	own     bool // success forgets it; of what is shared with others it takes back one
	noted   bool // the log says when the free attempts are used up
}

// loginCounts are in the order in which every attempt locks them. A browser that
// the person has signed in with has a count of its own alone: nothing that
// strangers do, anywhere, keeps the person out there. A network that the person
// has signed in from skips the count of all networks. It keeps the address's
// own, or whoever shares the address could tell by it who has an account.
func loginCounts(email string, known familiarity, from Browser) []counted {
	account, address := emailSubject(email), addressSubject(from.IP)
	if known == knownDevice {
		return []counted{{subject: deviceSubject(account, from.Device), free: freeFromNetwork, own: true, noted: true}}
	}
	counts := withAddress(address, counted{subject: networkSubject(account, address), free: freeFromNetwork, own: true, noted: true})
	if known == knownNetwork {
		return counts
	}
	return append([]counted{{subject: account, free: freePerAccount, noted: true}}, counts...)
}

// proofCounts are those of a second factor, or of a proof in a session.
func proofCounts(subject string, known familiarity, from Browser) []counted {
	proof := counted{subject: subject, free: freePerProof, own: true, noted: true}
	if known == knownDevice {
		return []counted{proof}
	}
	return withAddress(addressSubject(from.IP), proof)
}

func withAddress(address string, list ...counted) []counted {
	if address == "" { // it is not known
		return list
	}
	return append(list, counted{subject: address, free: freePerAddress})
}

// attempt is a try that is counted as a failure from its beginning, so that
// many at once get no more than one after the other. Success takes it back.
type attempt struct {
	counts []counted
	storm  int64 // failures of the account, when this one used up the free ones; else 0
}

// begin counts an attempt, or refuses it while anything of it must wait: then it
// counts for nothing.
func (p *People) begin(ctx context.Context, counts []counted) (*attempt, error) {
	a := &attempt{counts: counts}
	err := p.db.Write(ctx, func(tx *db.Tx) error {
		a.storm = 0
		for _, c := range counts {
			failures, err := countAttempt(ctx, tx, c.subject, c.free, p.now())
			if err != nil {
				return err
			}
			if c.noted && failures == c.free {
				a.storm = failures
			}
		}
		return nil
	})
	return a, err
}

// beginProof is begin for a person who has shown something already.
func (p *People) beginProof(ctx context.Context, userID, subject string, from Browser) (*attempt, error) {
	known, err := p.familiarityOf(ctx, p.db, userID, from)
	if err != nil {
		return nil, err
	}
	return p.begin(ctx, proofCounts(subject, known, from))
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

// succeeded forgets the failures that were the person's own. Of the others it
// takes back only this attempt: whoever has one account must not clear the way
// to others, and a stranger's guesses still count when the owner has come.
func (a *attempt) succeeded(ctx context.Context, tx *db.Tx, now time.Time) error {
	for _, c := range a.counts {
		var err error
		if c.own {
			err = forgetFailures(ctx, tx, c.subject)
		} else {
			err = takeBack(ctx, tx, c.subject, now)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func forgetFailures(ctx context.Context, tx *db.Tx, subject string) error {
	_, err := tx.Exec(ctx, "DELETE FROM login_failures WHERE subject = $1", subject)
	return err
}

// The block is this attempt's own: another one would have kept it from beginning.
// It ends now, and not in the past, from where on failures are forgotten.
func takeBack(ctx context.Context, tx *db.Tx, subject string, now time.Time) error {
	_, err := tx.Exec(ctx, `UPDATE login_failures SET failures = failures - 1,
		blocked_until = CASE WHEN blocked_until > $2 THEN $2 ELSE blocked_until END WHERE subject = $1 AND failures > 0`, subject, now.UnixMicro())
	return err
}

// undo takes an attempt back that was not decided, for want of time or memory.
func (p *People) undo(ctx context.Context, a *attempt) error {
	ctx = context.WithoutCancel(ctx)
	return p.db.Write(ctx, func(tx *db.Tx) error {
		for _, c := range a.counts {
			if err := takeBack(ctx, tx, c.subject, p.now()); err != nil {
				return err
			}
		}
		return nil
	})
}

// emailSubject is hashed, because anybody may type anything of any length.
func emailSubject(email string) string { return "email:" + hashToken(email) }

// networkSubject is an account as it is tried from one network.
func networkSubject(account, address string) string { return account + " " + address }

// deviceSubject is an account as it is tried from a browser that it knows.
func deviceSubject(account, device string) string { return account + " device:" + hashToken(device) }

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
