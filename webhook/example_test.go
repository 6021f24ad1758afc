package webhook_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"turnpike/webhook"
)

func ExampleVerify() {
	secret := webhook.NewSecret() // from the endpoint's creation
	body := []byte(`{"id":"evt_1","type":"agent.run.completed","data":{}}`)
	header := http.Header{}
	_ = webhook.Sign(header, "dlv_1", time.Now(), body, secret) // the server signs the delivery

	fmt.Println(webhook.Verify(body, header, secret))
	fmt.Println(webhook.Verify([]byte(`{"type":"forged"}`), header, secret))
	// Output:
	// <nil>
	// webhook: the signature does not fit the body, the timestamp and the secret
}

func ExampleHandler() {
	queue := make(chan *webhook.Event, 100)
	secret := webhook.NewSecret()
	handler := webhook.Handler(secret, func(_ context.Context, e *webhook.Event, deliveryID string) error {
		queue <- e // acknowledge now, process later
		return nil
	})

	body := `{"id":"evt_1","type":"image.batch.completed","data":{"id":"imgbatch_1"}}`
	r := httptest.NewRequest("POST", "/hooks", strings.NewReader(body))
	_ = webhook.Sign(r.Header, "dlv_1", time.Now(), []byte(body), secret)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	fmt.Println(w.Code, (<-queue).Type)
	// Output: 204 image.batch.completed
}

// While a secret is rotated, the receiver accepts the old and the new one.
func ExampleVerifier() {
	v := webhook.Verifier{Secrets: strings.Fields(os.Getenv("WEBHOOK_SECRET"))}
	http.Handle("POST /hooks", v.Handler(func(context.Context, *webhook.Event, string) error { return nil }))
}
