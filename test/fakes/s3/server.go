// Package s3 is a minimal S3 server with one bucket: it stores, lists and deletes
// objects.
package s3

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is the server. Its bucket is named bucket.
type Server struct {
	url string

	mu      sync.Mutex
	objects map[string][]byte
}

// New starts a server with an empty bucket until the test ends.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{objects: map[string][]byte{}}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	s.url = h.URL
	return s
}

// Address returns the bucket's URL with a prefix, in the form of files.url.
func (s *Server) Address(prefix string) string {
	return "s3://bucket/" + prefix + "?region=eu-central-1&use_path_style=true&endpoint=" + url.QueryEscape(s.url)
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.Trim(strings.TrimPrefix(r.URL.Path, "/bucket"), "/")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if r.Header.Get("X-Amz-Decoded-Content-Length") != "" {
		body = unchunk(body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	object, there := s.objects[key]
	switch {
	case key == "" && r.Method == http.MethodGet:
		fmt.Fprint(w, "<ListBucketResult><Name>bucket</Name><IsTruncated>false</IsTruncated>")
		for _, name := range slices.Sorted(maps.Keys(s.objects)) {
			if strings.HasPrefix(name, r.URL.Query().Get("prefix")) {
				fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>%d</Size></Contents>", name, len(s.objects[name]))
			}
		}
		fmt.Fprint(w, "</ListBucketResult>")
	case r.Method == http.MethodPut:
		s.objects[key] = body
		w.Header().Set("ETag", `"1"`)
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case !there:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "<Error><Code>NoSuchKey</Code></Error>")
	default:
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
