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

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/ids"
	"turnpike/test/fakes/s3"
)

var (
	acme  = accounts.Tenant{WorkspaceID: "ws_1", Environment: "live"}
	begin = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
)

const month = 30 * 24 * time.Hour

// rig is a store with a manual clock.
type rig struct {
	*files.Store
	t         *testing.T
	db        *db.DB
	directory string

	timeout time.Duration

	mu  sync.Mutex
	now time.Time
}

// open opens a store with the bucket at address, or with a directory if it is
// empty.
func open(t *testing.T, d *db.DB, address string, fromBucket bool) *rig {
	t.Helper()
	r := &rig{t: t, db: d, directory: filepath.Join(t.TempDir(), "files"), now: begin}
	r.reopen(address, fromBucket)
	return r
}

func (r *rig) reopen(address string, fromBucket bool) {
	r.t.Helper()
	s, err := files.Open(r.t.Context(), files.Options{DB: r.db, URL: address, Dir: r.directory, Key: []byte("the key of the tests"),
		PublicURL: "https://api.example.com", Retention: month, FromBucket: fromBucket, Timeout: r.timeout, Now: r.clock})
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

func (r *rig) advance(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

func (r *rig) put(o accounts.Tenant, holder, contentType, text string) files.File {
	r.t.Helper()
	f, err := r.Put(r.t.Context(), o, holder, contentType, strings.NewReader(text))
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

func (r *rig) drop(o accounts.Tenant, holder string) {
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

// rows returns the number of known files.
func (r *rig) rows() (n int) {
	r.t.Helper()
	if err := r.db.QueryRow(context.Background(), "SELECT count(*) FROM files").Scan(&n); err != nil {
		r.t.Error(err)
	}
	return n
}

// read returns the content of a file, or "gone".
func (r *rig) read(o accounts.Tenant, f files.File) string {
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

// fetch requests a URL without authentication.
func (r *rig) fetch(method, url string, headers ...string) *httptest.ResponseRecorder {
	r.t.Helper()
	req := httptest.NewRequest(method, url, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	handler(r.Store).ServeHTTP(w, req)
	return w
}

func (r *rig) status(o accounts.Tenant, f files.File) int {
	r.t.Helper()
	return r.fetch(http.MethodGet, r.URL(o, f, "a.png", r.clock().Add(time.Hour))).Code
}

func (r *rig) spooled() int {
	r.t.Helper()
	list, err := os.ReadDir(filepath.Join(r.directory, ".spool"))
	if err != nil {
		r.t.Fatal(err)
	}
	return len(list)
}

// everywhere runs a test with every combination of database and storage.
func everywhere(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	for name, address := range map[string]func(t *testing.T) string{
		"directory": func(*testing.T) string { return "" },
		"s3":        func(t *testing.T) string { return s3.New(t).Address("") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) { test(t, open(t, d, address(t), false)) })
		})
	}
}

func TestFileIsStoredOncePerTenantUnderItsHash(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		sum := sha256.Sum256([]byte("a picture"))
		want := files.File{SHA256: hex.EncodeToString(sum[:]), Bytes: 9, ContentType: "image/png"}
		if got := r.put(acme, "imgbatch_1", "image/png", "a picture"); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		bytes, err := r.PutBytes(t.Context(), acme, "imgbatch_2", "image/png", []byte("a picture"))
		if err != nil || bytes != want || r.read(acme, want) != "a picture" {
			t.Errorf("from memory it is %+v (%v), read %q", bytes, err, r.read(acme, want))
		}
		for _, other := range []accounts.Tenant{{WorkspaceID: "ws_2", Environment: "live"}, {WorkspaceID: "ws_1", Environment: "test"}} {
			if got := r.read(other, want); got != "gone" {
				t.Errorf("%v reads %q", other, got)
			}
			if got := r.status(other, want); got != http.StatusNotFound {
				t.Errorf("%v: got status %d, want 404", other, got)
			}
		}
		if n := r.spooled(); n != 0 {
			t.Errorf("got %d spooled files, want 0", n)
		}
		empty, err := r.PutBytes(t.Context(), acme, "imgbatch_1", "", nil)
		if err != nil || empty.Bytes != 0 || empty.ContentType != "application/octet-stream" || r.status(acme, empty) != http.StatusOK {
			t.Errorf("an empty file is %+v (%v)", empty, err)
		}
	})
}

func TestDropKeepsFilesWithOtherHolders(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		shared := r.put(acme, "imgbatch_1", "image/png", "shared")
		r.put(acme, "imgbatch_2", "image/png", "shared")
		own := r.put(acme, "imgbatch_1", "image/png", "own")
		r.drop(accounts.Tenant{WorkspaceID: "ws_2", Environment: "live"}, "imgbatch_1")
		if r.status(acme, own) != http.StatusOK {
			t.Error("a drop by another tenant deleted the file")
		}
		r.drop(acme, "imgbatch_1")
		if got := r.status(acme, own); got != http.StatusNotFound {
			t.Errorf("dropped file: got status %d, want 404", got)
		}
		if n := r.purge(); n != 1 {
			t.Errorf("got %d files purged, want 1", n)
		}
		if r.status(acme, shared) != http.StatusOK || r.read(acme, own) != "gone" {
			t.Errorf("after the purge: got status %d for the shared file and %q for the other, want 200 and gone", r.status(acme, shared), r.read(acme, own))
		}
		r.drop(acme, "imgbatch_2")
		r.purge()
		if r.read(acme, shared) != "gone" {
			t.Error("the file still exists without a holder")
		}
		// The file can be stored again.
		r.put(acme, "imgbatch_3", "image/png", "shared")
		if r.status(acme, shared) != http.StatusOK || r.read(acme, shared) != "shared" {
			t.Error("the file is missing after it was stored again")
		}
	})
}

