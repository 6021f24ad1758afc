package credentials

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestManagedIdentityOfAppService(t *testing.T) {
	for _, name := range []string{"AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"} {
		t.Setenv(name, "")
	}
	expires := time.Now().Add(time.Hour).Truncate(time.Second)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.Header.Get("X-Identity-Header") != "proof" || q.Get("api-version") != "2019-08-01" || q.Get("resource") != "https://cognitiveservices.azure.com" || q.Get("client_id") != "mine" {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, `{"access_token":"managed","expires_on":"%d","resource":"https://cognitiveservices.azure.com","token_type":"Bearer"}`, expires.Unix())
	}))
	defer server.Close()
	t.Setenv("IDENTITY_ENDPOINT", server.URL+"/msi/token")
	t.Setenv("IDENTITY_HEADER", "proof")
	r := NewEntra(Entra{ClientID: "mine"})
	if token, err := authenticate(t, r); token != "managed" || err != nil || !r.token.Expires.Equal(expires) {
		t.Errorf("got %q until %s, %v", token, r.token.Expires, err)
	}
	t.Setenv("IDENTITY_HEADER", "wrong")
	if _, err := authenticate(t, NewEntra(Entra{ClientID: "mine"})); err == nil || !strings.Contains(err.Error(), "status 400") {
		t.Errorf("got %v", err)
	}
	if _, err := authenticate(t, NewEntra(Entra{ClientSecret: "x"})); err == nil || !strings.Contains(err.Error(), "tenant_id and client_id") {
		t.Errorf("without a tenant: %v", err)
	}
}
