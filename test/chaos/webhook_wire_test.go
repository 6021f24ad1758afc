package chaos

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"testing"
)

// responseDropper is a proxy to the database that can drop the responses to commits.
// The data is committed, but the client can't know.
type responseDropper struct {
	to string
	ln net.Listener

	mu    sync.Mutex
	on    bool
	only  []byte // only on connections that have carried this
	hangs bool   // close the connection instead of staying silent
	lost  int
	conns []net.Conn
}

// dropResponses starts the proxy and returns its address.
func dropResponses(t *testing.T, database string) (*responseDropper, string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &responseDropper{to: u.Host, ln: ln}
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

func (s *responseDropper) accept(all *sync.WaitGroup) {
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
		mute := make(chan struct{}) // closed when responses must be dropped
		all.Go(func() { s.carry(far, near, s.findCommits(mute)) })
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

// findCommits looks for commits in the data to the database.
func (s *responseDropper) findCommits(mute chan struct{}) func([]byte) bool {
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

// carry copies the bytes that pass accepts.
func (s *responseDropper) carry(to, from net.Conn, pass func([]byte) bool) {
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

func (s *responseDropper) set(on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = on
	return nil
}

// hangUp sets whether connections close instead of staying silent. A closed connection
// is noticed immediately.
func (s *responseDropper) hangUp(hangs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs = hangs
}

// after limits the drops to commits on connections that have carried the string.
func (s *responseDropper) after(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.only = []byte(text)
}

func (s *responseDropper) begin() error { return s.set(true) }
func (s *responseDropper) end() error   { return s.set(false) }

// dropped counts the lost responses.
func (s *responseDropper) dropped() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}