func TestFileExpiresUnlessItIsPutAgain(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		old := r.put(acme, "imgbatch_1", "image/png", "old")
		again := r.put(acme, "imgbatch_1", "image/png", "again")
		r.advance(month - time.Second)
		if r.purge() != 0 || r.status(acme, old) != http.StatusOK {
			t.Error("the file was purged before it expired")
		}
		r.put(acme, "imgbatch_2", "image/png", "again")
		r.advance(time.Second)
		if got := r.status(acme, old); got != http.StatusNotFound {
			t.Errorf("expired file: got status %d, want 404", got)
		}
		if n := r.purge(); n != 1 || r.read(acme, old) != "gone" || r.status(acme, again) != http.StatusOK {
			t.Errorf("got %d files purged, want 1: only the expired one", n)
		}
		r.drop(acme, "imgbatch_1") // its uses were deleted with the file
		r.advance(month)
		if n := r.purge(); n != 1 {
			t.Errorf("got %d files purged a month later, want 1", n)
		}
		var uses int
		if err := r.db.QueryRow(t.Context(), "SELECT count(*) FROM file_uses").Scan(&uses); err != nil || uses != 0 {
			t.Errorf("got %d uses, want 0 (%v)", uses, err)
		}
	})
}

func TestFullPurgeBatchAsksForAnother(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := open(t, d, "", false)
		for i := range 20 {
			r.put(acme, "imgbatch_1", "image/png", strings.Repeat("x", i))
		}
		r.advance(month)
		if n := r.purge(); n != 1000 {
			t.Errorf("got %d for a full batch, want the limit of 1000", n)
		}
		if n := r.purge(); n != 4 {
			t.Errorf("got %d in the second batch, want 4", n)
		}
	})
}

func TestConcurrentPutsOfTheSameFileKeepEveryHolder(t *testing.T) {
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
			t.Error("the purge deleted the file of the third holder")
		}
		r.drop(acme, "imgbatch_3")
		if r.purge() != 1 {
			t.Error("the purge kept a file without holders")
		}
	})
}

