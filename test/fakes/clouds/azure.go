package clouds

import (
	"fmt"
	"net/http"
	"testing"
)

// Azure is what Entra ID expects of a client.
type Azure struct {
	Tenant, Client, Secret string
	Federated              *Key // of the issuer that the client trusts; nil for none
}

// NewAzure starts Entra ID and Azure OpenAI.
func NewAzure(t testing.TB, a Azure) *Server {
	return start(t, func(s *Server, mux *http.ServeMux) {
		mux.HandleFunc("POST /"+a.Tenant+"/oauth2/v2.0/token", func(w http.ResponseWriter, r *http.Request) {
			if err := a.check(r); err != nil {
				s.refuse(w, http.StatusUnauthorized, err)
				return
			}
			s.issue(w)
		})
		answer := s.authenticated(func(w http.ResponseWriter, r Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id":"a","object":"chat.completion","created":1,"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"Hello from Azure"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}}`)
		})
		mux.HandleFunc("POST /openai/deployments/{deployment}/chat/completions", answer)
		mux.HandleFunc("POST /openai/v1/chat/completions", answer)
	})
}

func (a Azure) check(r *http.Request) error {
	_, _, basic := r.BasicAuth()
	form := r.PostFormValue
	switch {
	case basic:
		return fmt.Errorf("the client's secret is in a header")
	case form("grant_type") != "client_credentials" || form("client_id") != a.Client || form("scope") != "https://cognitiveservices.azure.com/.default":
		return fmt.Errorf("grant_type %q, client_id %q, scope %q", form("grant_type"), form("client_id"), form("scope"))
	case a.Federated == nil && form("client_secret") != a.Secret:
		return fmt.Errorf("AADSTS7000215: Invalid client secret provided")
	case a.Federated == nil:
		return nil
	case form("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" || form("client_secret") != "":
		return fmt.Errorf("client_assertion_type %q with secret %q", form("client_assertion_type"), form("client_secret"))
	}
	claims, err := a.Federated.verify(form("client_assertion"))
	if err == nil && claims["aud"] != "api://AzureADTokenExchange" {
		err = fmt.Errorf("audience %v", claims["aud"])
	}
	return err
}
