package conversations_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/accounts"
	"turnpike/internal/budget"
	"turnpike/internal/conversations"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/visibility"
)

type fixture struct {
	*conversations.Store
	db  *db.DB
	now time.Time
}

var tenant = visibility.Tenant{WorkspaceID: "ws_1", Environment: visibility.Live}

func each(t *testing.T, fn func(t *testing.T, f *fixture)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { fn(t, newFixture(t, d)) })
}

func newFixture(t *testing.T, d *db.DB) *fixture {
	t.Helper()
	ring, err := keyring.New(make([]byte, keyring.Size))
	if err != nil {
		t.Fatal(err)
	}
	g := db.NewGroup(d)
	t.Cleanup(g.Stop)
	f := &fixture{db: d, now: time.Unix(1_800_000_000, 0)}
	f.Store = conversations.New(d, g, ring, func() time.Time { return f.now })
	f.MaxBytes.Store(1 << 20)
	return f
}

// save stores a response of a provider, whose message has the ID msg_ and the text.
func (f *fixture) save(t *testing.T, owner conversations.Owner, previous, text string) *conversations.Response {
	t.Helper()
	r := &conversations.Response{ID: ids.New(ids.Response), Owner: owner, PreviousID: previous, CreatedAt: f.now, ExpiresAt: f.now.Add(time.Hour), Content: conversations.Content{
		Input:    []jsontext.Value{jsontext.Value(`{"role":"user","content":"` + text + `?"}`)},
		Response: jsontext.Value(fmt.Sprintf(`{"output":[{"id":"msg_%s","type":"message"}]}`, text))}}
	pending, err := f.Save(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := pending.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func (f *fixture) write(t *testing.T, fn func(tx *db.Tx) error) {
	t.Helper()
	if err := f.db.Write(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) count(t *testing.T, table string) (n int) {
	t.Helper()
	if err := f.db.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOnlyTheOwnerSeesResponsesAndItems(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		r := f.save(t, conversations.Owner{Tenant: tenant, Project: "web", Reader: "key_1/a"}, "", "one")
		for name, c := range map[string]struct {
			filter visibility.Filter
			sees   bool
		}{
			"key":              {visibility.Filter{Tenant: tenant}, true},
			"pinned":           {visibility.Filter{Tenant: tenant, Project: "web"}, true},
			"token":            {visibility.Filter{Tenant: tenant, Reader: "key_1/a"}, true},
			"other project":    {visibility.Filter{Tenant: tenant, Project: "app"}, false},
			"other token":      {visibility.Filter{Tenant: tenant, Reader: "key_1/b"}, false},
			"test environment": {visibility.Filter{Tenant: visibility.Tenant{WorkspaceID: "ws_1", Environment: visibility.Test}}, false},
			"other workspace":  {visibility.Filter{Tenant: visibility.Tenant{WorkspaceID: "ws_2", Environment: visibility.Live}}, false},
		} {
			_, err := f.Get(t.Context(), f.db, c.filter, r.ID)
			_, chainErr := f.Chain(t.Context(), f.db, c.filter, r.ID)
			found, findErr := f.Find(t.Context(), f.db, c.filter, []string{"msg_one", "msg" + r.ID[len("resp"):] + "_i0"})
			if findErr != nil {
				t.Fatal(findErr)
			}
			if c.sees && (err != nil || chainErr != nil || len(found) == 0) || !c.sees && (!fault.Is(err, fault.NotFound) || !fault.Is(chainErr, fault.NotFound) || len(found) > 0) {
				t.Errorf("%s: got %v, %v and %v", name, err, chainErr, found)
			}
		}
	})
}

func TestChainIsWholeOrMissing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		owner, filter := conversations.Owner{Tenant: tenant}, visibility.Filter{Tenant: tenant}
		first := f.save(t, owner, "", "one")
		second := f.save(t, owner, first.ID, "two")
		third := f.save(t, owner, second.ID, "three")
		chain, err := f.Chain(t.Context(), f.db, filter, third.ID)
		if err != nil || len(chain) != 3 || chain[0].ID != first.ID {
			t.Fatalf("got %v, %v", chain, err)
		}
		items, err := conversations.Items(chain)
		if err != nil || len(items) != 6 || conversations.ItemID(items[1]) != "msg_one" || conversations.ItemID(items[5]) != "msg_three" {
			t.Errorf("got %s, %v", items, err)
		}
		f.write(t, func(tx *db.Tx) error { return f.Delete(t.Context(), tx, filter, second.ID) })
		if _, err := f.Chain(t.Context(), f.db, filter, third.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("got %v", err)
		}
	})
}

