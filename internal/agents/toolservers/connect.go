package toolservers

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/safehttp"
	"turnpike/internal/visibility"
)

// authorizationLifetime is how long a member may take at the authorization server.
const authorizationLifetime = 10 * time.Minute

// Authorization is how a member connects a server.
type Authorization struct {
	SessionID   string // of the member; only the same session can complete it
	RedirectURL string
}

// pendingAuthorization is what Turnpike remembers while a member is at the authorization server.
type pendingAuthorization struct {
	Grant       grant  `json:"grant"`
	Verifier    string `json:"verifier"`
	RedirectURL string `json:"redirect_url"`
	Issuer      string `json:"issuer"`
	SendsIssuer bool   `json:"sends_issuer"` // with the code (RFC 9207)
}

func pendingLocation(stateHash string) string { return "tool authorization " + stateHash }

func hashState(state string) string {
	sum := sha256.Sum256([]byte(state))
	return hex.EncodeToString(sum[:])
}

// StartAuthorization finds the authorization server of a tool server, registers a client there unless the
// workspace has one, and returns the URL at which the member allows the access.
func (m *Service) StartAuthorization(ctx context.Context, s *Server, a Authorization) (string, error) {
	c, err := m.credentials(s)
	if err != nil {
		return "", err
	}
	if s.Connection == "" || c.OAuth == nil {
		return "", fault.New(fault.InvalidState, "The server needs no connection. Set its OAuth to authorization_code first.")
	}
	mode, err := m.mode(ctx, s.Tenant)
	if err != nil {
		return "", err
	}
	if mode == accounts.ToolsSimulated {
		return "", fault.New(fault.InvalidState, "Tools are simulated in the test environment, so the server is not asked. Register it in the live environment, or set the workspace's test tools to real.")
	}
	d, err := m.discover(ctx, s, c)
	if err != nil {
		return "", err
	}
	if err := m.bindClient(ctx, s, c, d.server.Issuer); err != nil {
		return "", err
	}
	pending, err := m.newPending(ctx, c.OAuth, d, a)
	if err != nil {
		return "", err
	}
	state := rand.Text()
	config := pending.config()
	config.Endpoint.AuthURL, config.Scopes = d.server.AuthorizationEndpoint, d.scopes
	address := config.AuthCodeURL(state, oauth2.S256ChallengeOption(pending.Verifier), oauth2.SetAuthURLParam("resource", pending.Grant.Resource))
	return address, m.storePending(ctx, s, a, state, pending)
}

// config returns the client without the URL and the scopes of the authorization.
func (p *pendingAuthorization) config() *oauth2.Config {
	return &oauth2.Config{ClientID: p.Grant.ClientID, ClientSecret: p.Grant.ClientSecret, RedirectURL: p.RedirectURL,
		Endpoint: oauth2.Endpoint{TokenURL: p.Grant.TokenURL, AuthStyle: p.Grant.AuthStyle}}
}

func (m *Service) storePending(ctx context.Context, s *Server, a Authorization, state string, p *pendingAuthorization) error {
	plain, err := json.Marshal(p)
	if err != nil {
		return err
	}
	hash := hashState(state)
	return m.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, db.Insert("tool_authorizations", "state_hash, server_id, session_id, pending, expires_at"), hash, s.ID, a.SessionID,
			m.Ring.Seal(plain, pendingLocation(hash)), m.Now().Add(authorizationLifetime).UnixMicro())
		return db.Wrap(err, "store authorization")
	})
}

// discovery is what a tool server and its authorization server say about themselves.
type discovery struct {
	resource string
	server   *oauthex.AuthServerMeta
	scopes   []string
}

// discover follows the authorization specification of MCP: the server's challenge, its metadata (RFC 9728), and
// those of its authorization server (RFC 8414).
func (m *Service) discover(ctx context.Context, s *Server, c Credentials) (*discovery, error) {
	requests, err := m.Requests().Reserve(s.Tenant, s.URL)
	if err != nil {
		return nil, requestFault(err)
	}
	defer requests.Release()
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	client := *m.tokens.client
	client.Transport = requests.Transport(client.Transport)
	challenges, err := challengesOf(ctx, &client, s, c.Headers)
	if err != nil {
		return nil, connectFault("The tool server can't be reached: "+safehttp.Explain(err)+".", err)
	}
	metadataURL, scope := "", ""
	for _, c := range challenges {
		metadataURL = cmp.Or(metadataURL, c.Params["resource_metadata"])
		if c.Scheme == "bearer" {
			scope = cmp.Or(scope, c.Params["scope"])
		}
	}
	resource, err := m.resourceMetadata(ctx, &client, s, metadataURL)
	if err != nil {
		return nil, err
	}
	issuer, err := c.OAuth.choose(resource.AuthorizationServers)
	if err != nil {
		return nil, err
	}
	server, err := auth.GetAuthServerMetadata(ctx, issuer, &client)
	switch {
	case err != nil:
		return nil, connectFault("The metadata of the authorization server can't be used: "+discoveryProblem(err)+".", err)
	case server == nil:
		return nil, connectFault("The tool server names no authorization server with metadata (RFC 8414). Give it a token in its headers instead.", nil)
	}
	for _, endpoint := range []string{server.AuthorizationEndpoint, server.TokenEndpoint} {
		if _, err := m.Guard.CheckURL("oauth", endpoint); err != nil {
			return nil, connectFault("The authorization server has an endpoint that Turnpike must not use. It needs https:// addresses.", err)
		}
	}
	d := &discovery{resource: resource.Resource, server: server, scopes: strings.Fields(cmp.Or(c.OAuth.Scope, scope, strings.Join(resource.ScopesSupported, " ")))}
	if c.OAuth.Scope == "" && slices.Contains(server.ScopesSupported, "offline_access") && !slices.Contains(d.scopes, "offline_access") {
		d.scopes = append(d.scopes, "offline_access") // for a refresh token
	}
	return d, nil
}

