package api_test

import (
	"net/http"
	"testing"
	"time"

	"turnpike/internal/config"
)

// TestARetryDoesNotWaitForADeliveryThatHangs at the same endpoint.
func TestARetryDoesNotWaitForADeliveryThatHangs(t *testing.T) {
	t.Parallel()
	patient := func(_ *testing.T, cfg *config.Config) { cfg.Webhooks.Timeout = time.Minute }
	eachHooked(t, patient, func(t *testing.T, c *customer) {
		goOn := make(chan struct{})
		r := newReceiver(t, c.Clock, nil)
		r.become(func(http.ResponseWriter, *http.Request) {
			select {
			case <-goOn:
			case <-r.ended:
			}
		})
		id, _ := c.endpoint(t, r.URL, "*")
		c.publish(t, creditsLow)
		c.Eventually(t, func() bool { return r.count() == 1 })
		r.become(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
		c.publish(t, creditsLow)
		second := c.deliveries(t, id, 2)[1]
		c.until(t, second, "retrying", 1)
		c.Clock.Turn(schedule[0] + 2*time.Second)
		c.until(t, second, "retrying", 2)
		close(goOn)
	})
}
