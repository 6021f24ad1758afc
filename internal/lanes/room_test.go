package lanes_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/db/dbtest"
	"turnpike/internal/lanes"
)

// crowd is a node of eight slots with lanes that fail or hang when they are told to.
type crowd struct {
	*tasks
	t    *testing.T
	r    *lanes.Runner[task]
	bad  sync.Map // what the work of a lane's items does, if it is not well
	puts atomic.Int64
}

func newCrowd(t *testing.T, most int) *crowd {
	t.Helper()
	c := &crowd{tasks: newTasks(t, dbtest.Open(t, dbtest.Address(t, "sqlite"))), t: t}
	c.tasks.lanes = most
	c.work = func(lane string, _ task) bool {
		does, bad := c.bad.Load(lane)
		if bad {
			does.(func())()
		}
		return !bad
	}
	c.r, _ = c.run(t, "a", 8)
	return c
}

// goes has the lanes of the names work badly from now on.
func (c *crowd) goes(bad func(), name string, n int) {
	for i := range n {
		c.bad.Store(fmt.Sprintf("%s-%d", name, i), bad)
	}
}

// hanging is work that takes as long as the test.
func (c *crowd) hanging() func() {
	end := make(chan struct{})
	c.t.Cleanup(func() { close(end) }) // before the run is waited for
	return func() { <-end }
}

// each puts items into each of n lanes.
func (c *crowd) each(name string, n, items int) {
	c.t.Helper()
	for i := range n {
		names := make([]string, items)
		for k := range names {
			names[k] = fmt.Sprintf("%s-%d-%d", name, i, c.puts.Add(1))
		}
		c.put(c.t, fmt.Sprintf("%s-%d", name, i), 0, names...)
	}
}

func (c *crowd) all(what string) {
	c.t.Helper()
	eventually(c.t, 10*time.Second, what, func() bool { return c.open(c.t) == 0 && c.r.Stats().InFlight == 0 })
}

// prompt expects the lane to be worked although the others hang.
func (c *crowd) prompt(name string) {
	c.t.Helper()
	before := c.open(c.t)
	c.each(name, 1, 1)
	eventually(c.t, 8*time.Second, "an item of "+name+" is done", func() bool { return c.open(c.t) <= before })
}

// TestStrangersLeaveRoom: nobody knows yet that the newcomers hang.
func TestStrangersLeaveRoom(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 0)
	c.each("well", 1, 1)
	c.all("the well lane is known")
	c.goes(c.hanging(), "new", 20)
	c.each("new", 20, 2)
	eventually(t, 10*time.Second, "newcomers have all they may have", func() bool { return c.r.Stats().Running == 6 })
	c.prompt("well")
	time.Sleep(3 * time.Second) // by now it was given back
	c.prompt("well")
	if n := c.r.Stats().Running; n != 6 {
		t.Errorf("%d of 8 slots are taken by newcomers", n)
	}
}

// TestNewcomersNeedNotWaitForSlowLanes: those have slots of their own.
func TestNewcomersNeedNotWaitForSlowLanes(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 0)
	c.goes(func() {}, "slow", 20)
	c.each("slow", 20, 1)
	c.all("all slow lanes are known to be")
	c.goes(c.hanging(), "slow", 20)
	c.each("slow", 20, 1)
	eventually(t, 10*time.Second, "slow lanes have all they may have", func() bool { return c.r.Stats().Slow == 4 })
	c.prompt("new")
	if n := c.r.Stats().Slow; n != 4 {
		t.Errorf("%d of 8 slots are taken by slow lanes", n)
	}
}

// TestLanesThatAreNotWellMakeRoom: there are more of them than a node may have.
func TestLanesThatAreNotWellMakeRoom(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]bool{"slow": true, "new": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t, 12)
			if known {
				c.goes(func() {}, name, 14)
				c.each(name, 14, 1)
				c.all("all slow lanes are known to be")
			} else {
				c.each("well", 1, 1)
				c.all("the well lane is known")
				eventually(t, 10*time.Second, "it was given back", func() bool { return c.r.Stats().Lanes == 0 })
			}
			c.goes(c.hanging(), name, 14)
			c.each(name, 14, 2)
			eventually(t, 10*time.Second, "the node has all it may have", func() bool { return c.r.Stats().Lanes == 12 })
			c.prompt("well")
		})
	}
}
