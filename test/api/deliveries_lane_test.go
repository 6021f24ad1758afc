package api_test

import (
	"net/http"
	"testing"
	"time"

	"turnpike/internal/config"
)

func TestRetryDoesNotWaitForAHangingDelivery(t *testing.T) {
	patient := func(_ *testing.T, cfg *config.Config) { cfg.Webhooks.Timeout = time.Minute }
	eachWebhooks(t, both, patient, func(t *testing.T, c *client) {
		goOn := make(chan struct{})
		r := newReceiver(t, c.Clock, nil)
		r.respondWith(func(http.ResponseWriter, *http.Request) {
			select {
			case <-goOn:
			case <-r.ended:
			}
		})
		id, _ := c.endpoint(t, r.URL, "*")
		c.publish(t, creditsLow)
		c.Eventually(t, func() bool { return r.count() == 1 })
		r.respondWith(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
		c.publish(t, creditsLow)
		second := c.deliveries(t, id, 2)[1]
		c.waitForDelivery(t, second, "retrying", 1)
		c.Clock.Turn(schedule[0] + 2*time.Second)
		c.waitForDelivery(t, second, "retrying", 2)
		close(goOn)
	})
}
