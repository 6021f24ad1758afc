package safehttp

import (
	"errors"
	"net/http"
)

// ErrUpgraded is the failure of a request that was answered with 101.
var ErrUpgraded = errors.New("the server answered with 101 Switching Protocols, which was not asked for")

// WithoutUpgrades makes an answer with 101 a failure, for the clients that ask
// for no other protocol. net/http would return the bare connection as its body,
// and no context and no timeout ends a read of that. next may be nil for the
// default.
func WithoutUpgrades(next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return withoutUpgrades{next}
}

type withoutUpgrades struct{ next http.RoundTripper }

func (t withoutUpgrades) RoundTrip(req *http.Request) (*http.Response, error) {
	return refuseUpgrade(t.next.RoundTrip(req))
}

func refuseUpgrade(resp *http.Response, err error) (*http.Response, error) {
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return resp, err
	}
	_ = resp.Body.Close()
	return nil, ErrUpgraded
}