// TestMessagesAndResponsesAreApart: F1. Neither API sees what the other has stored, nor items of a message.
func TestMessagesAndResponsesAreApart(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		owner, filter := conversations.Owner{Tenant: tenant}, visibility.Filter{Tenant: tenant}
		response := f.save(t, owner, "", "one")
		message := func(previous string, c conversations.Content) string {
			r := &conversations.Response{ID: ids.New(ids.Message), Owner: owner, PreviousID: previous, CreatedAt: f.now, ExpiresAt: f.now.Add(time.Hour), Content: c}
			pending, err := f.Save(r)
			if err != nil {
				t.Fatal(err)
			}
			if err := pending.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			return r.ID
		}
		value := func(text string) jsontext.Value { return jsontext.Value(`{"n":` + text + `,"id":"msg_x"}`) }
		first := message("", conversations.Content{Input: []jsontext.Value{value("1"), value("2")}, Fields: map[string]jsontext.Value{"system": value("0")}, Response: value("3")})
		second := message(first, conversations.Content{Input: []jsontext.Value{value("4")}, Response: value("5")})
		thread, err := f.Thread(t.Context(), f.db, filter, second)
		if want := []jsontext.Value{value("1"), value("2"), value("3"), value("4"), value("5")}; err != nil || fmt.Sprintf("%s", thread.Messages) != fmt.Sprintf("%s", want) || string(thread.Fields["system"]) != string(value("0")) {
			t.Errorf("got %s, %v", thread, err)
		}
		if _, err := f.Thread(t.Context(), f.db, filter, response.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("a response as a message: %v", err)
		}
		if _, err := f.Get(t.Context(), f.db, filter, first); !fault.Is(err, fault.NotFound) {
			t.Errorf("a message as a response: %v", err)
		}
		if _, err := f.Chain(t.Context(), f.db, filter, first); !fault.Is(err, fault.NotFound) {
			t.Errorf("a message as the previous response: %v", err)
		}
		found, err := f.Find(t.Context(), f.db, filter, []string{first, first + "_i0", first + "_0", "msg_x"})
		if err != nil || len(found) > 0 {
			t.Errorf("items of a message: %s, %v", found, err)
		}
	})
}

// TestChainCountsTowardTheRequestsBudget: a client can't make the server read more than it may send.
func TestChainCountsTowardTheRequestsBudget(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		owner, filter, previous := conversations.Owner{Tenant: tenant}, visibility.Filter{Tenant: tenant}, ""
		for range 4 {
			previous = f.save(t, owner, previous, strings.Repeat("x", 100<<10)).ID
		}
		for limit, enough := range map[int64]bool{256 << 10: false, 4 << 20: true} {
			ctx, b := budget.Begin(budget.New(limit).With(t.Context()), "ws_1")
			_, err := f.Chain(ctx, f.db, filter, previous)
			if b.Release(); enough != (err == nil) || !enough && !fault.Is(err, fault.RequestTooLarge) {
				t.Errorf("with %d bytes: %v", limit, err)
			}
		}
	})
}

func TestExpiredContentIsPurged(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		owner, filter := conversations.Owner{Tenant: tenant}, visibility.Filter{Tenant: tenant}
		f.save(t, owner, "", "one")
		c := &conversations.Conversation{Owner: owner, CreatedAt: f.now, ExpiresAt: f.now.Add(time.Hour)}
		f.write(t, func(tx *db.Tx) error {
			_, err := f.CreateConversation(t.Context(), tx, c, []jsontext.Value{jsontext.Value(`{"role":"user","content":"x"}`)})
			return err
		})
		f.now = f.now.Add(time.Hour)
		kept := f.save(t, owner, "", "two")
		f.write(t, func(tx *db.Tx) error {
			if _, err := f.Purge(t.Context(), tx, 10); err != nil {
				return err
			}
			_, err := f.PurgeConversations(t.Context(), tx, 10)
			return err
		})
		if _, err := f.Get(t.Context(), f.db, filter, kept.ID); err != nil {
			t.Error(err)
		}
		for table, want := range map[string]int{"responses": 1, "response_items": 1, "conversations": 0, "conversation_items": 0} {
			if got := f.count(t, table); got != want {
				t.Errorf("%s: got %d rows, want %d", table, got, want)
			}
		}
	})
}

