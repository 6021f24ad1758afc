package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/ids"
	"turnpike/webhook"
)

// senderOrder is what the bare loop sends: the body that Turnpike sent, with
// other numbers.
type senderOrder struct {
	URL    string `json:"url"`
	Secret string `json:"secret"`
	Body   []byte `json:"body"`
	Count  int    `json:"count"`
	AtOnce int    `json:"at_once"`
}

// playSender is the process that deliveries are compared with: a loop around
// Go's HTTP client that signs and posts, and stores nothing.
func playSender(in orders) error {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	return obey(in, func(o senderOrder) (published, error) {
		bodies := make([][]byte, o.Count)
		for i := range bodies {
			bodies[i] = bytes.Clone(o.Body)
			copy(numberAt(bodies[i]), numberText(i))
		}
		var next atomic.Int64
		errs := make([]error, o.AtOnce)
		begun := time.Now()
		var all sync.WaitGroup
		for i := range o.AtOnce {
			all.Go(func() {
				for n := next.Add(1) - 1; n < int64(o.Count) && errs[i] == nil; n = next.Add(1) - 1 {
					errs[i] = post(client, o.URL, o.Secret, bodies[n])
				}
			})
		}
		all.Wait()
		return published{Begun: begun.UnixNano(), Ended: time.Now().UnixNano()}, errors.Join(errs...)
	})
}

func post(client *http.Client, url, secret string, body []byte) error {
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if err := webhook.Sign(req.Header, ids.New(ids.Delivery), time.Now(), body, secret); err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "bench")
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the receiver answered %s", res.Status)
	}
	return nil
}
