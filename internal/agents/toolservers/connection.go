package toolservers

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"turnpike/internal/agents/tools"
	"turnpike/internal/audit"
	"turnpike/internal/db"
)

// ConnectionState is the state of a server that a member connects with OAuth. It is empty for other servers.
type ConnectionState string

// The states of a connection.
const (
	NeedsAuthorization ConnectionState = "needs_authorization"
	Connected          ConnectionState = "connected"
)

const (
	// renewalLease is how long a node may take to renew a token. It is longer than tokenTimeout, so that no two
	// nodes use a refresh token concurrently.
	renewalLease = 30 * time.Second
	// renewalWait is how long a call waits for another one that renews the token, and renewalPoll how often it looks.
	renewalWait = 15 * time.Second
	renewalPoll = 500 * time.Millisecond
)

// signalConnection wakes the calls that wait for a token. The payload is the server's ID.
const signalConnection = "tool.connection"

// grant is a client of an authorization server and its tokens. It is stored encrypted.
type grant struct {
	ClientID     string           `json:"client_id"`
	ClientSecret string           `json:"client_secret,omitempty"`
	AuthStyle    oauth2.AuthStyle `json:"auth_style"`
	TokenURL     string           `json:"token_url"`
	Resource     string           `json:"resource"`
	AccessToken  string           `json:"access_token"`
	TokenType    string           `json:"token_type"`
	RefreshToken string           `json:"refresh_token,omitempty"`
}

// setToken stores a token and returns when it expires, or nil. A server that doesn't rotate refresh tokens
// returns none.
func (g *grant) setToken(t *oauth2.Token, now time.Time) *time.Time {
	g.AccessToken, g.TokenType, g.RefreshToken = t.AccessToken, cmp.Or(t.Type(), "Bearer"), cmp.Or(t.RefreshToken, g.RefreshToken)
	if t.Expiry.IsZero() {
		return nil
	}
	expires := now.Add(time.Until(t.Expiry))
	return &expires
}

func (g *grant) authorization() string { return g.TokenType + " " + g.AccessToken }

// storedConnection is a server's connection as it is stored.
type storedConnection struct {
	state        ConnectionState
	sealed       string
	expiresAt    *time.Time
	renewalUntil *time.Time
}

func (m *Service) readConnection(ctx context.Context, s *Server) (*storedConnection, error) {
	var c storedConnection
	err := db.Scan(m.DB.QueryRow(ctx, "SELECT connection_state, connection, token_expires_at, renewal_until FROM tool_servers WHERE id = $1", s.ID),
		&c.state, &c.sealed, &c.expiresAt, &c.renewalUntil)
	if errors.Is(err, db.ErrNotFound) {
		return &c, nil // it was deleted
	}
	return &c, db.Wrap(err, "read connection")
}

func (m *Service) openGrant(s *Server, sealed string) (*grant, error) {
	var g grant
	plain, err := m.Ring.Open(sealed, s.connectionLocation())
	if err == nil {
		err = json.Unmarshal(plain, &g)
	}
	if err != nil {
		return nil, fmt.Errorf("connection of %s: %w", s.ID, err)
	}
	return &g, nil
}

func (m *Service) sealGrant(s *Server, g *grant) (string, error) {
	plain, err := json.Marshal(g)
	if err != nil {
		return "", err
	}
	return m.Ring.Seal(plain, s.connectionLocation()), nil
}

// connectionLocation binds the sealed tokens to their workspace and server.
func (s *Server) connectionLocation() string { return "connection of " + s.location() }

func needsAuthorization(s *Server) error {
	return &tools.Failure{Message: fmt.Sprintf("the tool server %s needs authorization; a member must connect it in the dashboard", s.Label), Final: true}
}

// connectedAuthorization returns the Authorization header of a connected server. If the token has expired, one
// call on one node renews it, and others wait.
func (m *Service) connectedAuthorization(ctx context.Context, s *Server) (string, error) {
	woken, stop := m.waiters.Watch(s.ID)
	defer stop()
	waiting, cancel := context.WithTimeout(ctx, renewalWait)
	defer cancel()
	for {
		c, err := m.readConnection(ctx, s)
		if err != nil {
			return "", err
		}
		if c.state != Connected {
			return "", needsAuthorization(s)
		}
		now := m.Now()
		if c.expiresAt == nil || now.Before(c.expiresAt.Add(-tokenMargin)) {
			g, err := m.openGrant(s, c.sealed)
			if err != nil {
				return "", err
			}
			return g.authorization(), nil
		}
		if c.renewalUntil == nil || !now.Before(*c.renewalUntil) {
			if err := m.renew(ctx, s, c); err != nil {
				return "", err
			}
			continue
		}
		select {
		case <-woken:
		case <-time.After(renewalPoll):
		case <-waiting.Done():
			if ctx.Err() != nil {
				return "", ctx.Err()
			}
			return "", &tools.Failure{Message: fmt.Sprintf("the token of %s is being renewed; retry", s.Label)}
		}
	}
}

