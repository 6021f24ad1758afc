package leaks

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

const (
	keysFresh = time.Hour
	// keysStale is how long a list is used if no newer one can be fetched: a leaked
	// key is worse than a recently withdrawn signing key.
	keysStale = 24 * time.Hour
	// refetchEvery limits fetches for unknown key IDs. GitHub allows 60 requests an
	// hour without authentication.
	refetchEvery = 5 * time.Minute
	refetchEmpty = time.Minute // while there is no list
	fetchTimeout = 10 * time.Second
	maxKeyList   = 1 << 20
)

// githubKeys holds the public keys with which GitHub signs its reports.
type githubKeys struct {
	url    string
	client *http.Client
	now    func() time.Time

	mu      sync.Mutex
	keys    map[string]*ecdsa.PublicKey
	fetched time.Time
	asked   time.Time
}

type match struct {
	Token  string `json:"token"`
	Type   string `json:"type"`
	URL    string `json:"url"`
	Source string `json:"source"`
}

// Verdict says whether a match is a Turnpike key. It identifies the match by its
// hash, so that the response contains no secret.
type Verdict struct {
	TokenHash string `json:"token_hash"`
	TokenType string `json:"token_type"`
	Label     string `json:"label"`
}

// FromGitHub handles a report of GitHub's secret scanning partner program: the raw
// body, the ID of the signing key, and the signature in base64. A replayed report
// changes nothing, because the key is revoked already. A valid signature takes back
// the request that Admit counted.
func (s *Service) FromGitHub(ctx context.Context, body []byte, keyID, signature string, from Report) ([]Verdict, error) {
	if err := s.github.verify(ctx, body, keyID, signature); err != nil {
		return nil, err
	}
	if ip, err := netip.ParseAddr(from.IP); err == nil {
		s.visitors.Remove(ip)
	}
	var matches []match
	if err := jsonbody.DecodeLenient(body, &matches); err != nil {
		return nil, err
	}
	verdicts := make([]Verdict, len(matches))
	for i, m := range matches {
		from.Secret, from.Source, from.URL = m.Token, GitHub, m.URL
		outcome, err := s.Revoke(ctx, from)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256([]byte(m.Token))
		verdicts[i] = Verdict{TokenHash: hex.EncodeToString(sum[:]), TokenType: m.Type, Label: "true_positive"}
		if outcome == Unknown {
			verdicts[i].Label = "false_positive"
		}
	}
	return verdicts, nil
}

// ErrUnsigned rejects a report without a valid signature of GitHub.
var ErrUnsigned = fault.New(fault.InvalidSignature, "The report is not signed by GitHub. Github-Public-Key-Identifier must name one of its keys, and Github-Public-Key-Signature must be that key's signature of the body.")

func (g *githubKeys) verify(ctx context.Context, body []byte, keyID, signature string) error {
	raw, err := base64.StdEncoding.DecodeString(signature)
	if err != nil || keyID == "" || len(raw) == 0 {
		return ErrUnsigned
	}
	key, err := g.find(ctx, keyID)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	if key == nil || !ecdsa.VerifyASN1(key, sum[:], raw) {
		return ErrUnsigned
	}
	return nil
}

// ErrNoGitHubKeys rejects reports while GitHub's keys can't be fetched. The
// failed fetch is in the log.
var ErrNoGitHubKeys = fault.New(fault.Upstream, "GitHub's signing keys cannot be fetched at the moment. Try again in a minute.")

// find returns the key with the ID, or nil if GitHub has none. It fetches the list if the
// key is unknown or the list is old. Other reports wait meanwhile.
func (g *githubKeys) find(ctx context.Context, id string) (*ecdsa.PublicKey, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, pause := g.now(), refetchEvery
	if len(g.keys) == 0 {
		pause = refetchEmpty
	}
	fresh := g.keys[id] != nil && now.Sub(g.fetched) < keysFresh
	if !fresh && now.Sub(g.asked) >= pause {
		g.asked = now
		keys, err := g.fetch(ctx)
		if err != nil {
			slog.Warn("failed to fetch the keys of GitHub's secret scanning; retrying with a later report", "err", err, "retry_in", pause.String())
		} else {
			g.keys, g.fetched = keys, now
		}
	}
	if len(g.keys) == 0 || now.Sub(g.fetched) >= keysStale {
		return nil, ErrNoGitHubKeys
	}
	return g.keys[id], nil
}

// fetch fetches the list. It continues if the client disconnects, because clients
// could otherwise prevent every fetch.
func (g *githubKeys) fetch(ctx context.Context) (map[string]*ecdsa.PublicKey, error) {
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, g.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "turnpike")
	res, err := g.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxKeyList))
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the response was %s", res.Status)
	}
	return parseKeys(body)
}

// parseKeys parses the list and leaves out keys of unsupported types.
func parseKeys(body []byte) (map[string]*ecdsa.PublicKey, error) {
	var list struct {
		PublicKeys []struct {
			ID  string `json:"key_identifier"`
			Key string `json:"key"`
		} `json:"public_keys"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("the list of keys is not JSON: %w", err)
	}
	keys := map[string]*ecdsa.PublicKey{}
	for _, k := range list.PublicKeys {
		block, _ := pem.Decode([]byte(k.Key))
		if block == nil || k.ID == "" {
			continue
		}
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		if key, ok := parsed.(*ecdsa.PublicKey); err == nil && ok && key.Curve == elliptic.P256() {
			keys[k.ID] = key
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("the list has no usable key")
	}
	return keys, nil
}
