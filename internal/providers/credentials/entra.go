package credentials

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"turnpike/internal/budget"
	"turnpike/internal/providers"
	"turnpike/internal/safehttp"
)

// Entra is how Turnpike signs in to Microsoft Entra ID. Empty fields come from the variables that
// Microsoft's own libraries read: AZURE_TENANT_ID, AZURE_CLIENT_ID, AZURE_CLIENT_SECRET,
// AZURE_FEDERATED_TOKEN_FILE and AZURE_AUTHORITY_HOST.
type Entra struct {
	TenantID     string
	ClientID     string
	ClientSecret string
	TokenFile    string // of a workload identity
	Authority    string // such as https://login.microsoftonline.us
}

const (
	maxTokenResponse = 1 << 20
	azureScope       = "https://cognitiveservices.azure.com/.default"
	azureResource    = "https://cognitiveservices.azure.com"
	publicAuthority  = "https://login.microsoftonline.com"
	azureMetadata    = "http://169.254.169.254/metadata/identity/oauth2/token"
	assertionType    = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
)

// NewEntra returns a credential for Azure OpenAI: by a client's secret, by a federated token of a
// workload identity, or else by the machine's managed identity.
func NewEntra(e Entra) *Refreshing {
	e.TenantID = cmp.Or(e.TenantID, os.Getenv("AZURE_TENANT_ID"))
	e.ClientID = cmp.Or(e.ClientID, os.Getenv("AZURE_CLIENT_ID"))
	e.Authority = strings.TrimRight(cmp.Or(e.Authority, os.Getenv("AZURE_AUTHORITY_HOST"), publicAuthority), "/")
	if e.ClientSecret == "" && e.TokenFile == "" {
		e.ClientSecret = os.Getenv("AZURE_CLIENT_SECRET")
	}
	if e.ClientSecret == "" {
		e.TokenFile = cmp.Or(e.TokenFile, os.Getenv("AZURE_FEDERATED_TOKEN_FILE"))
	}
	fetch := e.signIn
	if e.ClientSecret == "" && e.TokenFile == "" {
		fetch = e.managedIdentity
	}
	return NewRefreshing(providers.BearerKey, fetch)
}

// signIn gets a token with the client's secret or with a federated token, which is read each time.
func (e Entra) signIn(ctx context.Context) (Token, error) {
	if e.TenantID == "" || e.ClientID == "" {
		return Token{}, errors.New("sign_in needs tenant_id and client_id, or the variables AZURE_TENANT_ID and AZURE_CLIENT_ID")
	}
	c := clientcredentials.Config{ClientID: e.ClientID, ClientSecret: e.ClientSecret, Scopes: []string{azureScope}, AuthStyle: oauth2.AuthStyleInParams,
		TokenURL: e.Authority + "/" + url.PathEscape(e.TenantID) + "/oauth2/v2.0/token"}
	if e.TokenFile != "" {
		assertion, err := os.ReadFile(e.TokenFile)
		if err != nil {
			return Token{}, fmt.Errorf("federated token: %w", err)
		}
		c.EndpointParams = url.Values{"client_assertion_type": {assertionType}, "client_assertion": {strings.TrimSpace(string(assertion))}}
	}
	token, err := c.Token(withClient(ctx))
	if err != nil {
		return Token{}, fmt.Errorf("sign in to Entra: %w", tokenError(err))
	}
	return Token{Value: token.AccessToken, Expires: token.Expiry, Reread: commandReread}, nil
}

// managedIdentity gets a token from the machine: from App Service, or from the metadata service of a
// virtual machine.
func (e Entra) managedIdentity(ctx context.Context) (Token, error) {
	query := url.Values{"resource": {azureResource}, "api-version": {"2018-02-01"}}
	address, header := azureMetadata, http.Header{"Metadata": {"true"}}
	if own := os.Getenv("IDENTITY_ENDPOINT"); own != "" {
		address, header = own, http.Header{"X-Identity-Header": {os.Getenv("IDENTITY_HEADER")}}
		query.Set("api-version", "2019-08-01")
	}
	if e.ClientID != "" {
		query.Set("client_id", e.ClientID)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"?"+query.Encode(), nil)
	if err != nil {
		return Token{}, errors.New("IDENTITY_ENDPOINT is not a URL")
	}
	req.Header = header
	resp, err := signInClient.Do(req)
	if err != nil {
		return Token{}, fmt.Errorf("managed identity: %w", err)
	}
	defer resp.Body.Close()
	var out struct {
		AccessToken string      `json:"access_token"`
		ExpiresOn   json.Number `json:"expires_on"` // Unix time, as a string
	}
	err = json.NewDecoder(budget.Of(ctx).ChargeJSON(resp.Body, maxTokenResponse)).Decode(&out)
	seconds, notNumber := strconv.ParseInt(string(out.ExpiresOn), 10, 64)
	if resp.StatusCode != http.StatusOK || err != nil || notNumber != nil {
		return Token{}, fmt.Errorf("managed identity: the metadata service returned status %d without a token", resp.StatusCode)
	}
	return Token{Value: out.AccessToken, Expires: time.Unix(seconds, 0)}, nil
}

// signInClient sends requests to servers that issue tokens. A redirect could send a secret to another
// server.
var signInClient = &http.Client{Timeout: fetchTimeout, Transport: safehttp.Bounded(nil), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

func withClient(ctx context.Context) context.Context {
	return context.WithValue(ctx, oauth2.HTTPClient, signInClient)
}

// tokenError returns the error of a token server without its body, which may repeat the request.
func tokenError(err error) error {
	var refused *oauth2.RetrieveError
	if !errors.As(err, &refused) {
		return err
	}
	status := 0
	if refused.Response != nil {
		status = refused.Response.StatusCode
	}
	return fmt.Errorf("the server returned status %d: %s", status, cmp.Or(firstLine([]byte(refused.ErrorDescription)), refused.ErrorCode, "no reason"))
}
