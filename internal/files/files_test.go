package files_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/files"
	"turnpike/internal/ids"
)

var (
	acme  = files.Owner{WorkspaceID: "ws_1", Environment: "live"}
	begin = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
)

const month = 30 * 24 * time.Hour

// rig is a store with a clock.
type rig struct {
	*files.Store
	t      *testing.T
	db     *db.DB
	folder string

	patience time.Duration

	mu  sync.Mutex
	now time.Time
}

// open makes a store in the bucket at the address; empty means a folder.
func open(t *testing.T, d *db.DB, address string, fromBucket bool) *rig {
	t.Helper()
	r := &rig{t: t, db: d, folder: filepath.Join(t.TempDir(), "files"), now: begin}
	r.reopen(address, fromBucket)
	return r
}

func (r *rig) reopen(address string, fromBucket bool) {
	r.t.Helper()
	s, err := files.Open(r.t.Context(), files.Options{DB: r.db, URL: address, Folder: r.folder, Key: []byte("the key of the tests"),
		PublicURL: "https://api.example.com", Retention: month, FromBucket: fromBucket, Timeout: r.patience, Now: r.clock})
	if err != nil {
		r.t.Fatal(err)
	}
	r.Store = s
	r.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			r.t.Error(err)
		}
	})
}

func (r *rig) clock() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *rig) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

func (r *rig) put(o files.Owner, holder, contentType, text string) files.File {
	r.t.Helper()
	f, err := r.Put(r.t.Context(), o, holder, contentType, strings.NewReader(text))
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

func (r *rig) drop(o files.Owner, holder string) {
	r.t.Helper()
	if err := r.db.Write(r.t.Context(), func(tx *db.Tx) error { return r.Drop(r.t.Context(), tx, o, holder) }); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) purge() (n int64) {
	r.t.Helper()
	err := r.db.Write(context.Background(), func(tx *db.Tx) (err error) {
		n, err = r.Purge(context.Background(), tx, 1000)
		return err
	})
	if err != nil {
		r.t.Error(err)
	}
	return n
}

// rows is how many files are known.
func (r *rig) rows() (n int) {
	r.t.Helper()
	if err := r.db.QueryRow(context.Background(), "SELECT count(*) FROM files").Scan(&n); err != nil {
		r.t.Error(err)
	}
	return n
}

// read is the file as the engine sees it, or "gone".
func (r *rig) read(o files.Owner, f files.File) string {
	r.t.Helper()
	body, err := r.Read(r.t.Context(), o, f.SHA256)
	if errors.Is(err, files.ErrGone) {
		return "gone"
	}
	if err != nil {
		r.t.Fatal(err)
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// fetch asks for a URL as somebody on the Internet would.
func (r *rig) fetch(method, url string, headers ...string) *httptest.ResponseRecorder {
	r.t.Helper()
	req := httptest.NewRequest(method, url, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, req)
	return w
}

func (r *rig) status(o files.Owner, f files.File) int {
	r.t.Helper()
	return r.fetch(http.MethodGet, r.URL(o, f, "a.png", r.clock().Add(time.Hour))).Code
}

func (r *rig) spooled() int {
	r.t.Helper()
	list, err := os.ReadDir(filepath.Join(r.folder, ".spool"))
	if err != nil {
		r.t.Fatal(err)
	}
	return len(list)
}

// everywhere runs a test on both databases, each with each kind of store.
func everywhere(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	for name, address := range map[string]func(t *testing.T) string{
		"folder": func(*testing.T) string { return "" },
		"s3":     func(t *testing.T) string { return newS3(t).address() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) { test(t, open(t, d, address(t), false)) })
		})
	}
}

func TestFileIsKeptUnderItsHashOnceForEachTenant(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		sum := sha256.Sum256([]byte("a picture"))
		want := files.File{SHA256: hex.EncodeToString(sum[:]), Bytes: 9, ContentType: "image/png"}
		if got := r.put(acme, "imgbatch_1", "image/png", "a picture"); got != want {
			t.Errorf("the file is %+v", got)
		}
		bytes, err := r.PutBytes(t.Context(), acme, "imgbatch_2", "image/png", []byte("a picture"))
		if err != nil || bytes != want || r.read(acme, want) != "a picture" {
			t.Errorf("from memory it is %+v (%v), read %q", bytes, err, r.read(acme, want))
		}
		for _, other := range []files.Owner{{WorkspaceID: "ws_2", Environment: "live"}, {WorkspaceID: "ws_1", Environment: "test"}} {
			if got := r.read(other, want); got != "gone" {
				t.Errorf("%v reads %q", other, got)
			}
			if got := r.status(other, want); got != http.StatusNotFound {
				t.Errorf("%v is answered with %d", other, got)
			}
		}
		if n := r.spooled(); n != 0 {
			t.Errorf("%d spooled files are left", n)
		}
		empty, err := r.PutBytes(t.Context(), acme, "imgbatch_1", "", nil)
		if err != nil || empty.Bytes != 0 || empty.ContentType != "application/octet-stream" || r.status(acme, empty) != http.StatusOK {
			t.Errorf("an empty file is %+v (%v)", empty, err)
		}
	})
}

