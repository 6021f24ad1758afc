package turnpike

import (
	"net/http"

	"turnpike/webhook"
)

// VerifyWebhook checks that Turnpike signed a delivery, and returns its event. body is the raw request body. secrets are
// the endpoint's whole whsec_… strings: one, or both during a rotation. Deduplicate by the header Service-Event-Id.
//
// Package turnpike/webhook has a complete handler, more settings, and the errors.
func VerifyWebhook(body []byte, header http.Header, secrets ...string) (*webhook.Event, error) {
	v := webhook.Verifier{Secrets: secrets, RequireSignedID: true}
	if err := v.Verify(body, header); err != nil {
		return nil, err
	}
	return webhook.Parse(body)
}
