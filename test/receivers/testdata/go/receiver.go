// A receiver of webhooks:
//
//	WEBHOOK_SECRET=whsec_… go run receiver.go
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"turnpike/webhook"
)

func main() {
	// While a secret is rotated there are two, separated by a space.
	secrets := strings.Fields(os.Getenv("WEBHOOK_SECRET"))
	if len(secrets) == 0 {
		log.Fatal("set WEBHOOK_SECRET to the endpoint's secret")
	}
	port := os.Getenv("PORT")
	if port == "" {
		port = "3000"
	}

	in := &inbox{seen: map[string]bool{}, queue: make(chan delivery, 1000)}
	go in.work()

	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s/\n", listener.Addr())
	server := &http.Server{
		// It answers 400 to a stale timestamp and 401 to a wrong signature.
		Handler:     webhook.Verifier{Secrets: secrets}.Handler(in.accept),
		ReadTimeout: 10 * time.Second,
	}
	log.Fatal(server.Serve(listener))
}

// inbox keeps deliveries until their work is done. It forgets when the program
// ends: a real receiver has a database table instead, with the id unique.
type inbox struct {
	mu    sync.Mutex
	seen  map[string]bool
	queue chan delivery
}

type delivery struct {
	id    string
	event *webhook.Event
}

// accept takes a verified delivery in. When it returns nil, the sender gets its 204.
func (in *inbox) accept(_ context.Context, event *webhook.Event, id string) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.seen[id] {
		return nil // it came again: acknowledge it again, and do nothing
	}
	select {
	case in.queue <- delivery{id, event}:
		in.seen[id] = true
		return nil
	default:
		return errors.New("the queue is full") // 500: it will be sent again later
	}
}

// work does what takes time, after the sender has its answer.
func (in *inbox) work() {
	for d := range in.queue {
		fmt.Println("processed", d.id, d.event.Type)
	}
}
