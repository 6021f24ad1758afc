package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"turnpike/internal/leaks/scan"
)

// scanner scans with a progress bar.
type scanner struct {
	*env
	*scan.Reader
}

func (s *scanner) stream(r io.Reader) error {
	bar := newProgress(s.err, "Scanning bytes", 0)
	defer bar.Done()
	return s.Content(&meteredReader{Reader: r, report: bar.Set}, 0, scan.Finding{Path: "-"})
}

// repository scans each version of each file, the messages of commits and tags, and
// the names of files.
func (s *scanner) repository(ctx context.Context, repo, since string) error {
	bar := newProgress(s.err, "Scanning commits", 0)
	defer bar.Done()
	n := int64(0)
	h := &scan.History{Dir: repo, Reader: s.Reader, Commit: func(string, []string) error {
		n++
		bar.Set(n)
		return nil
	}}
	if since != "" {
		h.Exclude = []string{since}
	}
	return h.Scan(ctx)
}

type scanFile struct {
	path string
	size int64
}

func (s *scanner) paths(ctx context.Context, roots []string) error {
	files, total, err := listFiles(ctx, roots)
	bar := newProgress(s.err, "Scanning bytes", total)
	defer bar.Done()
	var mu sync.Mutex
	var done int64
	work := make(chan scanFile)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for f := range work {
				failure := s.file(f)
				mu.Lock()
				err = errors.Join(err, failure)
				done += f.size
				bar.Set(done)
				mu.Unlock()
			}
		})
	}
	for _, f := range files {
		if ctx.Err() == nil {
			work <- f
		}
	}
	close(work)
	workers.Wait()
	return err
}

func (s *scanner) file(f scanFile) error {
	r, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := s.Content(r, f.size, scan.Finding{Path: f.path}); err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	return nil
}

// listFiles lists regular files. It doesn't follow links. It collects errors and
// continues.
func listFiles(ctx context.Context, roots []string) (files []scanFile, total int64, err error) {
	for _, root := range roots {
		walkErr := filepath.WalkDir(root, func(path string, d fs.DirEntry, walkErr error) error {
			switch {
			case ctx.Err() != nil:
				return fs.SkipAll
			case walkErr != nil:
				err = errors.Join(err, walkErr)
				return nil
			// Objects are compressed; --git scans them.
			case d.IsDir() && d.Name() == "objects" && filepath.Base(filepath.Dir(path)) == ".git":
				return fs.SkipDir
			case !d.Type().IsRegular():
				return nil
			}
			info, infoErr := d.Info()
			if infoErr != nil {
				err = errors.Join(err, infoErr)
				return nil
			}
			files = append(files, scanFile{path, info.Size()})
			total += info.Size()
			return nil
		})
		err = errors.Join(err, walkErr)
	}
	return files, total, err
}