// The purge runs right after Put found the bytes of an expired file. The claim
// came first.
func TestPurgeKeepsBytesThatAPutFound(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodHead, http.MethodPut} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				server := s3.New(t)
				r := open(t, d, server.Address(""), false)
				f := r.put(acme, "imgbatch_1", "image/png", "old and new")
				r.advance(month + time.Hour)
				if method == http.MethodPut {
					server.Clear() // so that Put has to upload
				}
				var once sync.Once
				server.After = func(m string) {
					if m == method {
						once.Do(func() { r.purge() })
					}
				}
				r.put(acme, "imgbatch_2", "image/png", "old and new")
				if got := r.read(acme, f); got != "old and new" || r.status(acme, f) != http.StatusOK {
					t.Errorf("got %q, want the new content", got)
				}
			})
		})
	}
}

func TestPurgeLocksTheRowUntilTheBytesAreDeleted(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server := s3.New(t)
		r := open(t, d, server.Address(""), false)
		f := r.put(acme, "imgbatch_1", "image/png", "old")
		r.advance(month)
		var claimed error
		server.After = func(method string) {
			if method != http.MethodDelete {
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			_, claimed = r.Put(ctx, acme, "imgbatch_2", "image/png", strings.NewReader("old"))
		}
		r.purge()
		if !errors.Is(claimed, context.DeadlineExceeded) {
			t.Errorf("claim during the purge: got %v, want it to wait", claimed)
		}
		// The claim was committed later, without its bytes. Put failed, so the job
		// retries.
		server.After = func(string) {}
		r.put(acme, "imgbatch_2", "image/png", "old")
		if got := r.read(acme, f); got != "old" {
			t.Errorf("after the purge: got %q, want old", got)
		}
	})
}

func TestSameContentIsWrittenOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server := s3.New(t)
		r := open(t, d, server.Address(""), false)
		r.put(acme, "imgbatch_1", "image/png", "same")
		r.put(acme, "imgbatch_2", "image/png", "same")
		if got := server.Methods(); got != "HEAD PUT HEAD" {
			t.Errorf("got requests %s, want HEAD PUT HEAD", got)
		}
		// An incomplete object is replaced.
		server.Overwrite("sa")
		if got := r.read(acme, r.put(acme, "imgbatch_3", "image/png", "same")); got != "same" {
			t.Errorf("got %q, want the complete file", got)
		}
	})
}

func TestSpooledFilesOfACrashAreDeleted(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := open(t, d, "", false)
		f := r.put(acme, "imgbatch_1", "image/png", "whole")
		stale, fresh := filepath.Join(r.directory, ".spool", "1"), filepath.Join(r.directory, ".spool", "2")
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
		// With PostgreSQL, another node may spool into the same directory.
		want := map[string]int{"sqlite": 0, "postgres": 1}[d.Engine()]
		if n := r.spooled(); n != want || r.read(acme, f) != "whole" {
			t.Errorf("got %d spooled files, want %d", n, want)
		}
	})
}

func TestFailedReadLeavesNoFile(t *testing.T) {
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

// A job is deleted during its upload. The purge skips the file, and the next
// one deletes it. The row stays, because a killed server leaves no other trace
// of the object.
func TestFileDroppedDuringItsUploadIsPurged(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server := s3.New(t)
		r := open(t, d, server.Address(""), false)
		dropped := false
		server.Before = func(method string) {
			if method == http.MethodPut && !dropped {
				dropped = true
				r.drop(acme, "video_1")
				if n := r.purge(); n != 0 || r.rows() != 1 {
					t.Errorf("during the upload: got %d files purged and %d rows, want 0 and 1", n, r.rows())
				}
			}
		}
		f, err := r.Put(t.Context(), acme, "video_1", "video/mp4", strings.NewReader("a film"))
		if !errors.Is(err, files.ErrGone) || server.Objects() != 1 || r.status(acme, f) != http.StatusNotFound {
			t.Errorf("got error %v, %d objects and status %d, want ErrGone, 1 and 404", err, server.Objects(), r.status(acme, f))
		}
		if n := r.purge(); n != 1 || server.Objects() != 0 || r.rows() != 0 {
			t.Errorf("got %d files purged and %d objects left, want 1 and 0", n, server.Objects())
		}
		// Another holder of the same file keeps it.
		var began atomic.Bool
		server.Before = func(method string) {
			if method == http.MethodPut && !began.Swap(true) {
				r.drop(acme, "video_2")
				r.purge()
				r.put(acme, "video_3", "video/mp4", "a film")
			}
		}
		if f, err = r.Put(t.Context(), acme, "video_2", "video/mp4", strings.NewReader("a film")); !errors.Is(err, files.ErrGone) {
			t.Errorf("second upload: got %v, want ErrGone", err)
		}
		r.purge()
		if got := r.read(acme, f); got != "a film" || r.status(acme, f) != http.StatusOK {
			t.Errorf("other holder: got %q, want the file", got)
		}
	})
}