// keep changes how long the workspace's responses are stored.
func (f *fixture) keep(t *testing.T, id string, kept time.Duration) {
	t.Helper()
	f.write(t, func(tx *db.Tx) error {
		_, err := accounts.ChangeWorkspace(t.Context(), tx, id, accounts.Change[accounts.Workspace]{At: f.now, Apply: func(w *accounts.Workspace) error {
			w.ResponseRetention = kept
			return nil
		}})
		return err
	})
}

// Readers follow a shorter retention immediately. Rows get their new dates in small transactions.
func TestShorterRetentionAppliesToStoredContent(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		w := &accounts.Workspace{Name: "acme"}
		f.write(t, func(tx *db.Tx) error { return accounts.CreateWorkspace(t.Context(), tx, w, f.now) })
		of := visibility.Tenant{WorkspaceID: w.ID, Environment: visibility.Live}
		owner, filter := conversations.Owner{Tenant: of}, visibility.Filter{Tenant: of}
		saved := func() *conversations.Response {
			r := f.save(t, owner, "", ids.New(ids.Request))
			f.write(t, func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), "UPDATE responses SET expires_at = created_at + $2 WHERE id = $1", r.ID, accounts.DefaultResponseRetention.Microseconds())
				return err
			})
			return r
		}
		expired := []*conversations.Response{saved(), saved(), saved()}
		f.now = f.now.Add(2 * time.Hour)
		recent := saved()
		c := &conversations.Conversation{Owner: owner, CreatedAt: f.now, ExpiresAt: f.now.Add(accounts.DefaultResponseRetention)}
		f.write(t, func(tx *db.Tx) error {
			_, err := f.CreateConversation(t.Context(), tx, c, nil)
			return err
		})
		f.keep(t, w.ID, accounts.MinResponseRetention)
		for _, r := range expired {
			_, err := f.Get(t.Context(), f.db, filter, r.ID)
			_, chain := f.Chain(t.Context(), f.db, filter, r.ID)
			_, status := f.GetStatus(t.Context(), f.db, r.ID)
			if !fault.Is(err, fault.NotFound) || !fault.Is(chain, fault.NotFound) || !fault.Is(status, fault.NotFound) {
				t.Errorf("read an expired response: %v, %v, %v", err, chain, status)
			}
		}
		passes := 0
		for n := int64(2); n == 2; passes++ {
			f.write(t, func(tx *db.Tx) (err error) {
				n, err = f.ShortenRetention(t.Context(), tx, 2)
				return err
			})
		}
		if passes < 3 || f.count(t, "shortened_retentions") != 0 {
			t.Errorf("shortened in %d transactions", passes)
		}
		f.write(t, func(tx *db.Tx) error {
			_, err := f.Purge(t.Context(), tx, 10)
			return err
		})
		if n := f.count(t, "responses"); n != 1 {
			t.Errorf("%d responses are left, want 1", n)
		}
		if _, err := f.Get(t.Context(), f.db, filter, recent.ID); err != nil {
			t.Error(err)
		}
		if got, err := f.GetConversation(t.Context(), f.db, filter, c.ID); err != nil || !got.ExpiresAt.Equal(f.now.Add(accounts.MinResponseRetention)) {
			t.Errorf("got %+v, %v", got, err)
		}
		f.keep(t, w.ID, 0)
		if _, err := f.Get(t.Context(), f.db, filter, recent.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("read a response although storing is off: %v", err)
		}
		if _, err := f.GetConversation(t.Context(), f.db, filter, c.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("read a conversation although storing is off: %v", err)
		}
	})
}

func TestWorkspaceHasLimitedSpace(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.MaxBytes.Store(100)
		room := func(workspace string) bool {
			ok, err := f.HasRoom(t.Context(), workspace)
			if err != nil {
				t.Fatal(err)
			}
			return ok
		}
		if !room("ws_1") {
			t.Error("an empty workspace has no room")
		}
		f.save(t, conversations.Owner{Tenant: tenant}, "", "one")
		if room("ws_1") || !room("ws_2") {
			t.Error("the limit doesn't apply to its workspace alone")
		}
		f.now = f.now.Add(2 * time.Hour) // the count is read again
		f.write(t, func(tx *db.Tx) error {
			_, err := f.Purge(t.Context(), tx, 10)
			return err
		})
		if !room("ws_1") {
			t.Error("purged content still counts")
		}
	})
}