// connectFault is a problem that the member can do something about, so it is shown with the form.
func connectFault(message string, cause error) error {
	return fault.New(fault.InvalidState, "%s", message).Because(cause)
}

// discoveryProblem describes an error without what a server returned.
func discoveryProblem(err error) string {
	if strings.Contains(err.Error(), "does not implement PKCE") {
		return "it doesn't support PKCE"
	}
	if reason := safehttp.Class(err); reason != "other" {
		return safehttp.Explain(err)
	}
	return "it is missing or not valid"
}

// challengesOf sends a request without a token and returns what the server asks for.
func challengesOf(ctx context.Context, client *http.Client, s *Server, headers map[string]string) ([]oauthex.Challenge, error) {
	const message = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader(message))
	if err != nil {
		return nil, err
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can be used again
	challenges, err := oauthex.ParseWWWAuthenticate(resp.Header.Values("WWW-Authenticate"))
	if err != nil {
		return nil, nil // a server without a valid challenge may still have metadata
	}
	return challenges, nil
}

// resourceMetadata returns the server's metadata. A server without any is its own authorization server, as in
// the first version of the specification.
func (m *Service) resourceMetadata(ctx context.Context, client *http.Client, s *Server, challenged string) (*oauthex.ProtectedResourceMetadata, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	const wellKnown = "/.well-known/oauth-protected-resource"
	origin := u.Scheme + "://" + u.Host
	places := [][2]string{{origin + wellKnown + "/" + strings.TrimLeft(u.EscapedPath(), "/"), s.URL}, {origin + wellKnown, origin}, {origin + wellKnown, s.URL}}
	if challenged != "" {
		places = append([][2]string{{challenged, s.URL}, {challenged, origin}}, places...)
	}
	for _, place := range places {
		found, err := oauthex.GetProtectedResourceMetadata(ctx, place[0], place[1], client)
		if err != nil {
			continue
		}
		if len(found.AuthorizationServers) == 0 {
			return nil, connectFault("The metadata of the tool server name no authorization server.", nil)
		}
		return found, nil
	}
	return &oauthex.ProtectedResourceMetadata{Resource: s.URL, AuthorizationServers: []string{origin}}, nil
}

// newPending returns the authorization with the workspace's client, or with one that it registers (RFC 7591).
func (m *Service) newPending(ctx context.Context, o *OAuth, d *discovery, a Authorization) (*pendingAuthorization, error) {
	p := &pendingAuthorization{Verifier: oauth2.GenerateVerifier(), RedirectURL: a.RedirectURL, Issuer: d.server.Issuer, SendsIssuer: d.server.AuthorizationResponseIssParameterSupported,
		Grant: grant{ClientID: o.ClientID, ClientSecret: o.ClientSecret, TokenURL: d.server.TokenEndpoint, Resource: d.resource}}
	method := authMethod(d.server.TokenEndpointAuthMethodsSupported, o.ClientID == "" || o.ClientSecret != "")
	if o.ClientID == "" {
		if d.server.RegistrationEndpoint == "" {
			return nil, connectFault("The authorization server doesn't register clients. Register one there with the redirect URL "+a.RedirectURL+", and enter its client ID.", nil)
		}
		ctx, cancel := m.withTokenClient(ctx)
		defer cancel()
		registered, err := oauthex.RegisterClient(ctx, d.server.RegistrationEndpoint, &oauthex.ClientRegistrationMetadata{RedirectURIs: []string{a.RedirectURL},
			TokenEndpointAuthMethod: method, GrantTypes: []string{"authorization_code", "refresh_token"}, ResponseTypes: []string{"code"}, ClientName: "Turnpike",
			Scope: strings.Join(d.scopes, " ")}, m.tokens.client)
		if err != nil {
			return nil, connectFault("The authorization server registered no client. Register one there with the redirect URL "+a.RedirectURL+", and enter its client ID.", err)
		}
		p.Grant.ClientID, p.Grant.ClientSecret = registered.ClientID, registered.ClientSecret
		method = cmp.Or(registered.TokenEndpointAuthMethod, method)
	}
	p.Grant.AuthStyle = oauth2.AuthStyleInParams
	if method == secretBasic {
		p.Grant.AuthStyle = oauth2.AuthStyleInHeader
	}
	return p, nil
}

