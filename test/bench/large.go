package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"turnpike/internal/app"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/ids"
	"turnpike/internal/webhooks"
	"turnpike/test/chaos/program"
)

const (
	largeClients = 4 // of another workspace, which send chats
	largeAtOnce  = 30
	largeDays    = 18
	largeStep    = 50_000 // rows per transaction
	largeBytes   = 3_000  // of a stored response, as counted
	largePace    = 200    // deliveries per second: what is measured is the change and not the deliveries
)

// largeTables are the sizes of the tables of one workspace.
type largeTables struct{ logged, delivered, responses, waiting int }

// measureLarge measures chats of one workspace while requests of another change large tables.
func measureLarge(b *bench) {
	t := largeTables{b.logged, b.logged / 4 * 3, b.logged / 4 * 3, b.logged / 4}
	for _, e := range b.engines {
		b.measureLargeOn(e, t)
	}
	b.method("Large tables: one workspace has %d log entries, %d deliveries over %d days and %d stored responses, and %d more deliveries wait for a retry at its endpoint. %d clients of another workspace send chats to the simulator, alone and while one request changes the tables. The run fails if any status isn't 200.",
		t.logged, t.delivered, largeDays, t.responses, t.waiting, largeClients)
}

func (b *bench) measureLargeOn(e *engine, t largeTables) {
	at, remove := b.newPlace(e)
	defer remove()
	both := newAccounts(b.ctx, at, 2, testKey)
	var receiver string
	receiving := b.startChild(roleStatic, staticOrder{Plain: []byte("{}"), Ignore: true}, &receiver)
	defer receiving.kill()
	n := b.startNode(e, at, both[0])
	endpoint := n.create(b.ctx, "/v1/webhooks", `{"url":"http://%s/plain","events":["*"],"requests_per_second":%d}`, receiver, largePace)
	n.kill()
	begun := time.Now()
	b.fillLarge(at, both[0].workspace, endpoint, t)
	say("large tables, %s: filled in %s", e, seconds(time.Since(begun)))
	n = b.startNode(e, at, both[0])
	defer n.kill()

	chats := &loaded{address: addressOf(n.url), pid: n.pid(), database: e.pid, plain: chatRequest(chatPath, both[1].key, plainBody)}
	beside := func(what string, do func() error) (x sample, took time.Duration) {
		var request errgroup.Group
		request.Go(func() error {
			time.Sleep(warmUp + b.duration/10)
			begun := time.Now()
			err := do()
			took = time.Since(begun)
			return err
		})
		x = b.underLoad(chats, loadOrder{Duration: b.duration, Connections: largeClients})
		if err := request.Wait(); err != nil {
			say("large tables, %s, %s: %v", e, what, err)
			b.targets = append(b.targets, target{fmt.Sprintf("status of %s with large tables, %s", what, e.name), "an error", "200", false})
		}
		return x, took
	}
	hook := n.url + "/v1/webhooks/" + endpoint
	post := func(url, format string, args ...any) func() error {
		return func() error {
			_, err := callAPI(b.ctx, http.MethodPost, url, n.key, fmt.Appendf(nil, format, args...))
			return err
		}
	}
	b.section("Chats next to changes of large tables, %s", e.name)
	b.header("chat p50", "chat p99", "the request took")
	alone, _ := beside("nothing", func() error { return nil })
	b.row("nothing else", millis(alone.p50), millis(alone.p99), "–")
	for _, op := range []struct {
		name string
		do   func() error
	}{
		{"a replay", post(hook+"/replay", `{"since":%d,"status":"all"}`, time.Now().AddDate(0, 0, -largeDays-1).Unix())},
		{"a pause", post(hook+"/pause", "{}")},
		{"a resume", post(hook+"/resume", `{"held":"deliver"}`)},
		{"another pause", post(hook+"/pause", "{}")},
		{"a discard", post(hook+"/resume", `{"held":"discard"}`)},
		{"an upload", func() error { return upload(b.ctx, n) }},
		{"the first responses of a minute", func() error {
			var all errgroup.Group
			for range largeAtOnce {
				all.Go(post(n.url+"/v1/responses", `{"model":"gpt-4o-mini","input":"What is the capital of France?"}`))
			}
			return all.Wait()
		}},
	} {
		x, took := beside(op.name, op.do)
		say("large tables, %s, %s: p50 %s, p99 %s, took %s", e, op.name, millis(x.p50), millis(x.p99), millis(took))
		b.row(op.name, millis(x.p50), millis(x.p99), millis(took))
		b.atMost(float64(x.p99)/float64(alone.p99), 2, "", "p99 of chats next to %s against nothing else, %s", op.name, e.name)
	}
	b.text("\nThe discard ended %s after it was requested, or sooner.", seconds(b.awaitChores(at)))
}