func TestDropKeepsWhatAnotherHolds(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		shared := r.put(acme, "imgbatch_1", "image/png", "shared")
		r.put(acme, "imgbatch_2", "image/png", "shared")
		own := r.put(acme, "imgbatch_1", "image/png", "own")
		r.drop(files.Owner{WorkspaceID: "ws_2", Environment: "live"}, "imgbatch_1")
		if r.status(acme, own) != http.StatusOK {
			t.Error("another tenant dropped it")
		}
		r.drop(acme, "imgbatch_1")
		if got := r.status(acme, own); got != http.StatusNotFound {
			t.Errorf("a dropped file is answered with %d", got)
		}
		if n := r.purge(); n != 1 {
			t.Errorf("%d files were removed", n)
		}
		if r.status(acme, shared) != http.StatusOK || r.read(acme, own) != "gone" {
			t.Errorf("after the purge the shared one is answered with %d, the other one is %q", r.status(acme, shared), r.read(acme, own))
		}
		r.drop(acme, "imgbatch_2")
		r.purge()
		if r.read(acme, shared) != "gone" {
			t.Error("the last holder dropped it, and it is still there")
		}
		// And back again.
		r.put(acme, "imgbatch_3", "image/png", "shared")
		if r.status(acme, shared) != http.StatusOK || r.read(acme, shared) != "shared" {
			t.Error("stored again, it is not there")
		}
	})
}

func TestFileExpiresUnlessItIsPutAgain(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		old := r.put(acme, "imgbatch_1", "image/png", "old")
		again := r.put(acme, "imgbatch_1", "image/png", "again")
		r.pass(month - time.Second)
		if r.purge() != 0 || r.status(acme, old) != http.StatusOK {
			t.Error("it went before its time")
		}
		r.put(acme, "imgbatch_2", "image/png", "again")
		r.pass(time.Second)
		if got := r.status(acme, old); got != http.StatusNotFound {
			t.Errorf("past its time it is answered with %d", got)
		}
		if n := r.purge(); n != 1 || r.read(acme, old) != "gone" || r.status(acme, again) != http.StatusOK {
			t.Errorf("%d were removed", n)
		}
		r.drop(acme, "imgbatch_1") // whose uses went with the file
		r.pass(month)
		if n := r.purge(); n != 1 {
			t.Errorf("later %d were removed", n)
		}
		var uses int
		if err := r.db.QueryRow(t.Context(), "SELECT count(*) FROM file_uses").Scan(&uses); err != nil || uses != 0 {
			t.Errorf("%d uses are left (%v)", uses, err)
		}
	})
}

func TestPurgeGoesOnUntilNothingIsLeft(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := open(t, d, "", false)
		for i := range 20 {
			r.put(acme, "imgbatch_1", "image/png", strings.Repeat("x", i))
		}
		r.pass(month)
		if n := r.purge(); n != 1000 {
			t.Errorf("a full batch counts as %d, so the keeper would stop", n)
		}
		if n := r.purge(); n != 4 {
			t.Errorf("then %d were left", n)
		}
	})
}

func TestTwoHoldersPutTheSameAtOnce(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		var all sync.WaitGroup
		for _, holder := range []string{"imgbatch_1", "imgbatch_2", "imgbatch_1", "imgbatch_3"} {
			all.Go(func() {
				if _, err := r.Put(t.Context(), acme, holder, "image/png", strings.NewReader("same")); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		f := r.put(acme, "imgbatch_1", "image/png", "same")
		r.drop(acme, "imgbatch_1")
		r.drop(acme, "imgbatch_2")
		if r.purge() != 0 || r.read(acme, f) != "same" {
			t.Error("the third holder lost it")
		}
		r.drop(acme, "imgbatch_3")
		if r.purge() != 1 {
			t.Error("nobody holds it, and it stays")
		}
	})
}

// A purge comes at the very moment at which a Put has found the bytes of an
// expired file. It must not take them from under it: the claim came first.
func TestPurgeNeverTakesWhatAPutReliesOn(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodHead, http.MethodPut} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				server := newS3(t)
				r := open(t, d, server.address(), false)
				f := r.put(acme, "imgbatch_1", "image/png", "old and new")
				r.pass(month + time.Hour)
				if method == http.MethodPut {
					server.mu.Lock()
					clear(server.objects) // so that it has to be written
					server.mu.Unlock()
				}
				var once sync.Once
				server.after = func(m string) {
					if m == method {
						once.Do(func() { r.purge() })
					}
				}
				r.put(acme, "imgbatch_2", "image/png", "old and new")
				if got := r.read(acme, f); got != "old and new" || r.status(acme, f) != http.StatusOK {
					t.Errorf("the file is %q", got)
				}
			})
		})
	}
}

