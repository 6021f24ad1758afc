package credentials

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"golang.org/x/oauth2/google"

	"turnpike/internal/providers"
)

const googleScope = "https://www.googleapis.com/auth/cloud-platform"

// googleTypes are the credentials that a file may have: the key of a service account, or a workload
// identity, which exchanges a token of another platform.
var googleTypes = []google.CredentialsType{google.ServiceAccount, google.ExternalAccount, google.ImpersonatedServiceAccount, google.AuthorizedUser}

// NewGoogle returns a credential for Vertex AI. An empty file finds Google's application default
// credentials: GOOGLE_APPLICATION_CREDENTIALS, gcloud's own file, or the machine's service account.
func NewGoogle(file string) *Refreshing {
	return NewRefreshing(providers.BearerKey, func(ctx context.Context) (Token, error) {
		found, err := googleCredentials(withClient(ctx), file)
		if err != nil {
			return Token{}, fmt.Errorf("sign in to Google: %w", err)
		}
		token, err := found.TokenSource.Token()
		if err != nil {
			return Token{}, fmt.Errorf("sign in to Google: %w", tokenError(err))
		}
		return Token{Value: token.AccessToken, Expires: token.Expiry, Reread: commandReread}, nil
	})
}

// googleCredentials reads the credentials each time, because the file may have changed.
func googleCredentials(ctx context.Context, file string) (*google.Credentials, error) {
	params := google.CredentialsParams{Scopes: []string{googleScope}}
	if file == "" {
		return google.FindDefaultCredentialsWithParams(ctx, params)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var kind struct {
		Type google.CredentialsType `json:"type"`
	}
	if err := json.Unmarshal(text, &kind); err != nil || !slices.Contains(googleTypes, kind.Type) {
		return nil, fmt.Errorf("%s is not a credentials file; expected the JSON key of a service account or the configuration of a workload identity", file)
	}
	return google.CredentialsFromJSONWithTypeAndParams(ctx, text, kind.Type, params)
}
