// A webhook receiver:
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
	// During a rotation there are two secrets, separated by a space.
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
		// Returns 400 for a stale timestamp and 401 for an invalid signature.
		Handler:     webhook.Verifier{Secrets: secrets}.Handler(in.accept),
		ReadTimeout: 10 * time.Second,
	}
	log.Fatal(server.Serve(listener))
}

// inbox queues deliveries and remembers their IDs. In production, use a database
// table with the ID as its primary key.
type inbox struct {
	mu    sync.Mutex
	seen  map[string]bool
	queue chan delivery
}

type delivery struct {
	id    string
	event *webhook.Event
}

// accept stores a verified delivery. If it returns nil, the response is 204.
func (in *inbox) accept(_ context.Context, event *webhook.Event, id string) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.seen[id] {
		return nil // a duplicate: acknowledge it and do nothing
	}
	select {
	case in.queue <- delivery{id, event}:
		in.seen[id] = true
		return nil
	default:
		return errors.New("the queue is full") // 500: Turnpike retries later
	}
}

// work processes deliveries after they were acknowledged.
func (in *inbox) work() {
	for d := range in.queue {
		fmt.Println("processed", d.id, d.event.Type)
	}
}
