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

// The SDK takes its credentials from the environment.
func TestMain(m *testing.M) {
	os.Setenv("AWS_ACCESS_KEY_ID", "test")
	os.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	os.Exit(m.Run())
}

// s3 is as much of an S3 server as the store needs: whole objects by path.
type s3 struct {
	*httptest.Server
	// after is called when a request was worked, before it is answered.
	after func(method string)

	mu      sync.Mutex
	objects map[string][]byte
	seen    []string
}

func newS3(t *testing.T) *s3 {
	s := &s3{objects: map[string][]byte{}, after: func(string) {}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// address is what files.url would be.
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
	s.seen = append(s.seen, r.Method)
	object, there := s.objects[key]
	switch r.Method {
	case http.MethodPut:
		if r.Header.Get("X-Amz-Decoded-Content-Length") != "" {
			body = unchunk(body)
		}
		s.objects[key] = body
	case http.MethodDelete:
		delete(s.objects, key)
	}
	s.mu.Unlock()
	s.after(r.Method)
	switch {
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

// unchunk reads a body that the SDK sent in signed chunks.
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