// awaitChores waits until nothing is left of the changes, and returns how long it waited, with the
// measurements after the discard.
func (b *bench) awaitChores(at program.Place) time.Duration {
	d := must(app.OpenDatabase(b.ctx, settings(at)))
	defer d.Close()
	since := must(db.Value[time.Time](d.QueryRow(b.ctx, "SELECT max(discard_before) FROM endpoints")))
	for must(db.Value[bool](d.QueryRow(b.ctx, "SELECT EXISTS (SELECT 1 FROM endpoints WHERE chore IS NOT NULL)"))) {
		if time.Since(since) > 5*orderTimeout {
			check(errors.New("a discard didn't end"))
		}
		time.Sleep(time.Second / 4)
	}
	return time.Since(since)
}

func upload(ctx context.Context, n *node) error {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	check(form.WriteField("purpose", "user_data"))
	must(must(form.CreateFormFile("file", "small.txt")).Write(bytes.Repeat([]byte("x"), 200)))
	check(form.Close())
	req := must(http.NewRequestWithContext(ctx, http.MethodPost, n.url+"/v1/files", &body))
	req.Header.Set("Authorization", "Bearer "+n.key)
	req.Header.Set("Content-Type", form.FormDataContentType())
	res, err := apiClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("upload: got %s: %s", res.Status, answer)
	}
	return err
}

// fillLarge writes the tables, oldest rows first.
func (b *bench) fillLarge(at program.Place, workspace, endpoint string, t largeTables) {
	d := must(app.OpenDatabase(b.ctx, settings(at)))
	defer d.Close()
	preparePartitions(b.ctx, d, events.Table, webhooks.Deliveries, webhooks.Attempts, audit.Requests)
	begin, length := time.Now().AddDate(0, 0, -largeDays), largeDays*24*time.Hour-time.Hour
	// each calls insert for a part of the rows, with the time at which they begin.
	each := func(count int, insert func(tx *db.Tx, at time.Time, n int)) {
		for from := 0; from < count; from += largeStep {
			write(b.ctx, d, func(tx *db.Tx) {
				if d.Engine() == "sqlite" {
					must(tx.Exec(b.ctx, "PRAGMA cache_size = -500000")) // KiB
				}
				insert(tx, begin.Add(length*time.Duration(from/largeStep)/time.Duration(count/largeStep+1)), min(largeStep, count-from))
			})
		}
	}
	const numbers = "WITH RECURSIVE numbers (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < %d) "
	number := func(prefix string, at time.Time, i string) string { // an ID with the time
		return fmt.Sprintf("'%s' || CAST(1000000000000000 + %s AS TEXT)", ids.Floor(prefix, at)[:len(prefix)+10], i)
	}
	kind := events.AgentRunCompleted
	delivered := func(state webhooks.State, shift time.Duration, due string) func(tx *db.Tx, at time.Time, n int) {
		return func(tx *db.Tx, at time.Time, n int) {
			at = at.Add(shift)
			const shared = 1000 // deliveries share events
			must(tx.Exec(b.ctx, fmt.Sprintf(numbers+"INSERT INTO events (id, workspace_id, environment, type, sample, created_at, body) SELECT %s, '%s', 'test', '%s', FALSE, %d, '{}' FROM numbers",
				shared, number(ids.Event, at, "i"), workspace, kind, at.UnixMicro())))
			must(tx.Exec(b.ctx, fmt.Sprintf(numbers+`INSERT INTO deliveries (id, event_id, endpoint_id, workspace_id, environment, type, status, attempts, tries, due_at, event_at, created_at)
				SELECT %s, %s, '%s', '%s', 'test', '%s', '%s', 1, 1, CAST(%s AS BIGINT), %d, %d FROM numbers`,
				n, number(ids.Delivery, at, "i"), number(ids.Event, at, fmt.Sprintf("1 + i %% %d", shared)), endpoint, workspace, kind, state, due, at.UnixMicro(), at.UnixMicro())))
		}
	}
	each(t.delivered, delivered(webhooks.Succeeded, 0, "NULL"))
	each(t.waiting, delivered(webhooks.Retrying, time.Minute, fmt.Sprint(time.Now().Add(time.Hour).UnixMicro())))
	each(t.responses, func(tx *db.Tx, at time.Time, n int) {
		must(tx.Exec(b.ctx, fmt.Sprintf(numbers+`INSERT INTO responses (id, workspace_id, environment, reader, content, bytes, created_at, expires_at)
			SELECT %s, '%s', 'test', 'key_0', 'content', %d, %d, %d FROM numbers`,
			n, number(ids.Response, at, "i"), workspace, largeBytes, at.UnixMicro(), at.AddDate(0, 0, 30).UnixMicro())))
	})
	for from := 0; from < t.logged; from += largeStep {
		addLogEntries(b.ctx, d, logEntriesOf{workspace, []string{"key_a", "key_b"}, begin.Add(length * time.Duration(from) / time.Duration(t.logged)), from, min(from+largeStep, t.logged)})
	}
	if d.Engine() == "postgres" {
		analyze(b.ctx, d)
	}
}
