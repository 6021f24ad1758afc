package media

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/ids"
	"turnpike/internal/lanes"
	"turnpike/internal/providers"
	"turnpike/internal/spend"
)

var states = []Status{Queued, InProgress, Cancelling, Completed, Failed, Cancelled}

func TestJobMovesOnlyAlongTheTransitionTable(t *testing.T) {
	t.Parallel()
	allowed := map[string]bool{}
	for _, m := range []string{
		"image queued in_progress", "image queued cancelled", "image queued failed",
		"image in_progress completed", "image in_progress failed", "image in_progress cancelling", "image cancelling cancelled",
		"video queued in_progress", "video queued failed", "video in_progress completed", "video in_progress failed",
		"voice queued in_progress", "voice queued cancelled", "voice in_progress completed", "voice in_progress failed", "voice in_progress cancelled",
		"transcription queued in_progress", "transcription queued cancelled", "transcription in_progress completed", "transcription in_progress failed", "transcription in_progress cancelled",
	} {
		allowed[m] = true
	}
	for kind := range kinds {
		for _, from := range states {
			for _, to := range states {
				j := &Job{Kind: kind, Status: from}
				err := j.transition(to)
				if want := allowed[fmt.Sprintf("%s %s %s", kind, from, to)]; want != (err == nil) {
					t.Errorf("%s: %s to %s: %v", kind, from, to, err)
				}
				if err != nil && j.Status != from {
					t.Errorf("%s: a refused move to %s changed %s to %s", kind, to, from, j.Status)
				}
				if from.Ended() && err == nil {
					t.Errorf("%s: something follows %s", kind, from)
				}
			}
		}
	}
}

// bench is a service whose tasks are worked by the test.
type bench struct {
	*Service
	t         *testing.T
	workspace *accounts.Workspace
}

func newBench(t *testing.T, d *db.DB) *bench {
	t.Helper()
	store, err := files.Open(t.Context(), files.Options{DB: d, Dir: filepath.Join(t.TempDir(), "files"), Retention: retention, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	publisher := events.NewPublisher(time.Now)
	s := &Service{ended: newEnded(), Options: Options{DB: d, Files: store, Settler: spend.NewSettler(spend.NewLedger(d), publisher, time.Now), Publisher: publisher, Now: time.Now}}
	b := &bench{Service: s, t: t, workspace: &accounts.Workspace{Name: "w"}}
	b.write(func(ctx context.Context, tx *db.Tx) error {
		return accounts.CreateWorkspace(ctx, tx, b.workspace, time.Now())
	})
	return b
}

func (b *bench) write(fn func(ctx context.Context, tx *db.Tx) error) {
	b.t.Helper()
	if err := b.DB.Write(b.t.Context(), func(tx *db.Tx) error { return fn(b.t.Context(), tx) }); err != nil {
		b.t.Fatal(err)
	}
}

// job stores one with so many tasks, and one more that puts voices together.
func (b *bench) job(kind Kind, tasks int) *Job {
	b.t.Helper()
	now := time.Now()
	j := &Job{ID: ids.New(kind.Prefix()), Kind: kind, Tenant: b.workspace.In(accounts.Test), KeyID: "key_1", RequestID: "req_1", Status: Queued,
		Model: "m", Input: json.RawMessage("{}"), Metadata: map[string]string{}, Total: int64(tasks), CreatedAt: now, DeadlineAt: now.Add(time.Hour)}
	j.Lane = lanes.ShardOf(j.WorkspaceID+"."+string(kind), j.ID)
	o := &Draft{Job: j}
	for i := range tasks {
		if err := o.addTask(fmt.Sprint("c", i), struct{}{}); err != nil {
			b.t.Fatal(err)
		}
	}
	if kind == Voice {
		if err := o.addTask("stitch", struct{}{}); err != nil {
			b.t.Fatal(err)
		}
		last := o.tasks[tasks]
		last.Status, last.DueAt = taskBlocked, nil
	}
	b.write(func(ctx context.Context, tx *db.Tx) error { return b.Create(ctx, tx, o) })
	return j
}

// results writes results of tasks with the given number of earlier attempts.
func (b *bench) results(list ...*result) {
	b.t.Helper()
	b.write(func(ctx context.Context, tx *db.Tx) error { return b.writeResults(ctx, tx, list) })
}

func of(j *Job, position, attempts int64, r result) *result {
	r.job, r.task = j, &task{JobID: j.ID, Position: position, Attempts: attempts}
	return &r
}

func (b *bench) read(j *Job) *Job {
	b.t.Helper()
	got, err := scanJob(b.DB.QueryRow(b.t.Context(), "SELECT "+jobColumns+" FROM media_jobs WHERE id = $1", j.ID))
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

func (b *bench) count(what string) (n int) {
	b.t.Helper()
	if err := b.DB.QueryRow(b.t.Context(), "SELECT count(*) FROM "+what).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// An evicted node reports a task that another node has completed.
func TestStaleResultIsDropped(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		done := result{status: taskCompleted, cost: 5, output: taskOutput{Milliseconds: 1}}
		broken := result{status: taskFailed, why: errDeadline}

		voice := b.job(Voice, 2)
		b.results(of(voice, 0, 0, done))
		b.results(of(voice, 0, 0, broken), of(voice, 0, 0, done))
		if j := b.read(voice); j.Status != InProgress || j.Completed != 1 || j.Failed != 0 || j.Cost != 5 {
			t.Errorf("a late failure makes it %+v", j)
		}
		b.results(of(voice, 1, 0, done), of(voice, 1, 0, broken)) // both in one commit
		if j := b.read(voice); j.Status != InProgress || j.Completed != 2 || j.Cost != 10 {
			t.Errorf("two results of one task make it %+v", j)
		}
		b.results(of(voice, 2, 0, done))
		b.results(of(voice, 2, 0, done))
		b.results(of(voice, 1, 0, broken))
		if j := b.read(voice); j.Status != Completed || j.Completed != 2 || b.count("events") != 1 {
			t.Errorf("in the end it is %+v, with %d events", j, b.count("events"))
		}

		video := b.job(Video, 1)
		due := time.Now()
		b.results(of(video, 0, 0, result{status: taskWaiting, due: &due, output: taskOutput{Upstream: "first"}}))
		b.results(of(video, 0, 0, broken))
		b.results(of(video, 0, 0, result{status: taskWaiting, due: &due, output: taskOutput{Upstream: "second"}}))
		if task, err := tasksOf(t.Context(), d, video.ID); err != nil || string(task[0].Output) != `{"upstream":"first"}` || b.read(video).Status != InProgress {
			t.Errorf("a late result makes it %s, %v", task[0].Output, err)
		}

		batch := b.job(Images, 2)
		b.results(of(batch, 0, 0, done))
		b.results(of(batch, 0, 0, done))
		b.results(of(batch, 0, 0, broken))
		if j := b.read(batch); j.Status != InProgress || j.Completed != 1 || j.Cost != 5 {
			t.Errorf("late results make it %+v", j)
		}
	})
}

func TestResultOfADeletedJobIsDropped(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		gone, there := b.job(Images, 1), b.job(Images, 1)
		b.write(func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, "DELETE FROM media_jobs WHERE id = $1", gone.ID)
			return err
		})
		b.results(of(gone, 0, 0, result{status: taskCompleted}), of(there, 0, 0, result{status: taskCompleted}))
		if j := b.read(there); j.Status != Completed {
			t.Errorf("its neighbor is %+v", j)
		}
	})
}

