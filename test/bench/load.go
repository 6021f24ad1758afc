package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// connections is the number that the targets are stated for.
	connections = 64
	// maxRequests bounds a measurement, and the memory for its latencies.
	maxRequests = 1_000_000
	// warmUp is how long a server is under load before a measurement begins.
	warmUp = time.Second
	// warmUpUsers is long enough to meet all end users: the first request of one costs a lease.
	warmUpUsers = 8 * time.Second
)

// loadTarget is a request that is sent as it is, again and again.
type loadTarget struct {
	Address string
	Request []byte
}

type loadOrder struct {
	Targets     []loadTarget // the connections take them in turn
	Users       int          // replaces userMark by this many users in turn, if above 1
	Stream      bool         // whether underLoad sends a request for a stream
	Duration    time.Duration
	Connections int
	FirstByte   bool          // measure the time to the first piece of the body
	Spread      time.Duration // the connections start one after the other over this time
	// Reconnect continues with a new connection if a response breaks off. Go's
	// reverse proxy sometimes breaks off a stream; Turnpike must not.
	Reconnect bool
}

type loadResult struct {
	Requests       int
	Took, P50, P99 time.Duration
}

func generateLoad(o loadOrder) (r loadResult) {
	var left atomic.Int64
	left.Store(maxRequests)
	latencies := make([][]time.Duration, o.Connections)
	begun := time.Now()
	var clients errgroup.Group
	for i := range o.Connections {
		clients.Go(func() (err error) {
			time.Sleep(o.Spread * time.Duration(i) / time.Duration(o.Connections))
			latencies[i], err = repeat(o, o.Targets[i%len(o.Targets)], begun.Add(o.Spread+o.Duration), &left)
			return err
		})
	}
	check(clients.Wait())
	all := slices.Concat(latencies...)
	r.Took, r.Requests = time.Since(begun), len(all)
	r.P50, r.P99 = percentiles(all)
	return r
}

// repeat sends requests on one keep-alive connection, each as soon as the
// response to the last is complete, and returns how long each took.
func repeat(o loadOrder, to loadTarget, until time.Time, left *atomic.Int64) ([]time.Duration, error) {
	conn, in, err := dial(to.Address, until)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	took := make([]time.Duration, 0, min(4096, maxRequests/o.Connections))
	user := bytes.Index(to.Request, []byte(userMark)) + len(userMark) - userDigits
	if o.Users > 1 {
		to.Request = bytes.Clone(to.Request)
	}
	for {
		n := left.Add(-1)
		if n < 0 {
			break
		}
		if o.Users > 1 {
			copy(to.Request[user:], fmt.Sprintf("%0*d", userDigits, n%int64(o.Users)))
		}
		begun := time.Now()
		if begun.After(until) {
			break
		}
		if _, err := conn.Write(to.Request); err != nil {
			return nil, err
		}
		first, err := readResponse(in)
		if err != nil && o.Reconnect {
			_ = conn.Close()
			if conn, in, err = dial(to.Address, until); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		if !o.FirstByte {
			first = time.Now()
		}
		took = append(took, first.Sub(begun))
	}
	return took, nil
}

func dial(address string, until time.Time) (net.Conn, *bufio.Reader, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, nil, err
	}
	return conn, bufio.NewReaderSize(conn, 16<<10), conn.SetDeadline(until.Add(time.Minute))
}

// readResponse reads a response to its end and returns when the first chunk of
// a chunked body arrived. It parses by hand: the generator and the server share
// the cores, and net/http would take as much of them as the server.
func readResponse(in *bufio.Reader) (first time.Time, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return first, err
	}
	if !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
		return first, fmt.Errorf("got response %q, want 200", bytes.TrimSpace(line))
	}
	size, chunked := -1, false
	for {
		if line, err = in.ReadSlice('\n'); err != nil {
			return first, err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch string(name) {
		case "Content-Length":
			if size, err = strconv.Atoi(string(value)); err != nil {
				return first, err
			}
		case "Transfer-Encoding":
			chunked = string(value) == "chunked"
		}
	}
	if !chunked {
		if size < 0 {
			return first, errors.New("the response has no length")
		}
		_, err = in.Discard(size)
		return first, err
	}
	for {
		if line, err = in.ReadSlice('\n'); err != nil {
			return first, err
		}
		if first.IsZero() {
			first = time.Now()
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 32)
		if err != nil {
			return first, err
		}
		if _, err := in.Discard(int(n) + len("\r\n")); err != nil || n == 0 {
			return first, err
		}
	}
}

// userMark is the end user in a request's body.
const (
	userDigits = 8
	userMark   = "user-00000000"
)

// loaded is a server under load.
type loaded struct {
	name          string
	address       string
	pid, database int // processes; database is 0 if there is none
	plain, stream []byte
	reconnect     bool // see loadOrder
	users         int  // see loadOrder
	more          []loadTarget
}

func (s *loaded) targets(stream bool) []loadTarget {
	request := s.plain
	if stream {
		request = s.stream
	}
	return append([]loadTarget{{s.address, request}}, s.more...)
}

// underLoad warms the server up and measures it. Helpers are further processes
// that work for the measurement.
func (b *bench) underLoad(s *loaded, o loadOrder, helpers ...int) sample {
	o.Reconnect, o.Users, o.Targets = s.reconnect, s.users, s.targets(o.Stream)
	if o.Connections == 0 {
		o.Connections = connections
	}
	var r loadResult
	duration := o.Duration
	o.Duration = warmUp
	if o.Users > 1 {
		o.Duration = warmUpUsers
	}
	b.load.ask(b.ctx, o, &r)
	o.Duration = duration
	x := watch(s.pid, s.database, append(helpers, b.load.pid()), func() { b.load.ask(b.ctx, o, &r) })
	x.count, x.took, x.p50, x.p99 = r.Requests, r.Took, r.P50, r.P99
	return x
}

func chatRequest(path, key, body string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nUser-Agent: bench\r\n"+
		"Accept: */*\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, key, len(body), body)
}