// A canceled upload may still complete, so its file stays for uploadLife.
func TestCanceledUploadIsPurgedAfterADay(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server := s3.New(t)
		r := open(t, d, server.Address(""), false)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan struct{})
		server.After = func(method string) {
			if method == http.MethodPut {
				cancel() // the object is stored, but Put doesn't learn of it
				<-left
			}
		}
		_, err := r.Put(ctx, acme, "video_1", "video/mp4", strings.NewReader("a film"))
		close(left)
		if err == nil {
			t.Fatal("the upload was not canceled")
		}
		r.drop(acme, "video_1")
		if n := r.purge(); n != 0 || r.rows() != 1 {
			t.Errorf("got %d files purged immediately and %d rows, want 0 and 1", n, r.rows())
		}
		if err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE file_uses SET holder = $1", ids.Floor("upload/", time.Now().Add(-25*time.Hour)))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if n := r.purge(); n != 1 || server.Objects() != 0 || r.rows() != 0 {
			t.Errorf("a day later: got %d files purged and %d objects left, want 1 and 0", n, server.Objects())
		}
	})
}

// A claim that failed has no upload, so its file can be purged once it is
// dropped.
func TestCanceledClaimDoesNotDelayThePurge(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := open(t, d, s3.New(t).Address(""), false)
		left, leave := context.WithCancel(t.Context())
		leave()
		if _, err := r.Put(left, acme, "video_1", "video/mp4", strings.NewReader("a film")); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want context.Canceled", err)
		}
		r.put(acme, "video_2", "video/mp4", "a film") // after the first claim: claims commit in order
		r.drop(acme, "video_1")
		r.drop(acme, "video_2")
		if n := r.purge(); n != 1 || r.rows() != 0 {
			t.Errorf("got %d files purged and %d rows, want 1 and 0", n, r.rows())
		}
	})
}

func TestCanceledMultipartUploadLeavesNoParts(t *testing.T) {
	t.Parallel()
	server := s3.New(t)
	r := open(t, dbtest.Open(t, dbtest.Address(t, "sqlite")), server.Address(""), false)
	ctx, cancel := context.WithCancel(t.Context())
	var puts atomic.Int64
	server.Before = func(method string) {
		if method == http.MethodPut && puts.Add(1) == 3 {
			cancel()
		}
	}
	if _, err := r.Put(ctx, acme, "video_1", "video/mp4", io.LimitReader(letters{}, 70<<20)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if puts.Load() < 3 || server.Uploads() != 0 || server.Objects() != 0 {
		t.Errorf("after %d parts: got %d uploads and %d objects, want none", puts.Load(), server.Uploads(), server.Objects())
	}
	f, err := r.Put(t.Context(), acme, "video_1", "video/mp4", io.LimitReader(letters{}, 70<<20))
	if err != nil || f.Bytes != 70<<20 || r.status(acme, f) != http.StatusOK || server.Uploads() != 0 {
		t.Errorf("next upload: %+v, %v", f, err)
	}
}

func TestUnresponsiveBucketTimesOut(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodHead, http.MethodPut, http.MethodGet} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			server := s3.New(t)
			r := open(t, dbtest.Open(t, dbtest.Address(t, "sqlite")), server.Address(""), false)
			f := r.put(acme, "imgbatch_1", "image/png", "old")
			r.timeout = 500 * time.Millisecond
			r.reopen(server.Address(""), false)
			try := func() error {
				_, err := r.Put(t.Context(), acme, "imgbatch_1", "image/png", strings.NewReader("new"))
				return err
			}
			switch method {
			case http.MethodHead:
				server.Hang(t)
			case http.MethodPut:
				server.After = func(m string) {
					if m == http.MethodHead {
						server.Hang(t)
					}
				}
			case http.MethodGet:
				server.Hang(t)
				try = func() error {
					_, err := r.Read(t.Context(), acme, f.SHA256)
					return err
				}
			}
			err := try()
			if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "does not answer") {
				t.Errorf("got %v, want an unresponsive bucket", err)
			}
		})
	}
}

