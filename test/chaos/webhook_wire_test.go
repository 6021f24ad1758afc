package chaos

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"testing"
)

// swallower is a wire to the database on which, while it is on, the answers to
// commits are lost: what was committed is, and whoever did it cannot know.
type swallower struct {
	to string
	ln net.Listener

	mu    sync.Mutex
	on    bool
	only  []byte // on connections that have carried this
	hangs bool   // up instead of being silent
	lost  int
	conns []net.Conn
}

// swallow puts the wire in front of the database and returns the address that
// leads over it.
func swallow(t *testing.T, database string) (*swallower, string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &swallower{to: u.Host, ln: ln}
	var all sync.WaitGroup
	all.Go(func() { s.accept(&all) })
	t.Cleanup(func() {
		ln.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			c.Close()
		}
		s.mu.Unlock()
		all.Wait()
	})
	u.Host = ln.Addr().String()
	return s, u.String()
}

func (s *swallower) accept(all *sync.WaitGroup) {
	for {
		near, err := s.ln.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", s.to)
		if err != nil {
			near.Close()
			continue
		}
		s.mu.Lock()
		s.conns = append(s.conns, near, far)
		s.mu.Unlock()
		mute := make(chan struct{}) // closed when nothing is to come back any more
		all.Go(func() { s.carry(far, near, s.hears(mute)) })
		all.Go(func() {
			s.carry(near, far, func([]byte) bool {
				select {
				case <-mute:
					s.mu.Lock()
					defer s.mu.Unlock()
					if s.hangs {
						near.Close()
					}
					return false
				default:
					return true
				}
			})
		})
	}
}

// hears looks for commits in what goes to the database.
func (s *swallower) hears(mute chan struct{}) func([]byte) bool {
	once := sync.OnceFunc(func() { close(mute) })
	meant := false
	return func(sent []byte) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		meant = meant || bytes.Contains(sent, s.only)
		if s.on && meant && bytes.Contains(sent, []byte("commit\x00")) {
			s.lost++
			once()
		}
		return true
	}
}

// carry takes bytes from one end to the other, those that may pass.
func (s *swallower) carry(to, from net.Conn, pass func([]byte) bool) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && pass(buf[:n]) {
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (s *swallower) set(on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = on
	return nil
}

// hangUp says whether connections break instead of falling silent, which is
// noticed at once.
func (s *swallower) hangUp(hangs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs = hangs
}

// after is for commits of what a connection does once it has carried the text.
func (s *swallower) after(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.only = []byte(text)
}

func (s *swallower) begin() error { return s.set(true) }
func (s *swallower) end() error   { return s.set(false) }

// swallowed counts the commits whose answers were lost.
func (s *swallower) swallowed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}
