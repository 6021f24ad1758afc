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

	"turnpike/internal/keyring"
	"turnpike/internal/leaks"
)

const (
	scanBuffer  = 256 << 10 // fits the CPU cache
	sniffLength = 8000      // in which git also looks for a NUL
	largeBinary = 1 << 20
)

// scanner collects the keys that concurrent readers find.
type scanner struct {
	*env
	binary bool

	mu      sync.Mutex
	found   []foundKey
	skipped int64
}

func (s *scanner) sorted() []foundKey {
	slices.SortFunc(s.found, func(a, b foundKey) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Commit, b.Commit), cmp.Compare(a.secret, b.secret))
	})
	return s.found
}

// content scans a file or object, unless it is large and binary.
func (s *scanner) content(r io.Reader, size int64, buf []byte, at foundKey) error {
	if size > largeBinary && !s.binary {
		head := make([]byte, sniffLength)
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
		f.Line, f.secret, f.Key = line, secret, keyring.SecretHint(secret)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.found = append(s.found, f)
	})
}

func (s *scanner) stream(r io.Reader) error {
	bar := newProgress(s.err, "Scanning bytes", 0)
	defer bar.Done()
	return s.content(&meteredReader{Reader: r, report: bar.Set}, 0, make([]byte, scanBuffer), foundKey{Path: "-"})
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
			buf := make([]byte, scanBuffer)
			for f := range work {
				failure := s.file(f, buf)
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

func (s *scanner) file(f scanFile, buf []byte) error {
	r, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := s.content(r, f.size, buf, foundKey{Path: f.path}); err != nil {
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
