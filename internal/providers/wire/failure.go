package wire

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/keyring"
	"turnpike/internal/providers"
)

// KindOf is the kind of failure that an HTTP status stands for.
func KindOf(status int) providers.Kind {
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return providers.KindInvalid
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusPaymentRequired: // the operator's account, not the caller
		return providers.KindAuth
	case http.StatusNotFound, http.StatusGone:
		return providers.KindNoModel
	case http.StatusRequestTimeout:
		return providers.KindTimeout
	case http.StatusTooManyRequests:
		return providers.KindRateLimited
	case http.StatusServiceUnavailable, 529:
		return providers.KindOverloaded
	case http.StatusConflict:
		return providers.KindServer
	}
	if status >= 500 && status <= 599 {
		return providers.KindServer
	}
	return providers.KindProtocol
}

// maxRetryAfter keeps a nonsensical wish from overflowing.
const maxRetryAfter = 24 * time.Hour

// retryAfter is how long the provider wants to be left alone, or 0.
// OpenAI and Anthropic send milliseconds beside the standard header, which
// has a number of seconds or a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if d, ok := duration(h.Get("Retry-After-Ms"), time.Millisecond); ok {
		return d
	}
	value := h.Get("Retry-After")
	if d, ok := duration(value, time.Second); ok {
		return d
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(0, at.Sub(now)), maxRetryAfter)
	}
	return 0
}

func duration(number string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || math.IsNaN(n) {
		return 0, false
	}
	n *= float64(unit)
	return time.Duration(min(max(0, n), float64(maxRetryAfter))), true
}

// maxLogged is how much of what a provider says is worth a place in the log.
const maxLogged = 1 << 10

// Loggable makes a provider's words fit for the log: without our customers'
// keys and the secrets given, and not too long.
func Loggable(text string, secrets ...string) string {
	// The mask comes before the cut, which could leave half a secret unmasked.
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	text = strings.TrimSpace(strings.ToValidUTF8(keyring.Mask(text), "\uFFFD"))
	if len(text) > maxLogged {
		text = strings.ToValidUTF8(text[:maxLogged], "") + "…"
	}
	return text
}

// notSecret are the headers whose values may stand in the log.
var notSecret = []string{"Accept", "Anthropic-Beta", "Anthropic-Version", "Content-Type", "User-Agent"}

// secrets are the words of a call's headers that must not reach the log. An
// operator may put a key into any header, so all others count.
func secrets(header http.Header) []string {
	var list []string
	for name, values := range header {
		if slices.Contains(notSecret, http.CanonicalHeaderKey(name)) {
			continue
		}
		for _, value := range values {
			for _, word := range strings.Fields(value) { // "Bearer" and the key
				if len(word) >= 8 {
					list = append(list, word)
				}
			}
		}
	}
	// A secret that begins another must not leave the other's end behind.
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
	return list
}
