package wire

import (
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/keyring"
	"turnpike/internal/providers"
)

var statusKinds = map[int]providers.Kind{
	http.StatusBadRequest:            providers.KindInvalid,
	http.StatusRequestEntityTooLarge: providers.KindInvalid,
	http.StatusUnprocessableEntity:   providers.KindInvalid,
	http.StatusUnauthorized:          providers.KindAuth,
	http.StatusForbidden:             providers.KindAuth,
	http.StatusPaymentRequired:       providers.KindAuth, // the operator's account, not the client's
	http.StatusNotFound:              providers.KindNoModel,
	http.StatusGone:                  providers.KindNoModel,
	http.StatusRequestTimeout:        providers.KindTimeout,
	http.StatusTooManyRequests:       providers.KindRateLimited,
	http.StatusServiceUnavailable:    providers.KindOverloaded,
	529:                              providers.KindOverloaded,
	http.StatusConflict:              providers.KindServer,
}

// KindOf returns the kind of failure for an HTTP status.
func KindOf(status int) providers.Kind {
	if kind, ok := statusKinds[status]; ok {
		return kind
	}
	if status >= 500 && status <= 599 {
		return providers.KindServer
	}
	return providers.KindProtocol
}

// ProtocolFailure returns the failure of a response that doesn't follow the protocol.
func ProtocolFailure(format string, args ...any) *providers.Failure {
	return &providers.Failure{Kind: providers.KindProtocol, Err: fmt.Errorf(format, args...)}
}

// maxRetryAfter keeps absurd values from overflowing.
const maxRetryAfter = 24 * time.Hour

// retryAfter returns the delay that the provider requests, or 0. OpenAI and Anthropic send
// milliseconds next to the standard header, which has seconds or a date.
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

const (
	maxLogged = 1 << 10
	maxShown  = 2 << 10
)

// identifiers are those of the operator's account, its keys and its resources.
var identifiers = regexp.MustCompile(`\b(?:org|proj|project|user|acct|account|wrkspc|req|sk|pk|key)[-_][\w-]{8,}|\bAIza[\w-]{16,}|` +
	`\b(?:projects|organizations|folders|billingAccounts|subscriptions|resourceGroups)/[^/\s"',]+|\barn:[^\s"',]+|\b[0-9]{10,}\b|` +
	`\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|[\w.-]+@[\w.-]+\.gserviceaccount\.com`)

// clientMessage returns the provider's words about the client's request, for the client. It returns an empty text for
// other failures, which may be about the operator's account.
func clientMessage(f *providers.Failure, text string, secrets []string) string {
	switch f.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
	default:
		return ""
	}
	switch f.Kind {
	case providers.KindInvalid, providers.KindTooLong, providers.KindNoModel, providers.KindBlockedInput, providers.KindBlockedOutput:
	default:
		return ""
	}
	return readable(identifiers.ReplaceAllStringFunc(text, func(id string) string {
		if strings.ContainsAny(id, "0123456789/") {
			return "***"
		}
		return id // a field such as user_location
	}), maxShown, secrets)
}

// Loggable returns a provider's message for the log: without Turnpike's keys and
// the given secrets, and not too long.
func Loggable(text string, secrets ...string) string { return readable(text, maxLogged, secrets) }

func readable(text string, limit int, secrets []string) string {
	// Redact before truncating, which could leave half a secret.
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	text = strings.TrimSpace(strings.ToValidUTF8(keyring.Mask(text), "\uFFFD"))
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}

var notSecret = []string{"Accept", "Anthropic-Beta", "Anthropic-Version", "Content-Type", "User-Agent"}

// secrets returns the words of the headers that must not be logged. An operator
// may put a key into any other header.
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
	// Longer ones first: a secret may be the prefix of another.
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
	return list
}
