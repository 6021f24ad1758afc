// Package webhook receives Turnpike's webhooks. It verifies that a delivery was signed
// with the endpoint's secret, and parses its event. The server signs with the same
// package.
//
// This file needs only the standard library, so a receiver in another module can copy
// it.
package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of a delivery.
const (
	HeaderSignature = "Service-Signature" // hex HMAC-SHA256 of "{timestamp}.{body}"
	HeaderTimestamp = "Service-Timestamp" // Unix seconds at which the delivery was signed
	HeaderEventID   = "Service-Event-Id"  // the delivery's ID, the same on every retry
)

// The headers of Standard Webhooks (standardwebhooks.com), which every delivery also
// has. Their signature covers the delivery's ID as well. The names are in http.Header's
// canonical form. On the wire, case doesn't matter.
const (
	HeaderStandardID        = "Webhook-Id"
	HeaderStandardTimestamp = "Webhook-Timestamp"
	HeaderStandardSignature = "Webhook-Signature" // base64 HMAC-SHA256 of "{id}.{timestamp}.{body}", one per secret
)

const secretPrefix = "whsec_"

// ErrBadSecret means that Sign got a secret that NewSecret can't have created.
var ErrBadSecret = errors.New("webhook: a secret is not " + secretPrefix + " and base64")

// Tolerance is how far a delivery's timestamp may differ from the current time, in
// either direction. It limits how long a stolen delivery can be replayed.
const Tolerance = 5 * time.Minute

// The errors of Verify.
var (
	ErrNoSecret     = errors.New("webhook: there is no secret")
	ErrNoSignature  = errors.New("webhook: the " + HeaderSignature + " header is missing")
	ErrBadTimestamp = errors.New("webhook: the " + HeaderTimestamp + " header is missing or is not a time in Unix seconds")
	ErrStale        = errors.New("webhook: the " + HeaderTimestamp + " header is too far from the current time")
	ErrSignature    = errors.New("webhook: the signature does not fit the body, the timestamp and the secret")
	ErrUnsignedID   = errors.New("webhook: no signature covers the " + HeaderEventID + " header")
)

// Verify checks a delivery. body is the raw request body, and secret is the endpoint's
// whole whsec_… string. Trust the body only if the error is nil. If the Standard
// Webhooks headers are present, they must be valid too, so a changed Service-Event-Id
// is rejected. An attacker with a copied delivery can remove them: set
// Verifier.RequireSignedID to reject that.
func Verify(body []byte, header http.Header, secret string) error {
	return Verifier{Secrets: []string{secret}}.Verify(body, header)
}

// Verifier is Verify with settings.
type Verifier struct {
	// Secrets are the accepted secrets. During a rotation there are two, the old one
	// and the new one.
	Secrets []string
	// Tolerance replaces the package's default if it isn't zero. Its resolution is one
	// second.
	Tolerance time.Duration
	// RequireSignedID rejects deliveries without the Standard Webhooks headers, whose
	// signature covers the delivery's ID. Service-Signature alone covers only the
	// timestamp and the body. An attacker could then replay a copied delivery under
	// another ID until the tolerance ends. Set it unless a proxy drops those headers.
	RequireSignedID bool
	// Now is the clock. The default is time.Now.
	Now func() time.Time
}

// Verify checks a delivery against each of the secrets.
func (v Verifier) Verify(body []byte, header http.Header) error {
	signature, timestamp := header.Get(HeaderSignature), header.Get(HeaderTimestamp)
	if signature == "" {
		return ErrNoSignature
	}
	at, err := strconv.ParseUint(timestamp, 10, 63) // 63 bits, so that the difference below can't overflow
	if err != nil {
		return ErrBadTimestamp
	}
	if d := v.now().Unix() - int64(at); d > v.tolerance() || -d > v.tolerance() {
		return ErrStale
	}
	result := ErrNoSecret
	for _, secret := range v.Secrets {
		if secret == "" { // a missing setting; anyone can sign with an empty secret
			continue
		}
		result = ErrSignature
		if equal(signature, hex.EncodeToString(sum([]byte(secret), []byte(timestamp+"."), body))) {
			return v.verifyID(body, header)
		}
	}
	return result
}

