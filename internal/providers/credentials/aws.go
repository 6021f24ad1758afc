package credentials

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"turnpike/internal/providers"
	"turnpike/internal/safehttp"
)

const bedrockService = "bedrock"

// AWS signs requests with AWS Signature Version 4. The keys come from the standard chain: variables, the
// shared credentials file, a web identity, a container's or a machine's role.
type AWS struct {
	region string
	chain  *credentials.Credentials
	signer *v4.Signer
	now    func() time.Time

	mu      sync.Mutex
	secrets []string
	renewed time.Time
}

var _ providers.Renewer = (*AWS)(nil)

// NewAWS returns a credential for Bedrock. An empty region comes from AWS_REGION, or from the server's
// name. An empty profile is AWS_PROFILE, or the default one.
func NewAWS(region, profile string) *AWS {
	client := &http.Client{Timeout: fetchTimeout / 3, Transport: safehttp.Bounded(nil)}
	chain := credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{Profile: profile}, &credentials.IAM{Client: client}})
	return &AWS{region: cmp.Or(region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")), chain: chain, signer: v4.NewSigner(), now: time.Now}
}

// Authenticate signs a request.
func (a *AWS) Authenticate(req *http.Request, body []byte) error {
	keys, err := a.keys(req.Context())
	if err != nil {
		return err
	}
	region := cmp.Or(a.region, regionOf(req.URL))
	if region == "" {
		return errors.New("sign_in needs a region, or the variable AWS_REGION")
	}
	sum := sha256.Sum256(body)
	return a.signer.SignHTTP(req.Context(), keys, req, hex.EncodeToString(sum[:]), bedrockService, region, a.now())
}

// regionOf returns the region in the name of AWS's own servers: bedrock-runtime.us-east-1.amazonaws.com.
func regionOf(u *url.URL) string {
	labels := strings.Split(u.Hostname(), ".")
	if len(labels) >= 4 && labels[2] == "amazonaws" {
		return labels[1]
	}
	return ""
}

// keys returns the current keys. The chain fetches them again before they expire.
func (a *AWS) keys(ctx context.Context) (aws.Credentials, error) {
	type result struct {
		value credentials.Value
		err   error
	}
	done := make(chan result, 1)
	go func() { // a request that ends must not wait for a slow metadata service
		value, err := a.chain.GetWithContext(&credentials.CredContext{Client: signInClient})
		done <- result{value, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		return aws.Credentials{}, ctx.Err()
	}
	switch {
	case r.err != nil:
		return aws.Credentials{}, fmt.Errorf("sign in to AWS: %w", r.err)
	case r.value.AccessKeyID == "":
		return aws.Credentials{}, errors.New("sign in to AWS: no keys found in the environment, in the shared credentials file or from the machine's role")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.secrets = []string{r.value.SecretAccessKey, r.value.SessionToken}
	return aws.Credentials{AccessKeyID: r.value.AccessKeyID, SecretAccessKey: r.value.SecretAccessKey, SessionToken: r.value.SessionToken}, nil
}

// Secrets returns the secret key and the session token.
func (a *AWS) Secrets() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.secrets
}

// Renew fetches the keys again, because they may have been replaced before they expired.
func (a *AWS) Renew(rejected *http.Request, status int) bool {
	if status == http.StatusTooManyRequests {
		return false
	}
	a.mu.Lock()
	if a.now().Sub(a.renewed) < renewInterval {
		a.mu.Unlock()
		return false
	}
	a.renewed = a.now()
	a.mu.Unlock()
	a.chain.Expire()
	keys, err := a.keys(rejected.Context())
	return err == nil && !strings.Contains(rejected.Header.Get("Authorization"), "Credential="+keys.AccessKeyID+"/")
}
