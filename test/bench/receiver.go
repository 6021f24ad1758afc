package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// hangingPath is where the receiver never answers.
const hangingPath = "/hang"

// receiptPatience is how long the receiver waits for what was announced.
const receiptPatience = time.Minute

// receiverOrder first announces how many deliveries will come to a path, and
// then asks for their receipts. The first order of all is empty.
type receiverOrder struct {
	Path   string `json:"path"`
	Expect int    `json:"expect"` // 0 asks for the receipts
}

// receipts is when deliveries came.
type receipts struct {
	Address string  `json:"address"` // in the first answer
	At      []int64 `json:"at"`      // nanoseconds, by the deliveries' numbers; 0 for one that never came
	Missing int     `json:"missing"`
	Body    []byte  `json:"body"` // the last one
}

// playReceiver is the process of the customer's server. It reads what comes,
// notes when, and answers 200.
func playReceiver(in orders) error {
	r := &receiver{paths: map[string]*expected{}}
	return obey(in, func(o receiverOrder) (receipts, error) {
		switch {
		case o.Path == "":
			address, err := serve(r)
			return receipts{Address: address}, err
		case o.Expect > 0:
			r.mu.Lock()
			defer r.mu.Unlock()
			r.paths[o.Path] = &expected{receipts: receipts{At: make([]int64, o.Expect), Missing: o.Expect}, all: make(chan struct{})}
			return receipts{}, nil
		}
		return r.receipts(o.Path), nil
	})
}

type receiver struct {
	mu    sync.Mutex
	paths map[string]*expected
}

// expected is what was announced for a path.
type expected struct {
	receipts
	all chan struct{} // closed when all of it has come
}

func (r *receiver) receipts(path string) receipts {
	r.mu.Lock()
	e := r.paths[path]
	r.mu.Unlock()
	select {
	case <-e.all:
	case <-time.After(receiptPatience):
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.receipts
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // it has left
	}
	if req.URL.Path == hangingPath {
		<-req.Context().Done()
		return
	}
	at := time.Now().UnixNano()
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.paths[req.URL.Path]
	if e == nil {
		return
	}
	n, ok := numberOf(body)
	if !ok {
		n = len(e.At) - e.Missing // in the order in which they come
	}
	if n >= len(e.At) || e.At[n] != 0 {
		return
	}
	e.At[n], e.Body = at, body
	if e.Missing--; e.Missing == 0 {
		close(e.all)
	}
}

// Deliveries of a measurement are numbered in their metadata, always with as
// many digits.
const (
	numberKey    = "bench"
	numberDigits = 7
)

func numberText(n int) string { return fmt.Sprintf("%0*d", numberDigits, n) }

var numberMark = []byte(`"` + numberKey + `":"`)

func numberAt(body []byte) []byte {
	at := bytes.Index(body, numberMark)
	if at < 0 || len(body) < at+len(numberMark)+numberDigits {
		return nil
	}
	return body[at+len(numberMark):][:numberDigits]
}

func numberOf(body []byte) (n int, ok bool) {
	n, err := strconv.Atoi(string(numberAt(body)))
	return n, err == nil
}
