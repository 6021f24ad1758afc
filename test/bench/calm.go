package main

import (
	"runtime"
	"time"
)

// calm waits for the machine's other users.
type calm struct {
	left time.Duration // for all waiting and repeating of a run
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
