package webhooks

import (
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/internal/lanes"
)

// noSockets is a transport without file descriptors.
type noSockets struct{}

func (noSockets) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)}
}

// TestFileDescriptorExhaustionIsNoAttempt: it is this server's failure, and must not
// pause the endpoint.
func TestFileDescriptorExhaustionIsNoAttempt(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newFixture(t, d)
		b.SetSchedule(nil) // the first failure is the last
		b.senders[HTTP] = &httpSender{noSockets{}}
		write(t, d, func(tx *db.Tx) error {
			_, err := events.NewPublisher(b.Now).Publish(t.Context(), tx, events.Origin{Tenant: accounts.Tenant{WorkspaceID: b.endpoint.WorkspaceID, Environment: "test"}}, events.CreditsLow{})
			return err
		})
		var jobs map[string][]*job
		write(t, d, func(tx *db.Tx) error {
			list, err := events.TakePending(t.Context(), tx, 10, inlineBody)
			if err != nil {
				return err
			}
			var rows [][]any
			if rows, jobs, err = b.deliveriesOf(t.Context(), tx, list, b.Now()); err != nil {
				return err
			}
			_, err = insertDeliveries.Write(t.Context(), tx, rows)
			return err
		})
		j := jobs[b.endpoint.ID][0]
		if err := b.Work(t.Context(), b.endpoint.ID, j).Outcome.(*db.Pending).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		due, err := b.dueAt(t.Context(), b.endpoint.ID, b.Now(), lanes.Key{}, 10)
		if err != nil || len(due) != 1 || due[0].attempts != 0 || due[0].tries != 0 {
			t.Errorf("due are %d deliveries (%v)", len(due), err)
		}
		list, err := b.ListAttempts(t.Context(), d, j.id)
		if err != nil || len(list) != 0 {
			t.Errorf("%d attempts were recorded (%v)", len(list), err)
		}
		if e, err := find(t.Context(), d, b.endpoint.ID, ""); err != nil || e.Status != Active {
			t.Errorf("the endpoint is %+v (%v)", e, err)
		}
	})
}
