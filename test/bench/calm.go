package main

import (
	"runtime"
	"time"
)

const (
	// A measurement begins when others have less of the cores than this, and
	// one during which they had more is repeated; of several the least
	// disturbed one counts. It is chosen by what the others did, never by its
	// outcome. When patience, which each part of the run has once, is spent,
	// things are measured as they are.
	disturbed = 0.10
	attempts  = 3
	patience  = 4 * time.Minute
)

// calm waits for the machine's other users.
type calm struct {
	left time.Duration // for all waiting and repeating
}

// wait returns when the cores have little to do, or when patience is spent. No
// server of ours is under load meanwhile.
func (c *calm) wait() error {
	const look = 300 * time.Millisecond
	for c.left > 0 {
		before, err := machineBusy()
		if err != nil {
			return err
		}
		time.Sleep(look)
		after, err := machineBusy()
		if err != nil {
			return err
		}
		c.left -= look
		if float64(after-before) <= disturbed*float64(look)*float64(runtime.NumCPU()) {
			return nil
		}
	}
	return nil
}

// leastDisturbed measures until the others are quiet, or often enough. others
// tells how much of the cores they had during a measurement.
func leastDisturbed[T any](c *calm, others func(T) float64, measure func() (T, error)) (best T, err error) {
	for n := range attempts {
		if err := c.wait(); err != nil {
			return best, err
		}
		begun := time.Now()
		next, err := measure()
		if err != nil {
			return best, err
		}
		if n == 0 || others(next) < others(best) {
			best = next
		}
		if others(best) <= disturbed {
			break
		}
		if c.left -= time.Since(begun); c.left <= 0 {
			break
		}
	}
	return best, nil
}
