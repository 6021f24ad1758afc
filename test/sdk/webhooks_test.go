//go:build clients

package sdk_test

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	stripe "github.com/stripe/stripe-go/v84/webhook"

	"turnpike/webhook"
)

// receivers are third-party libraries that verify a delivery with the endpoint's
// secret.
var receivers = map[string]func(body []byte, header http.Header, secret string) error{
	"stripe-go":         acceptedByStripe,
	"standard-webhooks": acceptedByStandardWebhooks,
	"openai-go":         acceptedByOpenAI,
}

// acceptedByStripe verifies Service-Signature, which is Stripe's v1 scheme. Stripe has
// timestamp and signature in one header.
func acceptedByStripe(body []byte, header http.Header, secret string) error {
	joined := "t=" + header.Get("Service-Timestamp") + ",v1=" + header.Get("Service-Signature")
	return stripe.ValidatePayload(body, joined, secret)
}

func acceptedByStandardWebhooks(body []byte, header http.Header, secret string) error {
	wh, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return err
	}
	return wh.Verify(body, header)
}

// acceptedByOpenAI also parses the event, whose type the library doesn't know.
func acceptedByOpenAI(body []byte, header http.Header, secret string) error {
	c := openai.NewClient(option.WithAPIKey("unused"), option.WithWebhookSecret(secret))
	_, err := c.Webhooks.Unwrap(body, header)
	return err
}

var delivered = []byte(`{"id":"evt_01h455vb4pex5vsknk084sn02q","object":"event","type":"image.batch.completed","created_at":1760000000,` +
	`"environment":"test","workspace":"ws_01h455vb4pex5vsknk084sn02q","project":null,"data":{"id":"imgbatch_1","prompt":"é 😀 <&>"}}`)

// signedAt returns the headers of a delivery of the body above.
func signedAt(t *testing.T, at time.Time, secrets ...string) http.Header {
	t.Helper()
	h := http.Header{}
	if err := webhook.Sign(h, "dlv_01h455vb4pex5vsknk084sn02q", at, delivered, secrets...); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestOthersLibrariesAcceptADelivery(t *testing.T) {
	t.Parallel()
	for name, accepted := range receivers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret := webhook.NewSecret()
			if err := accepted(delivered, signedAt(t, time.Now(), secret), secret); err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
}

func TestOthersLibrariesRefuseWhatWeRefuse(t *testing.T) {
	t.Parallel()
	secret := webhook.NewSecret()
	altered := bytes.Replace(delivered, []byte("imgbatch_1"), []byte("imgbatch_0"), 1) // one bit differs; still a valid event
	for name, accepted := range receivers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fresh := signedAt(t, time.Now(), secret)
			if accepted(altered, fresh, secret) == nil {
				t.Error("accepts an altered body")
			}
			if accepted(delivered, fresh, webhook.NewSecret()) == nil {
				t.Error("accepts another secret")
			}
			if accepted(delivered, signedAt(t, time.Now().Add(-time.Hour), secret), secret) == nil {
				t.Error("accepts an old delivery")
			}
		})
	}
}

// In the grace period, libraries that know the new headers accept either secret. A
// library that only knows Service-Signature accepts the old one.
func TestOthersLibrariesFollowARotation(t *testing.T) {
	t.Parallel()
	old, fresh := webhook.NewSecret(), webhook.NewSecret()
	for name, accepted := range receivers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := signedAt(t, time.Now(), old, fresh)
			if err := accepted(delivered, h, old); err != nil {
				t.Errorf("the old secret is refused: %v", err)
			}
			if err := accepted(delivered, h, fresh); (err == nil) != (name != "stripe-go") {
				t.Errorf("the new secret: %v", err)
			}
		})
	}
}
