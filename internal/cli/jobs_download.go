package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

type downloadOptions struct {
	directory string
	force     bool // overwrite files
}

type jobFile struct {
	request string // of a batch, or empty
	url     string
	name    string
	size    int64  // -1 if unknown
	sha256  string // empty if unknown
}

func jobFiles(j object) (list []jobFile, err error) {
	for _, r := range j.list("results") {
		for _, image := range r.list("images") {
			list = append(list, jobFile{request: r.str("custom_id"), url: image.str("url"), size: image.num("bytes"), sha256: image.str("sha256")})
		}
	}
	if link := j.str("url"); link != "" {
		list = append(list, jobFile{url: link, size: -1})
	}
	for i := range list {
		if err := list[i].parseURL(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// parseURL sets the name of the file, and its checksum, which precedes the name in
// links to a server. It rejects names that lead out of the directory.
func (f *jobFile) parseURL() error {
	u, err := url.Parse(f.url)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q is not the URL of a file", visible(f.url))
	}
	f.name = path.Base(u.Path)
	if !filepath.IsLocal(f.name) || f.name == "." || strings.ContainsAny(f.name, `/\:`) || visible(f.name) != f.name {
		return fmt.Errorf("the server returned an unsafe file name: %q", f.name)
	}
	if sum := path.Base(path.Dir(u.Path)); f.sha256 == "" && len(sum) == hex.EncodedLen(sha256.Size) {
		f.sha256 = sum
	}
	return nil
}

// openFile requests a link. It doesn't send the key, because the link may lead
// to another server, and it has no timeout, because a file may be large.
func (c *apiClient) openFile(ctx context.Context, link string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, link, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "turnpike-cli/"+version)
	host := req.URL.Scheme + "://" + req.URL.Host
	res, err := (&http.Client{Transport: c.http.Transport}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w; links lead to the server's TURNPIKE_PUBLIC_URL", connectionError(host, err))
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10)) // errorResponse handles a part
	return nil, errorResponse(host, res, text)
}

func (e *env) download(ctx context.Context, c *apiClient, j object, d downloadOptions) error {
	list, err := jobFiles(j)
	if err != nil {
		return err
	}
	out := e.out
	if e.asJSON {
		out = e.err
	}
	if len(list) == 0 {
		fmt.Fprintln(out, "There are no files to save.")
		return nil
	}
	if err := os.MkdirAll(d.directory, 0o755); err != nil {
		return err
	}
	// Check all names first: the download may take hours.
	missing := make([]jobFile, 0, len(list))
	var total int64
	for _, f := range list {
		exists, err := f.exists(d)
		if err != nil {
			return err
		}
		if exists {
			fmt.Fprintf(out, "%s already exists.\n", filepath.Join(d.directory, f.name))
			continue
		}
		missing = append(missing, f)
		total += max(f.size, 0)
	}
	bar := newProgress(e.err, "Saving bytes", total)
	defer bar.Done()
	var done int64
	var saved strings.Builder
	for _, f := range missing {
		n, err := c.save(ctx, f, d, func(n int64) { bar.Set(done + n) })
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		done += n
		from := ""
		if f.request != "" {
			from = " of " + f.request
		}
		fmt.Fprintf(&saved, "Saved %s, %s%s.\n", filepath.Join(d.directory, f.name), formatBytes(n), from)
	}
	bar.Done()
	_, err = io.WriteString(out, saved.String())
	return err
}

// exists reports whether the directory has the same file. Another file of that
// name is an error, unless it may be overwritten.
func (f jobFile) exists(d downloadOptions) (bool, error) {
	path := filepath.Join(d.directory, f.name)
	old, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer old.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, old); err != nil {
		return false, err
	}
	if hex.EncodeToString(sum.Sum(nil)) == f.sha256 {
		return true, nil
	}
	if !d.force {
		return false, fmt.Errorf("another file %s exists; move it, choose another directory, or overwrite it with --force", path)
	}
	return false, nil
}

// save downloads a file to a temporary name, verifies it and renames it.
func (c *apiClient) save(ctx context.Context, f jobFile, d downloadOptions, report func(n int64)) (n int64, err error) {
	loading, cancel := context.WithCancel(ctx)
	defer cancel()
	res, err := c.openFile(loading, f.url)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	part, err := os.CreateTemp(d.directory, "."+f.name+"-*.part")
	if err != nil {
		return 0, err
	}
	defer os.Remove(part.Name()) // does nothing after the rename
	sum := sha256.New()
	idle := time.AfterFunc(requestTimeout, cancel)
	defer idle.Stop()
	n, err = io.Copy(io.MultiWriter(part, sum), &meteredReader{Reader: res.Body, report: func(n int64) {
		idle.Reset(requestTimeout)
		report(n)
	}})
	err = errors.Join(err, part.Chmod(0o644), part.Close())
	switch {
	case err != nil && loading.Err() != nil && ctx.Err() == nil:
		return n, fmt.Errorf("received no data for %v; try again", requestTimeout)
	case err != nil:
		return n, fmt.Errorf("download failed: %w", err)
	case f.size >= 0 && n != f.size:
		return n, fmt.Errorf("received %d of %d bytes; try again", n, f.size)
	case f.sha256 != "" && hex.EncodeToString(sum.Sum(nil)) != f.sha256:
		return n, errors.New("the SHA-256 checksum does not match; try again")
	}
	if _, err := f.exists(d); err != nil { // created during the download
		return n, err
	}
	return n, os.Rename(part.Name(), filepath.Join(d.directory, f.name))
}

// meteredReader reports how many bytes were read in total.
type meteredReader struct {
	io.Reader
	report func(n int64)
	n      int64
}

func (m *meteredReader) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.n += int64(n)
	m.report(m.n)
	return n, err
}
