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

	"turnpike/internal/media"
)

// jobFile is a file of a job's behind a signed URL.
type jobFile struct {
	of     string // the request that it came of, or empty
	url    string
	name   string
	size   int64  // -1 when it is not known
	sha256 string // empty when it is not known
}

// files are what the job has made, of which the API says more for pictures.
func (c *apiClient) files(ctx context.Context, k media.Kind, j *job) ([]jobFile, error) {
	var list []jobFile
	for _, r := range j.Results {
		for _, p := range r.Images {
			list = append(list, jobFile{of: r.CustomID, url: p.URL, size: p.Bytes, sha256: p.SHA256})
		}
	}
	if k != media.Images && j.URL != nil {
		about, err := c.look(ctx, *j.URL)
		if err != nil {
			return nil, err
		}
		list = append(list, about)
	}
	for i := range list {
		var err error
		if list[i].name, err = nameOf(list[i].url); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// look asks for a file's size and hash. The link needs no key and gets none:
// it may lead to another server.
func (c *apiClient) look(ctx context.Context, url string) (jobFile, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := c.open(ctx, http.MethodHead, url)
	if err != nil {
		return jobFile{}, err
	}
	res.Body.Close()
	f := jobFile{url: url, size: res.ContentLength}
	if tag := strings.Trim(res.Header.Get("ETag"), `"`); len(tag) == hex.EncodedLen(sha256.Size) {
		f.sha256 = tag
	}
	return f, nil
}

// nameOf is what the server calls the file. It is a name and no way out of the
// folder, whatever the server says.
func nameOf(link string) (string, error) {
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%q is not the address of a file", visible(link))
	}
	name := path.Base(u.Path)
	if !filepath.IsLocal(name) || name == "." || strings.ContainsAny(name, `/\:`) || visible(name) != name {
		return "", fmt.Errorf("the server calls a file %q, which is no name", name)
	}
	return name, nil
}

// open begins to read a link.
func (c *apiClient) open(ctx context.Context, method, link string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, link, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "turnpike-cli/"+version)
	// Without the limit on the whole: a file may take long.
	files := &http.Client{Transport: c.http.Transport}
	res, err := files.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w; links lead to the address that the server has in TURNPIKE_PUBLIC_URL", unreachable(req.URL.Scheme+"://"+req.URL.Host, err))
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer res.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10)) // what is missing is missed below
	return nil, refusal(req.URL.Scheme+"://"+req.URL.Host, res, answer)
}

// download saves the job's files.
func (e *env) download(ctx context.Context, c *apiClient, k media.Kind, j *job, w *waitFlags) error {
	list, err := c.files(ctx, k, j)
	if err != nil {
		return err
	}
	say := e.out
	if e.asJSON {
		say = e.err
	}
	if len(list) == 0 {
		fmt.Fprintln(say, "There are no files to save.")
		return nil
	}
	if err := os.MkdirAll(w.folder, 0o755); err != nil {
		return err
	}
	// Whether there is room for all names is known before hours of loading.
	missing := make([]jobFile, 0, len(list))
	var bytes int64
	for _, f := range list {
		there, err := f.there(w)
		if err != nil {
			return err
		}
		if there {
			fmt.Fprintf(say, "%s is there already.\n", filepath.Join(w.folder, f.name))
			continue
		}
		missing = append(missing, f)
		bytes += max(f.size, 0)
	}
	bar := newProgress(e.err, "Saving", bytes)
	defer bar.Done()
	var before int64
	var saved []string
	for _, f := range missing {
		n, err := c.save(ctx, f, w, func(n int64) { bar.Set(before + n) })
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		before += n
		from := ""
		if f.of != "" {
			from = " of " + visible(f.of)
		}
		saved = append(saved, fmt.Sprintf("Saved %s, %s%s.\n", filepath.Join(w.folder, f.name), byteSize(n), from))
	}
	bar.Done()
	for _, line := range saved {
		fmt.Fprint(say, line)
	}
	return nil
}

// there reports whether the folder has the very file. One of the same name and
// of other content is refused, or overwritten by force.
func (f jobFile) there(w *waitFlags) (bool, error) {
	at := filepath.Join(w.folder, f.name)
	old, err := os.Open(at)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer old.Close()
	sum := sha256.New()
	if f.sha256 != "" {
		if _, err := io.Copy(sum, old); err != nil {
			return false, err
		}
		if hex.EncodeToString(sum.Sum(nil)) == f.sha256 {
			return true, nil
		}
	}
	if !w.force {
		return false, occupied(at)
	}
	return false, nil
}

func occupied(at string) error {
	return fmt.Errorf("there is another file %s; move it, choose another folder, or overwrite it with --force", at)
}

// save loads a file beside its place, and puts it there when it is whole.
func (c *apiClient) save(ctx context.Context, f jobFile, w *waitFlags, tell func(n int64)) (n int64, err error) {
	loading, cancel := context.WithCancel(ctx)
	defer cancel()
	res, err := c.open(loading, http.MethodGet, f.url)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	part, err := os.CreateTemp(w.folder, "."+f.name+"-*.part")
	if err != nil {
		return 0, err
	}
	defer os.Remove(part.Name()) // does nothing once it has its name
	sum := sha256.New()
	n, err = io.Copy(io.MultiWriter(part, sum), &steady{from: res.Body, tell: tell, idle: time.AfterFunc(callTimeout, cancel)})
	err = errors.Join(err, part.Chmod(0o644), part.Close())
	switch {
	case err != nil && loading.Err() != nil && ctx.Err() == nil:
		return n, fmt.Errorf("nothing came for %v; try again", callTimeout)
	case err != nil:
		return n, fmt.Errorf("not loaded: %w", err)
	case f.size >= 0 && n != f.size:
		return n, fmt.Errorf("%d bytes came of %d; try again", n, f.size)
	case f.sha256 != "" && hex.EncodeToString(sum.Sum(nil)) != f.sha256:
		return n, errors.New("what came is not what the server has, by its SHA-256; try again")
	}
	at := filepath.Join(w.folder, f.name)
	if !w.force {
		// Somebody may have made it meanwhile.
		place, err := os.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if errors.Is(err, fs.ErrExist) {
			return n, occupied(at)
		}
		if err != nil {
			return n, err
		}
		place.Close()
	}
	return n, os.Rename(part.Name(), at)
}

// steady reads as long as something comes, and tells how much.
type steady struct {
	from io.Reader
	tell func(n int64)
	idle *time.Timer // ends the download
	n    int64
}

func (s *steady) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	s.idle.Reset(callTimeout)
	s.n += int64(n)
	s.tell(s.n)
	if err != nil {
		s.idle.Stop()
	}
	return n, err
}