func TestLateStartDoesNotReopenAJob(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		j := b.job(Images, 1)
		b.results(of(j, 0, 0, result{status: taskCompleted}))
		b.write(func(ctx context.Context, tx *db.Tx) error { return b.writeStarts(ctx, tx, []string{j.ID, j.ID}) })
		if got := b.read(j); got.Status != Completed {
			t.Errorf("it is %+v", got)
		}
	})
}

func TestOldJobsArePurged(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		old, running := b.job(Images, 3), b.job(Images, 1)
		for i := range int64(3) {
			b.results(of(old, i, 0, result{status: taskCompleted}))
		}
		purge := func() (n int64) {
			b.write(func(ctx context.Context, tx *db.Tx) (err error) {
				n, err = b.Purge(ctx, tx, 1000)
				return err
			})
			return n
		}
		b.Now = func() time.Time { return time.Now().Add(retention - time.Minute) }
		if n := purge(); n != 0 {
			t.Errorf("%d went before their time", n)
		}
		b.Now = func() time.Time { return time.Now().Add(retention + time.Minute) }
		if n := purge(); n != 1 || b.count("media_jobs") != 1 || b.count("media_tasks") != 1 {
			t.Errorf("%d went; %d jobs and %d tasks are left", n, b.count("media_jobs"), b.count("media_tasks"))
		}
		if b.read(running).Status != Queued {
			t.Error("the running one is another")
		}
	})
}

func TestFetchReturnsTasksInOrder(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		j := b.job(Images, 25)
		var seen []int64
		after := (&lanes.Row{}).Key()
		after.ID = ""
		for {
			got, err := b.Fetch(t.Context(), j.Lane, after, 4)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Items) == 0 {
				break
			}
			for _, i := range got.Items {
				seen = append(seen, i.Position)
				after = i.Key()
			}
		}
		for i := range int64(25) {
			if i >= int64(len(seen)) || seen[i] != i {
				t.Fatalf("the tasks came as %v", seen)
			}
		}
	})
}

func TestOversizedProviderFileFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		left int64
		fits bool
	}{{0, false}, {4, false}, {5, true}, {6, true}} {
		for _, from := range []io.Reader{strings.NewReader("12345"), iotest.OneByteReader(strings.NewReader("12345")), iotest.DataErrReader(strings.NewReader("12345"))} {
			got, err := io.ReadAll(&limitedReader{from, c.left})
			var f *providers.Failure
			if c.fits && (err != nil || string(got) != "12345") || !c.fits && (!errors.As(err, &f) || f.Kind != providers.KindProtocol || int64(len(got)) > c.left) {
				t.Errorf("of at most %d bytes: %q, %v", c.left, got, err)
			}
		}
	}
}

// The source of a video may be large, and the connection to the bucket slow.
func TestLargeFileGetsMoreTimeToStore(t *testing.T) {
	t.Parallel()
	for size, want := range map[int64]time.Duration{1 << 10: 10 * time.Second, 32 << 20: 138 * time.Second} {
		o := &Draft{Job: &Job{}, size: size, store: func(ctx context.Context) error {
			until, ok := ctx.Deadline()
			if left := time.Until(until); !ok || left > want || left < want-5*time.Second {
				t.Errorf("%d bytes may take %v", size, left)
			}
			return context.DeadlineExceeded
		}}
		if err := new(Service).StoreFile(t.Context(), o); !fault.Is(err, fault.StorageUnavailable) {
			t.Errorf("what took longer is %v", err)
		}
		o.store = func(context.Context) error { return context.Canceled }
		if err := new(Service).StoreFile(t.Context(), o); !errors.Is(err, context.Canceled) {
			t.Errorf("error after the client left: got %v", err)
		}
	}
}

func TestStaleFilesOfEndedJobsAreDeleted(t *testing.T) {
	t.Parallel()
	all, pieces := []string{"job", workHolder(&Job{ID: "job"})}, []string{workHolder(&Job{ID: "job"})}
	for _, tt := range []struct {
		kind   Kind
		status Status
		want   []string
	}{
		{Voice, InProgress, nil}, {Voice, Completed, pieces}, {Voice, Failed, all}, {Voice, Cancelled, all},
		{Transcript, InProgress, nil}, {Transcript, Completed, pieces}, {Transcript, Failed, all}, {Transcript, Cancelled, all},
		{Video, InProgress, nil}, {Video, Completed, nil}, {Video, Failed, all},
		{Images, InProgress, nil}, {Images, Completed, nil}, {Images, Failed, nil}, {Images, Cancelled, nil},
	} {
		was := &Job{ID: "job", Tenant: accounts.Tenant{WorkspaceID: "ws"}, Kind: tt.kind, Status: InProgress}
		now := *was
		now.Status = tt.status
		if got := staleHolders(was, &now); !slices.Equal(got, tt.want) {
			t.Errorf("%s that is %s: %q", tt.kind, tt.status, got)
		}
		now.WorkspaceID = "" // deleted
		for _, gone := range []*Job{nil, &now} {
			if got := staleHolders(was, gone); !slices.Equal(got, all) {
				t.Errorf("%s that was deleted: %q", tt.kind, got)
			}
		}
	}
}

func TestOutageOfTheDatabaseFailsNoTask(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	outage := fmt.Errorf("claim a file: %w", db.ErrUnavailable)
	for _, environment := range []accounts.Environment{accounts.Test, accounts.Live} {
		j := &Job{Tenant: accounts.Tenant{Environment: environment}, DeadlineAt: now.Add(time.Hour)}
		r := failedResult(&task{Tries: int64(len(retryDelays))}, outage)
		r.decideRetry(j, now)
		if r.status != taskWaiting || r.due == nil || !r.due.After(now) || r.tries != int64(len(retryDelays)) {
			t.Errorf("%s: got status %s, due %v, tries %d; want a retry that doesn't count", environment, r.status, r.due, r.tries)
		}
		j.DeadlineAt = now.Add(time.Second)
		if r.decideRetry(j, now); !r.due.Equal(j.DeadlineAt) {
			t.Errorf("%s: due at %v, want the deadline %v", environment, r.due, j.DeadlineAt)
		}
		failed := failedResult(&task{Tries: int64(len(retryDelays))}, errors.New("another failure"))
		if failed.decideRetry(j, now); failed.status != taskFailed {
			t.Errorf("%s: another failure got status %s, want %s", environment, failed.status, taskFailed)
		}
	}
}
