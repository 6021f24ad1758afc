// Package s3 is a minimal S3 server with one bucket: it stores objects, in one
// request or in parts, and lists and deletes them.
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
	*httptest.Server
	// Before is called when a request arrives, and After when it is handled but not
	// yet answered.
	Before, After func(method string)

	mu      sync.Mutex
	objects map[string][]byte
	parts   map[string]map[string][]byte // of incomplete uploads
	missing bool
	refused string
	hanging chan struct{}
	seen    []string
}

// New starts a server with an empty bucket until the test ends.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{objects: map[string][]byte{}, parts: map[string]map[string][]byte{}, Before: func(string) {}, After: func(string) {}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// Address returns the bucket's URL with a prefix or none, in the form of files.url.
func (s *Server) Address(prefix string) string {
	if prefix != "" {
		prefix = "/" + prefix
	}
	return "s3://bucket" + prefix + "?region=eu-central-1&use_path_style=true&endpoint=" + url.QueryEscape(s.URL)
}

// Hang leaves every request unanswered until the test ends.
func (s *Server) Hang(t testing.TB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hanging = make(chan struct{})
	t.Cleanup(func() { close(s.hanging) })
}

// SetMissing makes the bucket not exist, or exist again.
func (s *Server) SetMissing(missing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missing = missing
}

// Refuse sets the method that the credentials don't allow; empty allows all.
func (s *Server) Refuse(method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = method
}

// Objects returns the number of objects.
func (s *Server) Objects() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects)
}

// Clear deletes all objects.
func (s *Server) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.objects)
}

// Overwrite replaces the content of every object.
func (s *Server) Overwrite(content string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.objects {
		s.objects[key] = []byte(content)
	}
}

// Uploads returns how many uploads in parts are neither complete nor aborted.
func (s *Server) Uploads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.parts)
}

// Methods returns the methods of all requests so far, separated by spaces.
func (s *Server) Methods() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.seen, " ")
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	hanging, refused := s.hanging, s.refused == r.Method
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
	s.Before(r.Method)
	if r.Header.Get("X-Amz-Decoded-Content-Length") != "" {
		body = unchunk(body)
	}
	respond := s.handle(r, body)
	s.After(r.Method)
	respond(w)
}

// handle changes the bucket and returns the response.
func (s *Server) handle(r *http.Request, body []byte) func(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, r.Method)
	key := strings.Trim(strings.TrimPrefix(r.URL.Path, "/bucket"), "/")
	query := r.URL.Query()
	object, there := s.objects[key]
	switch upload := query.Get("uploadId"); {
	case s.missing, upload != "" && s.parts[upload] == nil: // S3 has another code for an unknown upload, but rejects it as well
		return fails(http.StatusNotFound, "NoSuchBucket")
	case query.Has("uploads"):
		upload = strconv.Itoa(len(s.seen))
		s.parts[upload] = map[string][]byte{}
		return sends("<InitiateMultipartUploadResult><UploadId>" + upload + "</UploadId></InitiateMultipartUploadResult>")
	case upload != "":
		return s.handlePart(r, key, body)
	case key == "" && r.Method == http.MethodHead: // the bucket itself
		return sends("")
	case key == "" && r.Method == http.MethodGet:
		return sends(s.list(query.Get("prefix")))
	case r.Method == http.MethodPut:
		s.objects[key] = body
		return stored
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		return deleted
	case !there:
		return fails(http.StatusNotFound, "NoSuchKey")
	}
	return func(w http.ResponseWriter) {
		for _, name := range []string{"Content-Type", "Content-Disposition"} {
			if v := query.Get("response-" + strings.ToLower(name)); v != "" {
				w.Header().Set(name, v)
			}
		}
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, r, "", time.Unix(1_700_000_000, 0), bytes.NewReader(object))
	}
}

// handlePart continues, completes or aborts an upload in parts.
func (s *Server) handlePart(r *http.Request, key string, body []byte) func(w http.ResponseWriter) {
	upload := r.URL.Query().Get("uploadId")
	switch r.Method {
	case http.MethodPut:
		s.parts[upload][r.URL.Query().Get("partNumber")] = body
		return stored
	case http.MethodDelete:
		delete(s.parts, upload)
		return deleted
	}
	whole := []byte{}
	for n := 1; s.parts[upload][strconv.Itoa(n)] != nil; n++ {
		whole = append(whole, s.parts[upload][strconv.Itoa(n)]...)
	}
	s.objects[key] = whole
	delete(s.parts, upload)
	return sends(`<CompleteMultipartUploadResult><Bucket>bucket</Bucket><ETag>"1"</ETag></CompleteMultipartUploadResult>`)
}

func (s *Server) list(prefix string) string {
	var out strings.Builder
	out.WriteString("<ListBucketResult><Name>bucket</Name><IsTruncated>false</IsTruncated>")
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		if strings.HasPrefix(name, prefix) {
			fmt.Fprintf(&out, "<Contents><Key>%s</Key><Size>%d</Size></Contents>", name, len(s.objects[name]))
		}
	}
	return out.String() + "</ListBucketResult>"
}

func sends(text string) func(w http.ResponseWriter) {
	return func(w http.ResponseWriter) { fmt.Fprint(w, text) }
}

func fails(status int, code string) func(w http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
	}
}

func stored(w http.ResponseWriter) { w.Header().Set("ETag", `"1"`) }

func deleted(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }

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
