package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"turnpike/internal/leaks"
)

const (
	scanBuffer  = 256 << 10 // fits the processor's cache
	sniff       = 8000      // bytes in which git, too, looks for a NUL
	largeBinary = 1 << 20
)

// scan collects what several readers find.
type scan struct {
	*env
	binary bool

	mu      sync.Mutex
	found   []sighting
	skipped int64
}

func (s *scan) add(f sighting) {
	f.Key = leaks.Hint(f.secret)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found = append(s.found, f)
}

// sorted is what was found, in an order that does not depend on who was first.
func (s *scan) sorted() []sighting {
	slices.SortFunc(s.found, func(a, b sighting) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Commit, b.Commit), cmp.Compare(a.secret, b.secret))
	})
	if s.found == nil {
		return []sighting{} // for JSON
	}
	return s.found
}

// content scans one file or object of a known size, unless it is binary and
// large: then not all of it is read.
func (s *scan) content(r io.Reader, size int64, buf []byte, at sighting) error {
	if size > largeBinary && !s.binary {
		head := make([]byte, sniff)
		n, err := io.ReadFull(r, head)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if bytes.IndexByte(head[:n], 0) >= 0 {
			s.mu.Lock()
			s.skipped++
			s.mu.Unlock()
			return nil
		}
		r = io.MultiReader(bytes.NewReader(head[:n]), r)
	}
	return leaks.Read(r, buf, func(line int64, secret string) {
		f := at
		f.Line, f.secret = line, secret
		s.add(f)
	})
}

// stream scans what is piped in.
func (s *scan) stream(r io.Reader) error {
	bar := newProgress(s.err, "Scanning, bytes", 0)
	defer bar.Done()
	return s.content(&metered{Reader: r, bar: bar}, 0, make([]byte, scanBuffer), sighting{Path: "-"})
}

// metered moves a bar on as it is read.
type metered struct {
	io.Reader
	bar *progress
	n   int64
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.n += int64(n)
	m.bar.Set(m.n)
	return n, err
}

// paths scans files, and folders with all that is in them.
func (s *scan) paths(ctx context.Context, roots []string) error {
	files, total, err := walk(ctx, roots)
	bar := newProgress(s.err, "Scanning, bytes", total)
	defer bar.Done()
	var done atomic.Int64
	work := make(chan file)
	failures := make(chan error, len(files))
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			buf := make([]byte, scanBuffer)
			for f := range work {
				if ctx.Err() != nil {
					continue
				}
				if err := s.file(f, buf); err != nil {
					failures <- err
				}
				bar.Set(done.Add(f.size))
			}
		})
	}
	for _, f := range files {
		work <- f
	}
	close(work)
	group.Wait()
	close(failures)
	all := []error{err}
	for f := range failures {
		all = append(all, f)
	}
	return errors.Join(all...)
}

type file struct {
	path string
	size int64
}

func (s *scan) file(f file, buf []byte) error {
	r, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := s.content(r, f.size, buf, sighting{Path: f.path}); err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	return nil
}

// walk lists regular files. Links are not followed: what they point to is
// scanned where it is. What cannot be read is an error that does not keep the
// rest from being scanned.
func walk(ctx context.Context, roots []string) (files []file, total int64, err error) {
	var problems []error
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case ctx.Err() != nil:
				return fs.SkipAll
			case err != nil:
				problems = append(problems, err)
				return nil
			// Compressed, so nothing can be seen in it; --git looks inside.
			case d.IsDir() && d.Name() == "objects" && filepath.Base(filepath.Dir(path)) == ".git":
				return fs.SkipDir
			case !d.Type().IsRegular():
				return nil
			}
			info, err := d.Info()
			if err != nil {
				problems = append(problems, err)
				return nil
			}
			files = append(files, file{path, info.Size()})
			total += info.Size()
			return nil
		})
		if err != nil {
			problems = append(problems, err)
		}
	}
	return files, total, errors.Join(problems...)
}