// checkStored compares the count of stored bytes with what is stored.
func (f *fixture) checkStored(t *testing.T, after string) {
	t.Helper()
	got, err := accounts.StoredBytes(t.Context(), f.db, tenant.WorkspaceID)
	if err != nil {
		t.Fatal(err)
	}
	want, err := db.Value[int64](f.db.QueryRow(t.Context(), `SELECT CAST(coalesce((SELECT sum(bytes) FROM responses), 0) + coalesce((SELECT sum(bytes) FROM conversation_items), 0) AS BIGINT)`))
	if err != nil || got != want {
		t.Errorf("after %s: counted %d stored bytes, but there are %d (%v)", after, got, want, err)
	}
}

// B6: the count equals the sums after each operation.
func TestStoredBytesAreCounted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		owner, filter := conversations.Owner{Tenant: tenant}, visibility.Filter{Tenant: tenant}
		one := f.save(t, owner, "", "one")
		f.checkStored(t, "a response")
		c := &conversations.Conversation{Owner: owner, CreatedAt: f.now, ExpiresAt: f.now.Add(time.Hour)}
		var added []jsontext.Value
		f.write(t, func(tx *db.Tx) (err error) {
			added, err = f.CreateConversation(t.Context(), tx, c, []jsontext.Value{jsontext.Value(`{"role":"user","content":"x"}`), jsontext.Value(`{"role":"user","content":"y"}`)})
			return err
		})
		f.checkStored(t, "a conversation")
		f.write(t, func(tx *db.Tx) error { return f.DeleteItem(t.Context(), tx, c, conversations.ItemID(added[0])) })
		f.checkStored(t, "the deletion of an item")
		f.saveTo(t, c)
		f.checkStored(t, "a response in a conversation")

		queued := &conversations.Response{ID: ids.New(ids.Response), Owner: owner, ConversationID: c.ID, CreatedAt: f.now, ExpiresAt: f.now.Add(time.Hour), Status: conversations.Queued,
			Content: conversations.Content{Response: jsontext.Value(`{"output":[]}`)}}
		f.write(t, func(tx *db.Tx) error { return f.Create(t.Context(), tx, queued) })
		f.checkStored(t, "a background response")
		f.write(t, func(tx *db.Tx) error {
			err := f.AddEvents(t.Context(), tx, []conversations.Events{{ResponseID: queued.ID, Last: 1, Data: []jsontext.Value{jsontext.Value(`{}`)}}})
			if err != nil {
				return err
			}
			r, err := f.Queued(t.Context(), tx, queued.ID)
			if err != nil {
				return err
			}
			return f.Finish(t.Context(), tx, r, jsontext.Value(`{"output":[{"id":"msg_end","type":"message"}]}`))
		})
		if items, err := f.AllItems(t.Context(), f.db, c); err != nil || len(items) != 3 {
			t.Errorf("got %d items (%v), want 3", len(items), err)
		}
		f.checkStored(t, "the end of a background response")

		f.write(t, func(tx *db.Tx) error { return f.Delete(t.Context(), tx, filter, one.ID) })
		f.checkStored(t, "the deletion of a response")
		f.write(t, func(tx *db.Tx) error { return f.DeleteConversation(t.Context(), tx, filter, c.ID) })
		f.checkStored(t, "the deletion of a conversation")
		f.write(t, func(tx *db.Tx) error {
			_, err := f.CreateConversation(t.Context(), tx, c, []jsontext.Value{jsontext.Value(`{"role":"user","content":"x"}`)})
			return err
		})
		f.now = f.now.Add(2 * time.Hour)
		f.write(t, func(tx *db.Tx) error {
			_, err := f.Purge(t.Context(), tx, 10)
			return err
		})
		f.checkStored(t, "the purge of responses")
		f.write(t, func(tx *db.Tx) error {
			_, err := f.PurgeConversations(t.Context(), tx, 10)
			return err
		})
		f.checkStored(t, "the purge of conversations")
		if n, err := accounts.StoredBytes(t.Context(), f.db, tenant.WorkspaceID); n != 0 || err != nil {
			t.Errorf("%d bytes are stored (%v), want none", n, err)
		}
	})
}