// While bytes are being removed nobody can claim them.
func TestPurgeHoldsTheRowUntilTheBytesAreGone(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server := newS3(t)
		r := open(t, d, server.address(), false)
		f := r.put(acme, "imgbatch_1", "image/png", "old")
		r.pass(month)
		var claimed error
		server.after = func(method string) {
			if method != http.MethodDelete {
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			_, claimed = r.Put(ctx, acme, "imgbatch_2", "image/png", strings.NewReader("old"))
		}
		r.purge()
		if !errors.Is(claimed, context.DeadlineExceeded) {
			t.Errorf("a claim during the removal: %v", claimed)
		}
		// The claim came through after all, and what it claims is not there:
		// whoever put it was told so, and puts it again.
		server.after = func(string) {}
		r.put(acme, "imgbatch_2", "image/png", "old")
		if got := r.read(acme, f); got != "old" {
			t.Errorf("after the purge it is %q", got)
		}
	})
}

func TestSameContentIsWrittenOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server := newS3(t)
		r := open(t, d, server.address(), false)
		r.put(acme, "imgbatch_1", "image/png", "same")
		r.put(acme, "imgbatch_2", "image/png", "same")
		if got := server.methods(); got != "HEAD PUT HEAD" {
			t.Errorf("the bucket was asked for %s", got)
		}
		// Half a file is none.
		server.mu.Lock()
		for key := range server.objects {
			server.objects[key] = []byte("sa")
		}
		server.mu.Unlock()
		if got := r.read(acme, r.put(acme, "imgbatch_3", "image/png", "same")); got != "same" {
			t.Errorf("half a file was left: %q", got)
		}
	})
}

func TestUnfinishedFilesOfACrashAreRemoved(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := open(t, d, "", false)
		f := r.put(acme, "imgbatch_1", "image/png", "whole")
		stale, fresh := filepath.Join(r.folder, ".spool", "1"), filepath.Join(r.folder, ".spool", "2")
		for _, path := range []string{stale, fresh} {
			if err := os.WriteFile(path, []byte("ha"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		yesterday := time.Now().Add(-24 * time.Hour)
		if err := os.Chtimes(stale, yesterday, yesterday); err != nil {
			t.Fatal(err)
		}
		r.reopen("", false)
		// With PostgreSQL another node may be writing into the same folder.
		want := map[string]int{"sqlite": 0, "postgres": 1}[d.Engine()]
		if n := r.spooled(); n != want || r.read(acme, f) != "whole" {
			t.Errorf("%d spooled files are left, want %d", n, want)
		}
	})
}

func TestBrokenSourceLeavesNothing(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		broken := errors.New("the provider hung up")
		_, err := r.Put(t.Context(), acme, "video_1", "video/mp4", io.MultiReader(strings.NewReader("half"), failing{broken}))
		var rows int
		if scanErr := r.db.QueryRow(t.Context(), "SELECT count(*) FROM files WHERE workspace_id = $1", acme.WorkspaceID).Scan(&rows); scanErr != nil {
			t.Fatal(scanErr)
		}
		if !errors.Is(err, broken) || errors.Is(err, files.ErrFull) || r.spooled() != 0 || rows != 0 {
			t.Errorf("%v, %d spooled files, %d rows", err, r.spooled(), rows)
		}
	})
}

