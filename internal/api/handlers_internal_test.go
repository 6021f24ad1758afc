package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/fault"
	"turnpike/internal/idempotency"
	"turnpike/internal/keyring"
	"turnpike/internal/nodes"
	"turnpike/internal/web"
)

// eagerWriter is a ResponseWriter whose client acts as soon as it has a byte.
type eagerWriter struct {
	*httptest.ResponseRecorder
	then func()
}

func (w eagerWriter) Write(p []byte) (int, error) {
	defer w.then()
	return w.ResponseRecorder.Write(p)
}

// idempotentCalls returns a constructor of requests with the same Idempotency-Key.
func idempotentCalls(t *testing.T, d *db.DB) (*Server, func(http.ResponseWriter) *Call) {
	t.Helper()
	ring, err := keyring.New(make([]byte, keyring.Size))
	if err != nil {
		t.Fatal(err)
	}
	node, err := nodes.Join(t.Context(), d, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	group := db.NewGroup(d)
	t.Cleanup(group.Stop)
	log := audit.NewLog(group, node, nil)
	s := &Server{Deps: Deps{DB: d, Now: time.Now, Idempotency: idempotency.New(ring, time.Now)}, writeTimeout: time.Minute}
	return s, func(w http.ResponseWriter) *Call {
		r := httptest.NewRequest("POST", "/v1/things", nil).WithContext(t.Context())
		r.Header.Set("Idempotency-Key", "once")
		c := &Call{s: s, Exchange: web.NewExchange(w, r, nil, time.Now()), Principal: &access.Principal{Tenant: accounts.Tenant{WorkspaceID: "ws"}, KeyID: "key"}}
		c.record = log.Open(c.entry())
		return c
	}
}

// The response is large, because small ones stay in the server's buffer.
func TestIdempotencyKeyIsReleasedBeforeTheResponse(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		_, call := idempotentCalls(t, d)
		var done, responses int
		var send func()
		send = func() {
			w := eagerWriter{httptest.NewRecorder(), func() {
				if done != 1 {
					t.Error("the response was sent before the action was complete")
				}
				if responses++; responses < 3 { // the second is a replay, and so is the third
					send()
				}
			}}
			err := call(w).perform([]byte("{}"), action{
				do:    func(context.Context, *db.Tx) (any, error) { return strings.Repeat("large ", 1000), nil },
				after: func(error) { done++ },
			})
			if err != nil {
				t.Errorf("got error %v, want none", err)
			}
			if w.Code != http.StatusOK {
				t.Errorf("got status %d, want 200", w.Code)
			}
		}
		send()
		if responses != 3 || done != 1 {
			t.Errorf("got %d responses to %d actions, want 3 to 1", responses, done)
		}
	})
}

func TestIdempotencyKeyIsReleasedBeforeTheResponseOfAnotherNode(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{"done here, too": nil, "refused here": fault.New(fault.InvalidState, "it is done already")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				s, call := idempotentCalls(t, d)
				responses := 0
				var send func()
				send = func() {
					w := eagerWriter{httptest.NewRecorder(), func() {
						if responses++; responses < 2 {
							send()
						}
					}}
					c := call(w)
					err := c.perform([]byte("{}"), action{
						before: func() error { // the other node is faster
							req, err := idempotency.NewRequest(c.Principal.ID(), "POST", "/v1/things", "once", []byte("{}"))
							if err != nil {
								return err
							}
							return d.Write(t.Context(), func(tx *db.Tx) error {
								return s.Idempotency.Remember(t.Context(), tx, req, idempotency.Answer{Status: http.StatusOK, Body: []byte(`"theirs"`)})
							})
						},
						do: func(context.Context, *db.Tx) (any, error) { return "ours", refusal },
					})
					if err != nil || w.Body.String() != `"theirs"` {
						t.Errorf("got %q, %v, want the response of the other node", w.Body, err)
					}
				}
				send()
				if responses != 2 {
					t.Errorf("got %d responses, want 2", responses)
				}
			})
		})
	}
}