func TestCheckBucketFindsEveryMissingPermission(t *testing.T) {
	t.Parallel()
	server := s3.New(t)
	if err := files.CheckBucket(t.Context(), server.Address("")); err != nil || server.Objects() != 0 {
		t.Errorf("%v, and %d objects are left", err, server.Objects())
	}
	for method, want := range map[string]string{http.MethodPut: "write to", http.MethodGet: "read from", http.MethodDelete: "delete from", http.MethodHead: "list"} {
		server.Refuse(method)
		if err := files.CheckBucket(t.Context(), server.Address("")); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Access Denied") {
			t.Errorf("without %s: %v", method, err)
		}
	}
	server.Refuse("")
	server.SetMissing(true)
	if err := files.CheckBucket(t.Context(), server.Address("")); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("without the bucket: %v", err)
	}
}

// In a missing bucket every object seems to be missing.
func TestMissingBucketIsNotReportedAsMissingFile(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server := s3.New(t)
		r := open(t, d, server.Address(""), false)
		f, dropped := r.put(acme, "imgbatch_1", "image/png", "kept"), r.put(acme, "imgbatch_2", "image/png", "dropped")
		r.drop(acme, "imgbatch_2")
		server.SetMissing(true)
		if got := r.status(acme, f); got != http.StatusServiceUnavailable {
			t.Errorf("got status %d, want 503", got)
		}
		if _, err := r.Read(t.Context(), acme, f.SHA256); err == nil || errors.Is(err, files.ErrGone) {
			t.Errorf("read: got %v, want an error other than ErrGone", err)
		}
		err := r.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := r.Purge(t.Context(), tx, 1000)
			return err
		})
		if err == nil {
			t.Error("the purge deleted the row of a file that may still exist")
		}
		server.SetMissing(false)
		if n := r.purge(); n != 1 || r.read(acme, dropped) != "gone" || r.status(acme, f) != http.StatusOK {
			t.Errorf("got %d files purged, want 1", n)
		}
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// The file stays with the holder that claimed it.
func TestDropDuringAClaimKeepsTheFile(t *testing.T) {
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
				t.Fatalf("got status %d, want 200", got)
			}
			r.drop(acme, "imgbatch_2")
		}
	})
}

// Not parallel: it measures the allocations of the whole process.
func TestLargeFileIsNotBufferedInMemory(t *testing.T) {
	const size = 64 << 20
	r := open(t, dbtest.Open(t, dbtest.Address(t, "sqlite")), "", false)
	server := httptest.NewServer(handler(r.Store))
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
			t.Errorf("got %d bytes, %v", n, err)
		}
	})
	if put > 4<<20 || got > 4<<20 {
		t.Errorf("a file of %d MiB: storing it allocated %d KiB and sending it %d KiB, want at most 4096", size>>20, put>>10, got>>10)
	}
}

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte('a' + i%26)
	}
	return len(p), nil
}

// handler serves signed URLs with plain text errors.
func handler(s *files.Store) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := s.Serve(w, r)
		if err == nil {
			return
		}
		f, ok := fault.As(err)
		if !ok {
			f = fault.New(fault.StorageUnavailable, "The file cannot be read at the moment. Retry shortly.")
		}
		http.Error(w, string(f.Code)+": "+f.Message, fault.FamilyOf(f.Code).Status)
	})
}
