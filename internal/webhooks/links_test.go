package webhooks

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/internal/lanes"
	"turnpike/internal/visibility"
)

// recorder is an endpoint that always fails.
type recorder struct {
	mu     sync.Mutex
	bodies []string
}

func (r *recorder) Send(_ context.Context, _ *Endpoint, m *Message) Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bodies = append(r.bodies, string(m.Body))
	return Outcome{Status: http.StatusInternalServerError}
}

func (r *recorder) last() string { return r.bodies[len(r.bodies)-1] }

// TestLinksStayTheSameUntilReplay, on every node: their validity counts from when the delivery was
// created, replayed or resumed, and they have the address of the node that did it.
func TestLinksStayTheSameUntilReplay(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		s, sent := newService(t, d), &recorder{}
		now := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
		s.Now = func() time.Time { return now }
		s.SetSchedule(slices.Repeat([]time.Duration{time.Minute}, 10))
		s.senders[HTTP] = sent
		s.LinkBase = "https://api.example.com"
		s.Link = func(base string, t accounts.Tenant, sha256, name string, expires time.Time) string {
			return fmt.Sprintf("%s/%s/%s/%s/%s?expires=%d", base, t.WorkspaceID, t.Environment, sha256, name, expires.Unix())
		}
		w := &accounts.Workspace{Name: "w"}
		e := &Endpoint{Tenant: accounts.Tenant{Environment: accounts.Test}, URL: "https://example.com/", Events: []string{"*"}}
		ref, zero := events.FileRef("abc", "video_1.mp4"), int64(0)
		var jobs map[string][]*job
		write(t, d, func(tx *db.Tx) error {
			if err := accounts.CreateWorkspace(ctx, tx, w, now); err != nil {
				return err
			}
			e.WorkspaceID = w.ID
			if _, err := s.Create(ctx, tx, system, e); err != nil {
				return err
			}
			_, err := events.NewPublisher(s.Now).Publish(ctx, tx, events.Origin{Tenant: w.In(accounts.Test)},
				events.VideoRender{ID: "video_1", Status: "completed", URL: &ref, URLExpiresAt: &zero})
			return err
		})
		// As a fan-out does, which hands its jobs to the lane at once.
		write(t, d, func(tx *db.Tx) error {
			list, err := events.TakePending(ctx, tx, 10, inlineBody)
			if err != nil {
				return err
			}
			var rows [][]any
			if rows, jobs, err = s.deliveriesOf(ctx, tx, list, now); err != nil {
				return err
			}
			_, err = insertDeliveries.Write(ctx, tx, rows)
			return err
		})
		// The attempts alternate between two nodes without a common address.
		other := newService(t, d)
		other.senders[HTTP], other.Link, other.LinkBase = sent, s.Link, "http://10.0.0.2:8080"
		other.SetSchedule(*s.schedule.Load())
		node, peer := s, other
		attempt := func(j *job) {
			t.Helper()
			node, peer = peer, node
			node.Now = func() time.Time { return now }
			node.targets.forget("")
			target, err := node.target(ctx, e.ID)
			if err != nil {
				t.Fatal(err)
			}
			r, err := node.attempt(ctx, target, j)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.results.Add(r).Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
		due := func() *job {
			t.Helper()
			list, err := s.dueAt(ctx, e.ID, now, lanes.Key{}, 10)
			if err != nil || len(list) != 1 {
				t.Fatalf("%d deliveries are due (%v)", len(list), err)
			}
			return list[0]
		}
		expires := func() string {
			return fmt.Sprintf(`"url":"https://api.example.com/%s/test/abc/video_1.mp4?expires=%d","url_expires_at":%[2]d`, w.ID, now.Add(48*time.Hour).Unix())
		}

		first := expires()
		attempt(jobs[e.ID][0])
		if !strings.Contains(sent.last(), first) {
			t.Fatalf("sent was %s, want %s", sent.last(), first)
		}
		body := sent.last()
		for range 2 {
			now = now.Add(2 * time.Minute)
			attempt(due())
			if sent.last() != body {
				t.Errorf("a retry sends other bytes:\n%s\n%s", sent.last(), body)
			}
			now = now.Add(2 * time.Minute)
			j := due()
			j.body = "" // as that of a large one
			attempt(j)
			if sent.last() != body {
				t.Errorf("a large one is other bytes:\n%s\n%s", sent.last(), body)
			}
		}

		now = now.Add(20 * 24 * time.Hour)
		id := jobs[e.ID][0].id
		write(t, d, func(tx *db.Tx) error {
			_, err := s.ReplayDelivery(ctx, tx, system, visibility.Filter{Tenant: w.In(accounts.Test)}, DeliveryReplay{DeliveryID: id, NewID: false})
			return err
		})
		replayed := expires()
		attempt(due())
		if !strings.Contains(sent.last(), replayed) {
			t.Errorf("replayed was %s, want %s", sent.last(), replayed)
		}
		now = now.Add(2 * time.Minute)
		attempt(due())
		if !strings.Contains(sent.last(), replayed) {
			t.Errorf("the replay's retry was %s", sent.last())
		}

		// Held for longer than its links would have lived.
		hold := func(do func(tx *db.Tx, e *Endpoint) error) {
			write(t, d, func(tx *db.Tx) error {
				e, err := s.GetLocked(ctx, tx, visibility.Filter{Tenant: w.In(accounts.Test)}, e.ID)
				if err != nil {
					return err
				}
				return do(tx, e)
			})
			s.targets.forget("")
		}
		hold(func(tx *db.Tx, e *Endpoint) error { return s.Pause(ctx, tx, system, e) })
		now = now.Add(3 * 24 * time.Hour)
		hold(func(tx *db.Tx, e *Endpoint) error { return s.Resume(ctx, tx, system, e, false) })
		resumed := expires()
		now = now.Add(time.Minute)
		attempt(due())
		if !strings.Contains(sent.last(), resumed) {
			t.Errorf("resumed was %s, want %s", sent.last(), resumed)
		}
	})
}
