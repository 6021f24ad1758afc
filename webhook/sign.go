package webhook

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"time"
)

// NewSecret creates a secret for an endpoint.
func NewSecret() string {
	var key [32]byte
	rand.Read(key[:]) // never fails: crypto/rand aborts the program instead
	return secretPrefix + base64.StdEncoding.EncodeToString(key[:])
}

// Sign sets the six headers of a delivery. Service-Signature uses the first secret, and
// webhook-signature has one signature per secret. In the grace period of a rotation,
// the old secret comes first. If Sign returns an error, it sets no header.
func Sign(h http.Header, id string, at time.Time, body []byte, secrets ...string) error {
	if len(secrets) == 0 {
		return ErrNoSecret
	}
	timestamp := strconv.FormatInt(at.Unix(), 10)
	prefix := []byte(id + "." + timestamp + ".")
	standard := make([]byte, 0, 48*len(secrets)) // "v1,", 44 base64 characters, a space
	for i, secret := range secrets {
		key, err := decode(secret)
		if err != nil {
			return err
		}
		if i > 0 {
			standard = append(standard, ' ')
		}
		standard = append(standard, "v1,"...)
		standard = base64.StdEncoding.AppendEncode(standard, sum(key, prefix, body))
	}
	// The key of Service-Signature is the secret as displayed, including its prefix,
	// because that is the string a receiver has.
	signature := hex.EncodeToString(sum([]byte(secrets[0]), prefix[len(id)+1:], body))

	// One allocation for all six values. The capacities keep Add from overwriting the
	// next value.
	v := []string{signature, timestamp, id, id, timestamp, string(standard)}
	h[HeaderSignature] = v[0:1:1]
	h[HeaderTimestamp] = v[1:2:2]
	h[HeaderEventID] = v[2:3:3]
	h[HeaderStandardID] = v[3:4:4]
	h[HeaderStandardTimestamp] = v[4:5:5]
	h[HeaderStandardSignature] = v[5:6:6]
	return nil
}
