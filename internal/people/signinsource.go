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
	// maxSources limits the known browsers, and the known networks, of a person. Each has its own counter of
	// failures, so it limits the guesses that skip other counters.
	maxSources = 20
)

// sourceKind is what a person has signed in from.
type sourceKind string

const (
	deviceSource  sourceKind = "device"
	networkSource sourceKind = "network"
)

// familiarity is whether a person has signed in from a browser or network before.
type familiarity int

const (
	unknownSource familiarity = iota
	knownNetwork
	knownDevice
)

// familiarityOf returns how well a person is known where a request comes from. An empty userID, for an
// unknown email address, takes as long as any other.
func (p *People) familiarityOf(ctx context.Context, q db.Querier, userID string, from Browser) (familiarity, error) {
	rows, err := q.Query(ctx, "SELECT kind FROM sign_in_sources WHERE hash IN ($1, $2) AND seen_at > $3",
		p.sourceHash(deviceSource, userID, from), p.sourceHash(networkSource, userID, from), p.now().Add(-DeviceLifetime).UnixMicro())
	kinds, err := db.Strings(rows, err)
	switch {
	case err != nil || len(kinds) == 0:
		return unknownSource, err
	case slices.Contains(kinds, string(deviceSource)):
		return knownDevice, nil
	}
	return knownNetwork, nil
}

// sourceHash is keyed, because networks are easy to enumerate.
func (p *People) sourceHash(kind sourceKind, userID string, from Browser) string {
	source := from.Device
	if kind == networkSource {
		source = addressSubject(from.IP)
	}
	sum := p.ring.Hash(strings.Join([]string{"sign-in source", string(kind), userID, source}, " "))
	return hex.EncodeToString(sum[:])
}

// newDevice returns a token for a browser. It is signed, so that forged ones are not accepted.
func (p *People) newDevice() string {
	token := newToken()
	return token + "." + p.deviceSignature(token)
}

func (p *People) deviceSignature(token string) string {
	sum := p.ring.Hash("device token " + token)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func (p *People) isOwnDevice(device string) bool {
	token, signature, _ := strings.Cut(device, ".")
	return subtle.ConstantTimeCompare([]byte(signature), []byte(p.deviceSignature(token))) == 1
}

// recordSource records the browser and its network as known and returns the browser's token, which is
// the same for everyone who uses the browser.
func (p *People) recordSource(ctx context.Context, tx *db.Tx, userID string, from Browser) (device string, err error) {
	if !p.isOwnDevice(from.Device) {
		from.Device = p.newDevice()
	}
	if err := p.storeSource(ctx, tx, deviceSource, userID, from); err != nil {
		return "", err
	}
	if addressSubject(from.IP) != "" { // else it is unknown
		err = p.storeSource(ctx, tx, networkSource, userID, from)
	}
	return from.Device, err
}

// storeSource records a sign-in and deletes the oldest sources if there are too many.
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
