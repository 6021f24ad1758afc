package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/fault"
	"turnpike/internal/idempotency"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/nodes"
)

// eagerWriter is a ResponseWriter whose reader acts as soon as it has a byte.
type eagerWriter struct {
	*httptest.ResponseRecorder
	then func()
}

func (w eagerWriter) Write(p []byte) (int, error) {
	defer w.then()
	return w.ResponseRecorder.Write(p)
}

// idempotentCalls makes calls that all have the same Idempotency-Key.
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
	s := &Server{Deps: Deps{DB: d, Now: time.Now, Idempotency: idempotency.New(ring, time.Now)}}
	return s, func(w http.ResponseWriter) *Call {
		r := httptest.NewRequest("POST", "/v1/things", nil).WithContext(t.Context())
		r.Header.Set("Idempotency-Key", "once")
		c := &Call{s: s, w: w, r: r, id: ids.New(ids.Request), start: time.Now(), Principal: &access.Principal{WorkspaceID: "ws", KeyID: "key"}}
		c.record = log.Open(c.entry())
		return c
	}
}

// TestWhoHasTheAnswerMayActOnIt: all of an action is done, and its
// Idempotency-Key free again, before the first byte of its answer can be read.
// Small answers wait in the server's buffer; large ones do not.
func TestWhoHasTheAnswerMayActOnIt(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		_, call := idempotentCalls(t, d)
		var done, answers int
		var ask func()
		ask = func() {
			w := eagerWriter{httptest.NewRecorder(), func() {
				if done != 1 {
					t.Error("the answer left before all was done")
				}
				if answers++; answers < 3 { // the second is a replay, and so is the third
					ask()
				}
			}}
			err := call(w).perform([]byte("{}"), action{
				do:    func(*db.Tx) (any, error) { return strings.Repeat("large ", 1000), nil },
				after: func(error) { done++ },
			})
			if err != nil {
				t.Errorf("refused: %v", err)
			}
			if w.Code != http.StatusOK {
				t.Errorf("answered %d", w.Code)
			}
		}
		ask()
		if answers != 3 || done != 1 {
			t.Errorf("%d answers to %d acts", answers, done)
		}
	})
}

// TestAnotherNodesAnswerMayBeActedOn: the same holds for the answer of another
// node that was faster, whether it could be done here or not.
func TestAnotherNodesAnswerMayBeActedOn(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{"done here, too": nil, "refused here": fault.New(fault.InvalidState, "it is done already")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				s, call := idempotentCalls(t, d)
				answers := 0
				var ask func()
				ask = func() {
					w := eagerWriter{httptest.NewRecorder(), func() {
						if answers++; answers < 2 {
							ask()
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
						do: func(*db.Tx) (any, error) { return "ours", refusal },
					})
					if err != nil || w.Body.String() != `"theirs"` {
						t.Errorf("answered %q, %v", w.Body, err)
					}
				}
				ask()
				if answers != 2 {
					t.Errorf("%d answers", answers)
				}
			})
		})
	}
}

// TestALargeBodyMustNotDrip: the first mebibyte may come by a slow line, and
// what holds more memory comes faster.
func TestALargeBodyMustNotDrip(t *testing.T) {
	t.Parallel()
	for size, most := range map[int]time.Duration{0: 0, 8 << 10: time.Second, 1 << 20: 128 * time.Second, 65 << 20: (128 + 1024) * time.Second} {
		if got := slowest(size); got != most {
			t.Errorf("%d bytes may take %s", size, got)
		}
	}
}
