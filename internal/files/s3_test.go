package files_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMain sets the credentials, which the SDK reads from the environment.
func TestMain(m *testing.M) {
	os.Setenv("AWS_ACCESS_KEY_ID", "test")
	os.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	os.Exit(m.Run())
}

// s3 is a minimal S3 server: one bucket with single and multipart uploads.
type s3 struct {
	*httptest.Server
	// before is called when a request arrives, and after when it is handled but
	// not yet answered.
	before, after func(method string)

	mu      sync.Mutex
	objects map[string][]byte
	parts   map[string]map[string][]byte // of incomplete uploads
	missing bool                         // the bucket doesn't exist
	refused string                       // the method that the credentials don't allow
	hanging chan struct{}                // if not nil, requests hang until it is closed
	seen    []string
}

func newS3(t *testing.T) *s3 {
	s := &s3{objects: map[string][]byte{}, parts: map[string]map[string][]byte{}, before: func(string) {}, after: func(string) {}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// hang leaves every request unanswered until the test ends.
func (s *s3) hang(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hanging = make(chan struct{})
	t.Cleanup(func() { close(s.hanging) })
}

// unfinished returns how many uploads are neither complete nor aborted.
func (s *s3) unfinished() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.parts)
}

// kept returns the number of objects.
func (s *s3) kept() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects)
}

// address returns the value for files.url.
func (s *s3) address() string {
	return "s3://bucket?region=eu-central-1&use_path_style=true&endpoint=" + url.QueryEscape(s.URL)
}

func (s *s3) methods() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.seen, " ")
}

func (s *s3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.URL.Path, "/bucket/")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	hanging, missing, refused := s.hanging, s.missing, s.refused == r.Method
	s.mu.Unlock()
	if hanging != nil {
		<-hanging
		return
	}
	if refused {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, "<Error><Code>AccessDenied</Code></Error>")
		return
	}
	s.before(r.Method)
	if r.Header.Get("X-Amz-Decoded-Content-Length") != "" {
		body = unchunk(body)
	}
	s.mu.Lock()
	s.seen = append(s.seen, r.Method)
	object, there := s.objects[key]
	query := r.URL.Query()
	upload := query.Get("uploadId")
	switch {
	case missing:
	case query.Has("uploads"):
		upload = strconv.Itoa(len(s.seen))
		s.parts[upload] = map[string][]byte{}
	case upload != "" && s.parts[upload] == nil:
		missing = true // S3 uses another code, but rejects it as well
	case r.Method == http.MethodPut && upload != "":
		s.parts[upload][query.Get("partNumber")] = body
	case r.Method == http.MethodPost:
		whole := []byte{}
		for n := 1; s.parts[upload][strconv.Itoa(n)] != nil; n++ {
			whole = append(whole, s.parts[upload][strconv.Itoa(n)]...)
		}
		s.objects[key] = whole
		delete(s.parts, upload)
	case r.Method == http.MethodDelete && upload != "":
		delete(s.parts, upload)
	case r.Method == http.MethodPut:
		s.objects[key] = body
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
	}
	s.mu.Unlock()
	s.after(r.Method)
	switch {
	case missing:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "<Error><Code>NoSuchBucket</Code></Error>")
	case query.Has("uploads"):
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", upload)
	case r.Method == http.MethodPost:
		fmt.Fprint(w, `<CompleteMultipartUploadResult><Bucket>bucket</Bucket><ETag>"1"</ETag></CompleteMultipartUploadResult>`)
	case key == "" && r.Method == http.MethodHead: // the bucket itself
	case r.Method == http.MethodPut:
		w.Header().Set("ETag", `"1"`)
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case !there:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "<Error><Code>NoSuchKey</Code></Error>")
	default:
		for _, name := range []string{"Content-Type", "Content-Disposition"} {
			if v := r.URL.Query().Get("response-" + strings.ToLower(name)); v != "" {
				w.Header().Set(name, v)
			}
		}
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, r, "", time.Unix(1_700_000_000, 0), bytes.NewReader(object))
	}
}

// unchunk decodes a body that the SDK sent in signed chunks.
func unchunk(body []byte) []byte {
	var out []byte
	for r := bufio.NewReader(bytes.NewReader(body)); ; {
		line, err := r.ReadString('\n')
		size, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		n, parseErr := strconv.ParseInt(size, 16, 64)
		if err != nil || parseErr != nil || n == 0 {
			return out
		}
		chunk := make([]byte, n+2)
		if _, err := io.ReadFull(r, chunk); err != nil {
			return out
		}
		out = append(out, chunk[:n]...)
	}
}
