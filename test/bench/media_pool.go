package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/app"
	"turnpike/internal/providers"
	"turnpike/internal/providers/simulator"
)

// poolOrder is how many pictures the drawing loop makes.
type poolOrder struct {
	Count int `json:"count"`
}

// playPool is the process that batches are compared with: as many workers as
// there are cores, which call the simulator and keep nothing.
func playPool(in orders) error {
	app.TuneMemory(context.Background(), nil) // as `turnpike serve` does: drawing makes garbage
	draw := simulator.New(simulator.Options{})
	return obey(in, func(o poolOrder) (published, error) {
		var next atomic.Int64
		errs := make([]error, runtime.GOMAXPROCS(0))
		begun := time.Now()
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() {
				for n := next.Add(1) - 1; n < int64(o.Count) && errs[i] == nil; n = next.Add(1) - 1 {
					_, errs[i] = draw.Images(context.Background(), &providers.ImageRequest{Body: []byte(pictureBody(int(n)))})
				}
			})
		}
		all.Wait()
		return published{Begun: begun.UnixNano(), Ended: time.Now().UnixNano()}, errors.Join(errs...)
	})
}

// pictureBody is a request for a picture that no other asks for.
func pictureBody(n int) string {
	return fmt.Sprintf(`{"prompt":"a harbour at dawn, number %d","n":1}`, n)
}