// renew renews the token unless another call does. It continues if the client leaves: the refresh token may be
// used up.
func (m *Service) renew(ctx context.Context, s *Server, c *storedConnection) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewalLease)
	defer cancel()
	id, now := rand.Text(), m.Now()
	claimed := false
	if err := m.DB.Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE tool_servers SET renewal_id = $2, renewal_until = $3 WHERE id = $1 AND connection = $4 AND connection_state = 'connected'
			AND (renewal_until IS NULL OR renewal_until <= $5 OR renewal_id = $2)`, s.ID, id, now.Add(renewalLease).UnixMicro(), c.sealed, now.UnixMicro())
		claimed = n == 1
		return err
	}); err != nil {
		return db.Wrap(err, "claim renewal")
	}
	if !claimed {
		return nil
	}
	g, err := m.openGrant(s, c.sealed)
	if err != nil {
		return err
	}
	token, err := m.refresh(ctx, g)
	switch {
	case err == nil:
		return m.storeRenewed(ctx, s, id, g, token)
	case rejected(err):
		slog.Warn("an OAuth server rejected a refresh token; a member must connect the tool server again", "server", s.ID)
		return cmp.Or(m.endRenewal(ctx, s, id, "connection_state = 'needs_authorization', connection = NULL, token_expires_at = NULL, "), needsAuthorization(s))
	}
	return cmp.Or(m.endRenewal(ctx, s, id, ""), oauthFailure(s, err))
}

var errNoRefreshToken = errors.New("the authorization server gave no refresh token")

// refresh requests another token for the same resource.
func (m *Service) refresh(ctx context.Context, g *grant) (*oauth2.Token, error) {
	if g.RefreshToken == "" {
		return nil, errNoRefreshToken
	}
	ctx, cancel := m.withTokenClient(ctx)
	defer cancel()
	config := clientcredentials.Config{ClientID: g.ClientID, ClientSecret: g.ClientSecret, TokenURL: g.TokenURL, AuthStyle: g.AuthStyle,
		EndpointParams: url.Values{"grant_type": {"refresh_token"}, "refresh_token": {g.RefreshToken}, "resource": {g.Resource}}}
	return config.Token(ctx)
}

// rejected reports whether the authorization server will never accept the refresh token again.
func rejected(err error) bool {
	if errors.Is(err, errNoRefreshToken) {
		return true
	}
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return false
	}
	switch status := refused.Response.StatusCode; status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return status >= 400 && status < 500
	}
}

func (m *Service) storeRenewed(ctx context.Context, s *Server, id string, g *grant, token *oauth2.Token) error {
	expires := g.setToken(token, m.Now())
	sealed, err := m.sealGrant(s, g)
	if err != nil {
		return err
	}
	return m.endRenewal(ctx, s, id, "connection = $3, token_expires_at = $4, ", sealed, db.Micros(expires))
}

// endRenewal ends the lease of a renewal, unless the connection was changed meanwhile.
func (m *Service) endRenewal(ctx context.Context, s *Server, id, set string, args ...any) error {
	return m.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE tool_servers SET "+set+"renewal_id = NULL, renewal_until = NULL WHERE id = $1 AND renewal_id = $2", append([]any{s.ID, id}, args...)...)
		tx.Signal(signalConnection, s.ID)
		return db.Wrap(err, "store renewal")
	})
}

// TokenRejected expires the token that the server rejected, so that the next call renews it. It reports whether
// there is anything to renew. authorization is the header that was sent.
func (m *Service) TokenRejected(ctx context.Context, s *Server, authorization string) (bool, error) {
	if s.Connection == "" {
		return false, nil
	}
	c, err := m.readConnection(ctx, s)
	if err != nil || c.state != Connected {
		return false, err
	}
	g, err := m.openGrant(s, c.sealed)
	if err != nil {
		return false, err
	}
	if g.authorization() != authorization {
		return true, nil // another call has renewed it
	}
	err = m.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE tool_servers SET token_expires_at = 0 WHERE id = $1 AND connection = $2", s.ID, c.sealed)
		return err
	})
	return true, db.Wrap(err, "expire token")
}

// resetConnection deletes the tokens of a server.
func (m *Service) resetConnection(ctx context.Context, tx *db.Tx, s *Server, state ConnectionState) error {
	s.Connection, s.ConnectedAt, s.ConnectedBy = state, nil, ""
	if _, err := tx.Exec(ctx, `UPDATE tool_servers SET connection_state = $2, connection = NULL, connected_at = NULL, connected_by = NULL, token_expires_at = NULL,
		renewal_id = NULL, renewal_until = NULL WHERE id = $1`, s.ID, db.OrNull(state)); err != nil {
		return fmt.Errorf("reset connection: %w", err)
	}
	_, err := tx.Exec(ctx, "DELETE FROM tool_authorizations WHERE server_id = $1", s.ID)
	return db.Wrap(err, "delete authorizations")
}

// Disconnect deletes the tokens of a server that GetLocked returned.
func (m *Service) Disconnect(ctx context.Context, tx *db.Tx, by audit.Actor, s *Server) error {
	if s.Connection != Connected {
		return nil
	}
	if err := m.resetConnection(ctx, tx, s, NeedsAuthorization); err != nil {
		return err
	}
	return m.log(ctx, tx, by, s, "tool_server.disconnected")
}

// withTokenClient returns a context for a request to an authorization server.
func (m *Service) withTokenClient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, m.tokens.client), tokenTimeout)
}