const (
	secretBasic = "client_secret_basic"
	secretPost  = "client_secret_post"
	noSecret    = "none"
)

// authMethod returns how a client authenticates itself to an authorization server. The default is that of
// RFC 8414.
func authMethod(supported []string, hasSecret bool) string {
	if !hasSecret {
		return noSecret
	}
	for _, method := range []string{secretBasic, secretPost, noSecret} {
		if slices.Contains(supported, method) {
			return method
		}
	}
	return secretBasic
}

// Callback is the redirect of an authorization server.
type Callback struct {
	SessionID string
	State     string
	Code      string
	Issuer    string
}

// CompleteAuthorization connects a server with the code of its authorization server. The state works once, and
// only in the session that started the authorization.
func (m *Service) CompleteAuthorization(ctx context.Context, vis visibility.Filter, by audit.Actor, c Callback) (*Server, error) {
	s, pending, err := m.takePending(ctx, vis, c)
	if err != nil {
		return nil, err
	}
	switch {
	case c.Code == "":
		return s, connectFault("The authorization was canceled or rejected. Connect the server again.", nil)
	case (pending.SendsIssuer || c.Issuer != "") && c.Issuer != pending.Issuer:
		return s, connectFault("The response came from another authorization server. Connect the server again.", nil)
	}
	exchanging, cancel := m.withTokenClient(ctx)
	defer cancel()
	g := pending.Grant
	token, err := pending.config().Exchange(exchanging, c.Code, oauth2.VerifierOption(pending.Verifier), oauth2.SetAuthURLParam("resource", g.Resource))
	if err != nil {
		return s, connectFault("The authorization server gave no token. Connect the server again.", err)
	}
	now := m.Now()
	expires := g.setToken(token, now)
	sealed, err := m.sealGrant(s, &g)
	if err != nil {
		return s, err
	}
	err = m.DB.Write(ctx, func(tx *db.Tx) error {
		current, err := m.GetLocked(ctx, tx, vis, s.ID)
		if err != nil {
			return err
		}
		if current.URL != s.URL || current.headers != s.headers {
			return connectFault("The tool server was changed meanwhile. Connect it again.", nil)
		}
		if _, err := tx.Exec(ctx, `UPDATE tool_servers SET connection_state = 'connected', connection = $2, connected_at = $3, connected_by = $4, token_expires_at = $5,
			renewal_id = NULL, renewal_until = NULL, listed_at = NULL, problem = NULL WHERE id = $1`, s.ID, sealed, now.UnixMicro(), by.Name, db.Micros(expires)); err != nil {
			return fmt.Errorf("store connection: %w", err)
		}
		s.Connection, s.ConnectedAt, s.ConnectedBy, s.issuer = Connected, &now, by.Name, pending.Issuer
		return m.log(ctx, tx, by, s, "tool_server.connected")
	})
	return s, err
}

var errUnknownState = fault.New(fault.InvalidState, "This authorization is unknown, too old or was started in another session. Connect the server again.")

// takePending returns the authorization of a state and deletes it.
func (m *Service) takePending(ctx context.Context, vis visibility.Filter, c Callback) (s *Server, p *pendingAuthorization, err error) {
	hash := hashState(c.State)
	var serverID, sealed string
	err = m.DB.Write(ctx, func(tx *db.Tx) error {
		if err := db.Scan(tx.QueryRow(ctx, "SELECT server_id, pending FROM tool_authorizations WHERE state_hash = $1 AND session_id = $2 AND expires_at > $3"+tx.Lock("tool_authorizations"),
			hash, c.SessionID, m.Now().UnixMicro()), &serverID, &sealed); err != nil {
			return err
		}
		if s, err = m.Get(ctx, tx, vis, serverID); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "DELETE FROM tool_authorizations WHERE state_hash = $1", hash)
		return err
	})
	if errors.Is(err, db.ErrNotFound) || fault.Is(err, fault.NotFound) {
		return nil, nil, errUnknownState
	}
	if err != nil {
		return nil, nil, db.Wrap(err, "take authorization")
	}
	plain, err := m.Ring.Open(sealed, pendingLocation(hash))
	if err == nil {
		err = json.Unmarshal(plain, &p)
	}
	return s, p, db.Wrap(err, "open authorization")
}

// PurgeAuthorizations deletes authorizations that no one has completed.
func (m *Service) PurgeAuthorizations(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	return tx.Exec(ctx, "DELETE FROM tool_authorizations WHERE state_hash IN (SELECT state_hash FROM tool_authorizations WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)",
		m.Now().UnixMicro(), limit)
}
