package people

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"turnpike/internal/db"
)

const (
	// DeviceLifetime is how long a browser or network counts as known after the
	// last sign-in from it.
	DeviceLifetime = 90 * 24 * time.Hour
	// maxSources is how many browsers, and how many networks, a person has. Each
	// has failures of its own, so they bound the guesses that skip other counts.
	maxSources = 20
)

// sourceKind is what a person has signed in from.
type sourceKind string

const (
	deviceSource  sourceKind = "device"
	networkSource sourceKind = "network"
)

// familiarity is whether a person has signed in before from where a request
// comes from.
type familiarity int

const (
	stranger familiarity = iota
	knownNetwork
	knownDevice
)

// familiarityOf looks up where a request comes from. An empty userID, for an
// email address that no one has, takes as long as any other.
func (p *People) familiarityOf(ctx context.Context, q db.Querier, userID string, from Browser) (familiarity, error) {
	rows, err := q.Query(ctx, "SELECT kind FROM sign_in_sources WHERE hash IN ($1, $2) AND seen_at > $3",
		p.sourceHash(deviceSource, userID, from), p.sourceHash(networkSource, userID, from), p.now().Add(-DeviceLifetime).UnixMicro())
	kinds, err := db.All(rows, err, func(r db.Row) (kind sourceKind, err error) {
		var text string
		err = r.Scan(&text)
		return sourceKind(text), err
	})
	switch {
	case err != nil || len(kinds) == 0:
		return stranger, err
	case slices.Contains(kinds, deviceSource):
		return knownDevice, nil
	}
	return knownNetwork, nil
}

// sourceHash is keyed, because there are few networks to try.
func (p *People) sourceHash(kind sourceKind, userID string, from Browser) string {
	source := from.Device
	if kind == networkSource {
		source = addressSubject(from.IP)
	}
	sum := p.ring.Hash(strings.Join([]string{"sign-in source", string(kind), userID, source}, " "))
	return hex.EncodeToString(sum[:])
}

// newDevice makes the token of a browser. It is signed, so that one which nobody
// got from here is not taken over.
func (p *People) newDevice() string {
	token := newToken()
	return token + "." + p.deviceSignature(token)
}

func (p *People) deviceSignature(token string) string {
	sum := p.ring.Hash("device token " + token)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func (p *People) isDevice(device string) bool {
	token, signature, _ := strings.Cut(device, ".")
	return subtle.ConstantTimeCompare([]byte(signature), []byte(p.deviceSignature(token))) == 1
}

// rememberSource makes the browser and its network known and returns the
// browser's token, which stays the same for everyone who uses the browser.
func (p *People) rememberSource(ctx context.Context, tx *db.Tx, userID string, from Browser) (device string, err error) {
	if !p.isDevice(from.Device) {
		from.Device = p.newDevice()
	}
	if err := p.storeSource(ctx, tx, deviceSource, userID, from); err != nil {
		return "", err
	}
	if addressSubject(from.IP) != "" { // else it is not known
		err = p.storeSource(ctx, tx, networkSource, userID, from)
	}
	return from.Device, err
}

// storeSource notes a sign-in and forgets the sources that have been quiet for
// longest, if there are too many.
func (p *People) storeSource(ctx context.Context, tx *db.Tx, kind sourceKind, userID string, from Browser) error {
	_, err := tx.Exec(ctx, `INSERT INTO sign_in_sources (hash, kind, user_id, seen_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (hash) DO UPDATE SET seen_at = excluded.seen_at`, p.sourceHash(kind, userID, from), string(kind), userID, p.now().UnixMicro())
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `DELETE FROM sign_in_sources WHERE user_id = $1 AND kind = $2 AND hash NOT IN
		(SELECT hash FROM sign_in_sources WHERE user_id = $1 AND kind = $2 ORDER BY seen_at DESC, hash LIMIT $3)`, userID, string(kind), int64(maxSources))
	return err
}