// verifyID checks the Standard Webhooks headers of a delivery with a valid
// Service-Signature.
func (v Verifier) verifyID(body []byte, header http.Header) error {
	id, timestamp, signatures := header.Get(HeaderStandardID), header.Get(HeaderStandardTimestamp), header.Get(HeaderStandardSignature)
	if id == "" && timestamp == "" && signatures == "" {
		if v.RequireSignedID {
			return ErrUnsignedID
		}
		return nil
	}
	if used := header.Get(HeaderEventID); used != "" && used != id || timestamp != header.Get(HeaderTimestamp) {
		return ErrUnsignedID
	}
	for _, secret := range v.Secrets {
		key, err := decode(secret)
		if err != nil {
			continue
		}
		want := base64.StdEncoding.EncodeToString(sum(key, []byte(id+"."+timestamp+"."), body))
		for _, signature := range strings.Fields(signatures) {
			if equal(signature, "v1,"+want) {
				return nil
			}
		}
	}
	return ErrUnsignedID
}

// decode returns the key of the Standard Webhooks signature.
func decode(secret string) ([]byte, error) {
	text, ok := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) == 0 {
		return nil, ErrBadSecret
	}
	return key, nil
}

func (v Verifier) now() time.Time {
	if v.Now == nil {
		return time.Now()
	}
	return v.Now()
}

func (v Verifier) tolerance() int64 {
	if v.Tolerance == 0 {
		return int64(Tolerance / time.Second)
	}
	return int64(v.Tolerance / time.Second)
}

// equal compares in constant time, so that a signature can't be guessed byte by byte.
// Its length is public.
func equal(got, want string) bool {
	return len(got) == len(want) && hmac.Equal([]byte(got), []byte(want))
}

// sum returns the HMAC-SHA256 of prefix and body. It doesn't join them, because that
// would copy a body of up to a megabyte.
func sum(key, prefix, body []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(prefix)
	mac.Write(body)
	return mac.Sum(nil)
}

// Event is the body of a delivery.
type Event struct {
	ID          string          `json:"id"`   // evt_…, the same at every endpoint
	Type        string          `json:"type"` // such as image.batch.completed
	CreatedAt   int64           `json:"created_at"`
	Environment string          `json:"environment"` // live or test
	Workspace   string          `json:"workspace"`
	Project     *string         `json:"project"` // nil when it belongs to none
	Sample      bool            `json:"sample"`  // sent to test the endpoint; nothing happened
	Data        json.RawMessage `json:"data"`    // depends on the type
}

// Parse parses a verified body.
func Parse(body []byte) (*Event, error) {
	var e Event
	if err := json.Unmarshal(body, &e); err != nil {
		return nil, fmt.Errorf("webhook: read the event: %w", err)
	}
	if e.Type == "" {
		return nil, errors.New("webhook: read the event: it has no type")
	}
	return &e, nil
}

// maxBody is the server's maximum of 1 MiB, plus some room.
const maxBody = 1<<20 + 64<<10

// Func accepts a verified event. The server waits 10 seconds for the response, so store
// the event and process it later. Ignore a delivery ID that you have seen before.
type Func func(ctx context.Context, e *Event, deliveryID string) error

// Handler receives deliveries that are signed with the secret.
func Handler(secret string, fn Func) http.Handler {
	return Verifier{Secrets: []string{secret}}.Handler(fn)
}

// Handler returns 204 if fn accepts the event, 400 for a stale or malformed delivery,
// 401 for an invalid signature, and 500 if fn fails. The server retries after every
// error. The sender doesn't see fn's error, so log it in fn.
func (v Verifier) Handler(fn Func) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "webhook: deliveries come by POST", http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
			http.Error(w, "webhook: the body is too large", http.StatusRequestEntityTooLarge)
			return
		} else if err != nil {
			http.Error(w, "webhook: the body did not arrive whole", http.StatusBadRequest)
			return
		}
		if err := v.Verify(body, r.Header); err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
		id := r.Header.Get(HeaderEventID)
		if id == "" {
			http.Error(w, "webhook: the "+HeaderEventID+" header is missing", http.StatusBadRequest)
			return
		}
		e, err := Parse(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := fn(r.Context(), e, id); err != nil {
			http.Error(w, "webhook: the event could not be taken in", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, ErrNoSecret):
		return http.StatusInternalServerError // a configuration error of the receiver
	case errors.Is(err, ErrStale), errors.Is(err, ErrBadTimestamp):
		return http.StatusBadRequest
	default:
		return http.StatusUnauthorized
	}
}