// A job is deleted while its file is on the way to the bucket: a purge waits
// for it, and the next one takes it. Its row is there all the time, as a server
// that is killed at that moment leaves nothing else to find it by.
func TestFileThatIsDroppedDuringItsUploadIsRemoved(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server := newS3(t)
		r := open(t, d, server.address(), false)
		dropped := false
		server.before = func(method string) {
			if method == http.MethodPut && !dropped {
				dropped = true
				r.drop(acme, "video_1")
				if n := r.purge(); n != 0 || r.rows() != 1 {
					t.Errorf("during the upload %d files were removed, and there are %d rows", n, r.rows())
				}
			}
		}
		f, err := r.Put(t.Context(), acme, "video_1", "video/mp4", strings.NewReader("a film"))
		if !errors.Is(err, files.ErrGone) || server.kept() != 1 || r.status(acme, f) != http.StatusNotFound {
			t.Errorf("the upload ended with %v and %d objects, and is answered with %d", err, server.kept(), r.status(acme, f))
		}
		if n := r.purge(); n != 1 || server.kept() != 0 || r.rows() != 0 {
			t.Errorf("%d files were removed, and %d objects are left", n, server.kept())
		}
		// Somebody who has it as well keeps it.
		var began atomic.Bool
		server.before = func(method string) {
			if method == http.MethodPut && !began.Swap(true) {
				r.drop(acme, "video_2")
				r.purge()
				r.put(acme, "video_3", "video/mp4", "a film")
			}
		}
		if f, err = r.Put(t.Context(), acme, "video_2", "video/mp4", strings.NewReader("a film")); !errors.Is(err, files.ErrGone) {
			t.Errorf("the second upload ended with %v", err)
		}
		r.purge()
		if got := r.read(acme, f); got != "a film" || r.status(acme, f) != http.StatusOK {
			t.Errorf("for the other one it is %q", got)
		}
	})
}

// What was cut off may come through later, and is removed when it must have.
func TestWhatAnUploadThatWasCutOffLeftIsRemoved(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server := newS3(t)
		r := open(t, d, server.address(), false)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan struct{})
		server.after = func(method string) {
			if method == http.MethodPut {
				cancel() // the object is there, and nobody hears of it
				<-left
			}
		}
		_, err := r.Put(ctx, acme, "video_1", "video/mp4", strings.NewReader("a film"))
		close(left)
		if err == nil {
			t.Fatal("it was not cut off")
		}
		r.drop(acme, "video_1")
		if n := r.purge(); n != 0 || r.rows() != 1 {
			t.Errorf("%d files were removed at once, and there are %d rows", n, r.rows())
		}
		if err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE file_uses SET holder = $1", ids.Floor("upload/", time.Now().Add(-25*time.Hour)))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if n := r.purge(); n != 1 || server.kept() != 0 || r.rows() != 0 {
			t.Errorf("a day later %d files were removed, and %d objects are left", n, server.kept())
		}
	})
}

// Nothing of a claim that nobody waited for is on the way: its file goes as soon
// as it is let go of.
func TestAClaimThatWasGivenUpDelaysNoPurge(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := open(t, d, newS3(t).address(), false)
		left, leave := context.WithCancel(t.Context())
		leave()
		if _, err := r.Put(left, acme, "video_1", "video/mp4", strings.NewReader("a film")); !errors.Is(err, context.Canceled) {
			t.Fatalf("it ended with %v", err)
		}
		r.put(acme, "video_2", "video/mp4", "a film") // after it, as both are written in their order
		r.drop(acme, "video_1")
		r.drop(acme, "video_2")
		if n := r.purge(); n != 1 || r.rows() != 0 {
			t.Errorf("%d files were removed, and there are %d rows", n, r.rows())
		}
	})
}

func TestUploadThatIsCutOffLeavesNoParts(t *testing.T) {
	t.Parallel()
	server := newS3(t)
	r := open(t, dbtest.Open(t, dbtest.Address(t, "sqlite")), server.address(), false)
	ctx, cancel := context.WithCancel(t.Context())
	var puts atomic.Int64
	server.before = func(method string) {
		if method == http.MethodPut && puts.Add(1) == 3 {
			cancel()
		}
	}
	if _, err := r.Put(ctx, acme, "video_1", "video/mp4", io.LimitReader(letters{}, 70<<20)); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if puts.Load() < 3 || server.unfinished() != 0 || server.kept() != 0 {
		t.Errorf("after %d parts, %d uploads and %d objects are left", puts.Load(), server.unfinished(), server.kept())
	}
	f, err := r.Put(t.Context(), acme, "video_1", "video/mp4", io.LimitReader(letters{}, 70<<20))
	if err != nil || f.Bytes != 70<<20 || r.status(acme, f) != http.StatusOK || server.unfinished() != 0 {
		t.Errorf("the next one: %+v, %v", f, err)
	}
}

