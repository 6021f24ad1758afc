package wire

import (
	"slices"
	"sync"
	"time"
)

// idlePool keeps connections for their next call, for each host the latest used
// at the end of its list.
type idlePool struct {
	mu       sync.Mutex
	byHost   map[string][]*directConn
	sweeping bool
}

// take returns a connection that its server has not closed meanwhile, or nil.
func (p *idlePool) take(host string) *directConn {
	for {
		c := p.latest(host)
		if c == nil || c.age() < idleConnTimeout && stillOpen(c.Conn) {
			return c
		}
		c.hangUp()
	}
}

func (p *idlePool) latest(host string) *directConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.byHost[host]
	if len(list) == 0 {
		return nil
	}
	c := list[len(list)-1]
	list[len(list)-1] = nil
	p.byHost[host] = list[:len(list)-1]
	return c
}

func (p *idlePool) put(host string, c *directConn) {
	c.idleSince = time.Now().Round(0)
	if !p.keep(host, c) {
		c.hangUp()
	}
}

func (p *idlePool) keep(host string, c *directConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.byHost[host]) >= maxIdlePerHost {
		return false
	}
	if p.byHost == nil {
		p.byHost = map[string][]*directConn{}
	}
	p.byHost[host] = append(p.byHost[host], c)
	if !p.sweeping {
		p.sweeping = true
		time.AfterFunc(idleConnTimeout/5, p.sweep)
	}
	return true
}

// age is by the wall clock: the other one stands still while a machine sleeps,
// and whoever is on the way forgets connections meanwhile.
func (c *directConn) age() time.Duration { return time.Now().Round(0).Sub(c.idleSince) }

// sweep closes what nobody needs, as long as there is something to close.
func (p *idlePool) sweep() {
	for _, c := range p.outdated() {
		c.hangUp()
	}
}

func (p *idlePool) outdated() (all []*directConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for host, list := range p.byHost {
		n := slices.IndexFunc(list, func(c *directConn) bool { return c.age() < idleConnTimeout })
		if n < 0 {
			n = len(list)
		}
		all = append(all, list[:n]...)
		if p.byHost[host] = slices.Delete(list, 0, n); len(p.byHost[host]) == 0 {
			delete(p.byHost, host)
		}
	}
	p.sweeping = len(p.byHost) > 0
	if p.sweeping {
		time.AfterFunc(idleConnTimeout/5, p.sweep)
	}
	return all
}
