package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/test/chaos/program"
)

const (
	// connections is the number that the targets are stated for.
	connections = 64
	// maxRequests bounds a measurement, and the memory for its latencies.
	maxRequests = 1_000_000
)

// loadOrder tells the generator what to do.
type loadOrder struct {
	Address  string        `json:"address"`
	Request  []byte        `json:"request"` // sent as it is, again and again
	Duration time.Duration `json:"duration"`
	// Connections is how many there are; 0 is the usual number.
	Connections int `json:"connections"`
	// First measures until the first piece of the answer's body is there.
	First bool `json:"first"`
	// Spread lets the connections begin one after the other over that time.
	Spread time.Duration `json:"spread"`
	// Forgiving goes on with a new connection when an answer breaks off. Go's
	// reverse proxy now and then breaks a stream off; a server of ours must not.
	Forgiving bool `json:"forgiving"`
}

// loadResult is what it found.
type loadResult struct {
	Requests int           `json:"requests"`
	Took     time.Duration `json:"took"`
	P50      time.Duration `json:"p50"`
	P99      time.Duration `json:"p99"`

	cpu time.Duration // of the generator
}

// generate runs a load generator.
func generate(ctx context.Context, o loadOrder) (r loadResult, err error) {
	order, err := json.Marshal(o)
	if err != nil {
		return r, err
	}
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), roleVariable+"="+roleLoad)
	cmd.Stdin = bytes.NewReader(order)
	cmd.Stderr = os.Stderr
	program.EndWithParent(cmd)
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("load generator: %w", err)
	}
	r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return r, json.Unmarshal(out, &r)
}

// playLoad is the generator's process.
func playLoad(in io.Reader, out io.Writer) error {
	var o loadOrder
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return err
	}
	var left atomic.Int64
	left.Store(maxRequests)
	o.Connections = cmp.Or(o.Connections, connections)
	latencies := make([][]time.Duration, o.Connections)
	errs := make([]error, o.Connections)
	begun := time.Now()
	var clients sync.WaitGroup
	for i := range o.Connections {
		clients.Go(func() {
			time.Sleep(o.Spread * time.Duration(i) / time.Duration(o.Connections))
			latencies[i], errs[i] = repeat(o, begun.Add(o.Spread+o.Duration), &left)
		})
	}
	clients.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	r := loadResult{Took: time.Since(begun)}
	all := slices.Concat(latencies...)
	slices.Sort(all)
	if r.Requests = len(all); r.Requests > 0 {
		r.P50, r.P99 = all[len(all)/2], all[len(all)*99/100]
	}
	return json.NewEncoder(out).Encode(r)
}

// repeat makes requests on one keep-alive connection, each as soon as the one
// before is answered, and returns how long each took.
func repeat(o loadOrder, until time.Time, left *atomic.Int64) ([]time.Duration, error) {
	conn, from, err := connect(o.Address, until)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	took := make([]time.Duration, 0, min(4096, maxRequests/o.Connections))
	for left.Add(-1) >= 0 {
		begun := time.Now()
		if begun.After(until) {
			break
		}
		if _, err := conn.Write(o.Request); err != nil {
			return nil, err
		}
		first, err := readAnswer(from)
		if err != nil && o.Forgiving {
			_ = conn.Close()
			if conn, from, err = connect(o.Address, until); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		if !o.First {
			first = time.Now()
		}
		took = append(took, first.Sub(begun))
	}
	return took, nil
}

func connect(address string, until time.Time) (net.Conn, *bufio.Reader, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, nil, err
	}
	return conn, bufio.NewReaderSize(conn, 16<<10), conn.SetDeadline(until.Add(time.Minute))
}

// readAnswer reads a response to its end, by hand: what the generator spends is
// taken from the server, which has the same two cores. It returns when the
// first piece of a body in pieces was there.
func readAnswer(from *bufio.Reader) (first time.Time, err error) {
	line, err := from.ReadSlice('\n')
	if err != nil {
		return first, err
	}
	if !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
		return first, fmt.Errorf("answered with %q", bytes.TrimSpace(line))
	}
	size, chunked := -1, false
	for {
		if line, err = from.ReadSlice('\n'); err != nil {
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
			return first, errors.New("answered without a length")
		}
		_, err = from.Discard(size)
		return first, err
	}
	for {
		if line, err = from.ReadSlice('\n'); err != nil {
			return first, err
		}
		if first.IsZero() {
			first = time.Now()
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 32)
		if err != nil {
			return first, err
		}
		if _, err := from.Discard(int(n) + len("\r\n")); err != nil || n == 0 {
			return first, err
		}
	}
}
