package app

import (
	"context"
	"testing"
	"testing/synctest"
)

func TestHeldWorkStartsWhenTheServerIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hold{resumed: make(chan struct{})}
		started := make(chan struct{})
		go h.delay(func(context.Context) { close(started) })(t.Context())
		synctest.Wait()
		select {
		case <-started:
			t.Fatal("work of a held server started")
		default:
		}
		close(h.resumed)
		<-started
	})
}
