package api_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/test/harness"
)

// uploadForm returns the form of an upload. Fields are names and values in turn.
func uploadForm(t *testing.T, content string, fields ...string) (body, contentType string) {
	t.Helper()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile("file", "requests.jsonl") // before the purpose, as OpenAI's SDK for Node sends it
	if err == nil {
		_, err = io.WriteString(part, content)
	}
	for i := 0; i < len(fields); i += 2 {
		err = errors.Join(err, w.WriteField(fields[i], fields[i+1]))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return form.String(), w.FormDataContentType()
}

func uploadFile(t *testing.T, key, purpose, content string, fields ...string) harness.Request {
	t.Helper()
	body, kind := uploadForm(t, content, append([]string{"purpose", purpose}, fields...)...)
	return harness.Request{Method: "POST", Path: "/v1/files", Key: key, Body: body, Header: http.Header{"Content-Type": {kind}}}
}

func filePath(r *harness.Response) string { return "/v1/files/" + r.Text("id") }

// storedFiles returns the content of all files in the server's directory, also of those being uploaded.
func storedFiles(t *testing.T, s *harness.Server) (out []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(s.Data, "files"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		out = append(out, string(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestUploadedFileIsReturnedAndDeleted(t *testing.T) {
	each(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		key, _ := s.Key(t, w, accounts.Live)
		// More than one encrypted part.
		content := strings.Repeat("The quick brown fox jumps over the lazy dog.\n", 5_000)
		for _, content := range []string{content, ""} {
			f := s.Do(t, uploadFile(t, key, "batch", content)).Want(t, 200, "")
			if f.At("bytes") != float64(len(content)) || f.Text("filename") != "requests.jsonl" || f.Text("purpose") != "batch" || f.Text("status") != "processed" {
				t.Errorf("got %s", f.Body)
			}
			if life := f.At("expires_at").(float64) - f.At("created_at").(float64); life != 30*24*3600 {
				t.Errorf("the file lives for %v s, want 30 days", life)
			}
			got := s.Do(t, harness.Request{Method: "GET", Path: filePath(f) + "/content", Key: key}).Want(t, 200, "")
			if string(got.Body) != content {
				t.Errorf("got %d bytes back, want the %d that were uploaded", len(got.Body), len(content))
			}
			for _, stored := range storedFiles(t, s) {
				if strings.Contains(stored, "brown fox") {
					t.Error("the file is stored unencrypted")
				}
			}
			if list := s.Do(t, harness.Request{Method: "GET", Path: "/v1/files?purpose=batch", Key: key}).Want(t, 200, ""); list.Text("data.0.id") != f.Text("id") {
				t.Errorf("got the list %s", list.Body)
			}
			if list := s.Do(t, harness.Request{Method: "GET", Path: "/v1/files?purpose=batch_output", Key: key}).Want(t, 200, ""); list.At("data.0") != nil {
				t.Errorf("the list of outputs has %s", list.Body)
			}
			s.Do(t, harness.Request{Method: "DELETE", Path: filePath(f), Key: key}).Want(t, 200, "")
			s.Do(t, harness.Request{Method: "GET", Path: filePath(f), Key: key}).Want(t, 404, "not_found")
			s.Do(t, harness.Request{Method: "GET", Path: filePath(f) + "/content", Key: key}).Want(t, 404, "not_found")
		}
		// Retries of the same upload get the same file, whatever their boundary.
		request := uploadFile(t, key, "user_data", "x")
		request.Header.Set("Idempotency-Key", "k")
		first := s.Do(t, request).Want(t, 200, "")
		again := uploadFile(t, key, "user_data", "x")
		again.Header.Set("Idempotency-Key", "k")
		if second := s.Do(t, again).Want(t, 200, ""); second.Text("id") != first.Text("id") || second.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("the retry got %s, want %s", second.Body, first.Body)
		}
		other := uploadFile(t, key, "user_data", "y")
		other.Header.Set("Idempotency-Key", "k")
		s.Do(t, other).Want(t, 409, "idempotency_key_reused")
	})
}

func TestUploadsAreChecked(t *testing.T) {
	eachEngine(t, sqlite, func(t *testing.T, engine string) {
		cfg := harness.Config(t, engine)
		cfg.Limits.FileBytes = config.Size(64 << 10)
		cfg.Limits.StoredBytes = config.Size(1 << 20)
		s := harness.Start(t, cfg, harness.NewClock())
		w := s.Workspace(t, "acme")
		key, _ := s.Key(t, w, accounts.Live)
		for name, c := range map[string]struct {
			purpose string
			content string
			fields  []string
			status  int
			code    string
			param   string
		}{
			"no purpose":          {"", "x", nil, 400, "missing_parameter", "purpose"},
			"unknown purpose":     {"fine-tune", "x", nil, 400, "invalid_parameter", "purpose"},
			"purpose of results":  {"batch_output", "x", nil, 400, "invalid_parameter", "purpose"},
			"too large":           {"batch", strings.Repeat("x", 64<<10+1), nil, 413, "request_too_large", "file"},
			"much too large":      {"batch", strings.Repeat("x", 1<<20), nil, 413, "request_too_large", "file"},
			"unknown field":       {"batch", "x", []string{"colour", "red"}, 400, "unknown_parameter", "colour"},
			"expires too early":   {"batch", "x", []string{"expires_after[anchor]", "created_at", "expires_after[seconds]", "60"}, 400, "invalid_parameter", "expires_after.seconds"},
			"expires too late":    {"batch", "x", []string{"expires_after[anchor]", "created_at", "expires_after[seconds]", "99999999"}, 400, "invalid_parameter", "expires_after.seconds"},
			"expires after what":  {"batch", "x", []string{"expires_after[seconds]", "3600"}, 400, "invalid_parameter", "expires_after.anchor"},
			"expires at some day": {"batch", "x", []string{"expires_after[anchor]", "created_at", "expires_after[seconds]", "soon"}, 400, "invalid_parameter", "expires_after[seconds]"},
			"largest":             {"batch", strings.Repeat("x", 64<<10), nil, 200, "", ""},
		} {
			r := s.Do(t, uploadFile(t, key, c.purpose, c.content, c.fields...)).Want(t, c.status, c.code)
			if c.param != "" && r.Text("error.param") != c.param {
				t.Errorf("%s: got %s, want the param %s", name, r.Body, c.param)
			}
		}
		for name, r := range map[string]harness.Request{
			"no form":     {Body: map[string]any{"purpose": "batch"}},
			"no boundary": {Body: "x", Header: http.Header{"Content-Type": {"multipart/form-data"}}},
		} {
			r.Method, r.Path, r.Key = "POST", "/v1/files", key
			if got := s.Do(t, r); got.Status != 415 {
				t.Errorf("%s: got %d %s", name, got.Status, got.Body)
			}
		}
		// The quota is exact: 64 KiB are stored, so 15 more of them fit into a MiB.
		for range 15 {
			s.Do(t, uploadFile(t, key, "batch", strings.Repeat("x", 64<<10))).Want(t, 200, "")
		}
		r := s.Do(t, uploadFile(t, key, "batch", "x")).Want(t, 409, "limit_reached")
		if r.Header.Get("Connection") == "close" {
			t.Error("the connection was closed although the body was read")
		}
		if n := len(storedFiles(t, s)); n != 16 {
			t.Errorf("%d files are on the disk, want the 16 that were accepted", n)
		}
		noScope, _ := s.Key(t, w, accounts.Live, "files:read")
		s.Do(t, uploadFile(t, noScope, "batch", "x")).Want(t, 403, "insufficient_scope")
	})
}

func TestInterruptedUploadLeavesNothing(t *testing.T) {
	each(t, sqlite, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		key, _ := s.Key(t, w, accounts.Live)
		body, kind := uploadForm(t, strings.Repeat("x", 1<<20), "purpose", "batch")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		sent, rest := io.Pipe()
		req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/v1/files", sent)
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = int64(len(body))
		req.Header.Set("Content-Type", kind)
		req.Header.Set("Authorization", "Bearer "+key)
		failed := make(chan struct{})
		go func() {
			defer close(failed)
			if res, err := http.DefaultTransport.RoundTrip(req); err == nil {
				_ = res.Body.Close()
				t.Error("half of an upload succeeded")
			}
		}()
		if _, err := io.WriteString(rest, body[:len(body)/2]); err != nil {
			t.Fatal(err)
		}
		s.Eventually(t, func() bool { return len(storedFiles(t, s)) > 0 }) // it is being spooled
		cancel()
		_ = rest.CloseWithError(context.Canceled) // net/http may wait for the rest of the body otherwise
		<-failed
		s.Eventually(t, func() bool { return len(storedFiles(t, s)) == 0 })
		if list := s.Do(t, harness.Request{Method: "GET", Path: "/v1/files", Key: key}).Want(t, 200, ""); list.At("data.0") != nil {
			t.Errorf("got the file %s", list.Body)
		}
	})
}

func TestExpiredFilesArePurged(t *testing.T) {
	each(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		key, _ := s.Key(t, w, accounts.Live)
		soon := s.Do(t, uploadFile(t, key, "batch", "soon", "expires_after[anchor]", "created_at", "expires_after[seconds]", "3600")).Want(t, 200, "")
		later := s.Do(t, uploadFile(t, key, "batch", "later")).Want(t, 200, "")
		s.Clock.Turn(time.Hour + time.Second)
		s.Do(t, harness.Request{Method: "GET", Path: filePath(soon), Key: key}).Want(t, 404, "not_found")
		s.Do(t, harness.Request{Method: "GET", Path: filePath(soon) + "/content", Key: key}).Want(t, 404, "not_found")
		s.Do(t, harness.Request{Method: "GET", Path: filePath(later) + "/content", Key: key}).Want(t, 200, "")
		if err := s.App.RunRetention(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(storedFiles(t, s)); n != 1 {
			t.Errorf("%d files are on the disk after the purge, want 1", n)
		}
	})
}

func TestKeysInUploadsAreRevoked(t *testing.T) {
	each(t, sqlite, func(t *testing.T, s *harness.Server) {
		c := newClient(t, s, accounts.Live)
		c.setLeakPolicy(t, accounts.LeaksRevoked)
		leaked, _ := c.spare(t)
		// Across the boundary of two reads.
		content := strings.Repeat("x", 64<<10-200) + leaked + strings.Repeat(" x", 64<<10)
		c.Do(t, uploadFile(t, c.key, "batch", content)).Want(t, 200, "")
		c.ends(t, leaked)
		c.Do(t, models(c.key)).Want(t, 200, "")
	})
}