// A conversation is deleted in batches, and no one sees it in between.
func TestLargeConversationIsDeletedInBatches(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		owner, filter := conversations.Owner{Tenant: tenant}, visibility.Filter{Tenant: tenant}
		items := make([]jsontext.Value, 1500)
		for i := range items {
			items[i] = jsontext.Value(`{"role":"user","content":"x"}`)
		}
		c := &conversations.Conversation{Owner: owner, CreatedAt: f.now, ExpiresAt: f.now.Add(time.Hour)}
		f.write(t, func(tx *db.Tx) error {
			_, err := f.CreateConversation(t.Context(), tx, c, items)
			return err
		})
		f.write(t, func(tx *db.Tx) error { return f.DeleteConversation(t.Context(), tx, filter, c.ID) })
		if _, err := f.GetConversation(t.Context(), f.db, filter, c.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("got %v, want no conversation", err)
		}
		for _, left := range []int{500, 200, 0} {
			if got := f.count(t, "conversation_items"); got != left {
				t.Errorf("%d items are left, want %d", got, left)
			}
			f.checkStored(t, "a batch")
			f.write(t, func(tx *db.Tx) error {
				_, err := f.PurgeConversations(t.Context(), tx, 300)
				return err
			})
		}
		if got := f.count(t, "conversations"); got != 0 {
			t.Errorf("%d conversations are left, want none", got)
		}
	})
}

// newIn returns a response in a conversation.
func (f *fixture) newIn(c *conversations.Conversation) *conversations.Response {
	return &conversations.Response{ID: ids.New(ids.Response), Owner: c.Owner, ConversationID: c.ID, CreatedAt: f.now, ExpiresAt: f.now.Add(time.Hour),
		Content: conversations.Content{Response: jsontext.Value(`{"output":[{"id":"msg_in","type":"message"}]}`)}}
}

func (f *fixture) saveTo(t *testing.T, c *conversations.Conversation) {
	t.Helper()
	pending, err := f.Save(f.newIn(c))
	if err != nil {
		t.Fatal(err)
	}
	if err := pending.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// B5: transactions of several nodes lock the same conversations. While one waits for the first, it must not hold another.
func TestConversationsAreLockedInOneOrder(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "postgres"))
	f := newFixture(t, d)
	list := make([]*conversations.Conversation, 3)
	for i := range list {
		list[i] = &conversations.Conversation{Owner: conversations.Owner{Tenant: tenant}, CreatedAt: f.now, ExpiresAt: f.now.Add(time.Hour)}
		f.write(t, func(tx *db.Tx) error {
			_, err := f.CreateConversation(t.Context(), tx, list[i], nil)
			return err
		})
	}
	slices.SortFunc(list, func(a, b *conversations.Conversation) int { return strings.Compare(a.ID, b.ID) })
	lock := func(tx *db.Tx, i int) {
		if _, err := f.GetConversationLocked(t.Context(), tx, visibility.Filter{Tenant: tenant}, list[i].ID); err != nil {
			t.Fatal(err)
		}
	}
	save := func(i int) *db.Pending {
		p, err := f.Save(f.newIn(list[i]))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	waits := func() {
		for waiting := int64(0); waiting == 0; {
			var err error
			if waiting, err = db.Value[int64](d.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")); err != nil {
				t.Fatal(err)
			}
		}
	}
	var saved []*db.Pending
	f.write(t, func(tx *db.Tx) error {
		lock(tx, 0)
		var first *db.Pending
		f.write(t, func(tx *db.Tx) error {
			lock(tx, 2)
			first = save(2)
			waits()
			saved = append(saved, save(1), save(0)) // in the next commit, together
			return nil
		})
		if err := first.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		waits()
		_, err := tx.Exec(t.Context(), "SELECT id FROM conversations WHERE id = $1 FOR UPDATE NOWAIT", list[1].ID)
		return err
	})
	for _, p := range saved {
		if err := p.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, c := range list {
		if items, err := f.AllItems(t.Context(), d, c); err != nil || len(items) != 1 {
			t.Errorf("got %d items (%v), want 1", len(items), err)
		}
	}
}
