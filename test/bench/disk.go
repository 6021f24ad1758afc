package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// fsyncCost appends pages to a file and makes each durable, as a commit does.
func fsyncCost(folder string) (p50, p99 time.Duration, err error) {
	f, err := os.Create(filepath.Join(folder, "fsync"))
	if err != nil {
		return 0, 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page := make([]byte, 4096)
	var took []time.Duration
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end) && len(took) < 2000; {
		begun := time.Now()
		if _, err := f.Write(page); err != nil {
			return 0, 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, 0, fmt.Errorf("fsync: %w", err)
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100], nil
}