// A bucket that accepts connections and says nothing is as good as none.
func TestBucketThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodHead, http.MethodPut, http.MethodGet} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			server := newS3(t)
			r := open(t, dbtest.Open(t, dbtest.Address(t, "sqlite")), server.address(), false)
			f := r.put(acme, "imgbatch_1", "image/png", "old")
			r.patience = 500 * time.Millisecond
			r.reopen(server.address(), false)
			try := func() error {
				_, err := r.Put(t.Context(), acme, "imgbatch_1", "image/png", strings.NewReader("new"))
				return err
			}
			switch method {
			case http.MethodHead:
				server.hang(t)
			case http.MethodPut:
				server.after = func(m string) {
					if m == http.MethodHead {
						server.hang(t)
					}
				}
			case http.MethodGet:
				server.hang(t)
				try = func() error {
					_, err := r.Read(t.Context(), acme, f.SHA256)
					return err
				}
			}
			err := try()
			if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "does not answer") {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// What doctor says of a bucket is what a server would find out.
func TestBucketIsTriedAsItWillBeUsed(t *testing.T) {
	t.Parallel()
	server := newS3(t)
	if err := files.CheckBucket(t.Context(), server.address()); err != nil || server.kept() != 0 {
		t.Errorf("%v, and %d objects are left", err, server.kept())
	}
	for method, want := range map[string]string{http.MethodPut: "write to", http.MethodGet: "read from", http.MethodDelete: "delete from", http.MethodHead: "list"} {
		server.refused = method
		if err := files.CheckBucket(t.Context(), server.address()); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Access Denied") {
			t.Errorf("without %s: %v", method, err)
		}
	}
	server.refused, server.missing = "", true
	if err := files.CheckBucket(t.Context(), server.address()); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("without the bucket: %v", err)
	}
}

// Every object seems to be missing in a bucket that is itself.
func TestMissingBucketIsNoMissingFile(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server := newS3(t)
		r := open(t, d, server.address(), false)
		f, dropped := r.put(acme, "imgbatch_1", "image/png", "kept"), r.put(acme, "imgbatch_2", "image/png", "dropped")
		r.drop(acme, "imgbatch_2")
		server.missing = true
		if got := r.status(acme, f); got != http.StatusServiceUnavailable {
			t.Errorf("a file is answered with %d", got)
		}
		if _, err := r.Read(t.Context(), acme, f.SHA256); err == nil || errors.Is(err, files.ErrGone) {
			t.Errorf("read, it is %v", err)
		}
		err := r.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := r.Purge(t.Context(), tx, 1000)
			return err
		})
		if err == nil {
			t.Error("a purge took the row of a file that may be there")
		}
		server.missing = false
		if n := r.purge(); n != 1 || r.read(acme, dropped) != "gone" || r.status(acme, f) != http.StatusOK {
			t.Errorf("then %d were removed", n)
		}
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Somebody who drops and somebody who claims the same file at the same moment
// end with it held by the one who claimed.
func TestDropBesideAClaimLosesNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := open(t, d, "", false)
		for i := range 20 {
			text := strings.Repeat("y", i)
			f := r.put(acme, "imgbatch_1", "image/png", text)
			var both sync.WaitGroup
			both.Go(func() { r.drop(acme, "imgbatch_1") })
			both.Go(func() {
				if _, err := r.PutBytes(t.Context(), acme, "imgbatch_2", "image/png", []byte(text)); err != nil {
					t.Error(err)
				}
			})
			both.Wait()
			r.purge()
			if got := r.status(acme, f); got != http.StatusOK {
				t.Fatalf("the holder's file is answered with %d", got)
			}
			r.drop(acme, "imgbatch_2")
		}
	})
}

// Not parallel: it counts what the whole process allocates.
func TestLargeFileIsNeverInMemory(t *testing.T) {
	const size = 64 << 20
	r := open(t, dbtest.Open(t, dbtest.Address(t, "sqlite")), "", false)
	server := httptest.NewServer(r.Handler())
	defer server.Close()
	var f files.File
	put := allocated(func() {
		var err error
		if f, err = r.Put(t.Context(), acme, "video_1", "video/mp4", io.LimitReader(letters{}, size)); err != nil || f.Bytes != size {
			t.Fatalf("%+v, %v", f, err)
		}
	})
	url := strings.Replace(r.URL(acme, f, "v.mp4", begin.Add(time.Hour)), "https://api.example.com", server.URL, 1)
	got := allocated(func() {
		res, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		sum := sha256.New()
		if n, err := io.Copy(sum, res.Body); n != size || err != nil || hex.EncodeToString(sum.Sum(nil)) != f.SHA256 {
			t.Errorf("%d bytes came, %v", n, err)
		}
	})
	if put > 4<<20 || got > 4<<20 {
		t.Errorf("of a file with %d MiB, storing it allocated %d KiB and sending it %d KiB", size>>20, put>>10, got>>10)
	}
}

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte('a' + i%26)
	}
	return len(p), nil
}
