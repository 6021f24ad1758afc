package toolservers

import (
	"context"
	"slices"
	"strings"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/safehttp"
)

// checkIssuer checks the authorization server of a client that the workspace has registered there.
func (o *OAuth) checkIssuer(guard *safehttp.Guard) error {
	switch {
	case o.Issuer == "":
		return nil
	case o.GrantType != AuthorizationCode:
		return fault.Invalid("oauth.issuer", "oauth.issuer must be empty with %s, which has a token_url.", ClientCredentials)
	case o.ClientID == "":
		return fault.Missing("oauth.client_id", "oauth.client_id is required with oauth.issuer.")
	}
	_, err := guard.CheckURL("oauth.issuer", o.Issuer)
	return err
}

func sameIssuer(a, b string) bool { return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/") }

// choose returns the authorization server to use of those that the tool server names. A client that the workspace
// has registered belongs to one of them, and its secret goes to no other.
func (o *OAuth) choose(servers []string) (string, error) {
	if o.ClientID == "" || o.Issuer == "" {
		return servers[0], nil
	}
	if i := slices.IndexFunc(servers, func(s string) bool { return sameIssuer(s, o.Issuer) }); i >= 0 {
		return servers[i], nil
	}
	return "", connectFault("The tool server names another authorization server than the one at which its client is registered, "+o.Issuer+". Turnpike sends the client to no other one. If the server has moved, set its OAuth again with a client of the new one.", nil)
}

// bindClient stores the authorization server of a client that the workspace has registered, unless one is stored.
// The first connection decides, so that the tool server can't name another one later.
func (m *Service) bindClient(ctx context.Context, s *Server, c Credentials, issuer string) error {
	if c.OAuth.ClientID == "" || c.OAuth.Issuer != "" {
		return nil
	}
	before := s.headers
	c.OAuth.Issuer = issuer
	if err := m.seal(s, c); err != nil {
		return err
	}
	return m.DB.Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, "UPDATE tool_servers SET headers = $3 WHERE id = $1 AND headers = $2", s.ID, before, s.headers)
		if err == nil && n == 0 {
			err = connectFault("The tool server was changed meanwhile. Connect it again.", nil)
		}
		return db.Wrap(err, "store authorization server")
	})
}
