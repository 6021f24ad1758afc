// Command bench measures the speed and the memory of the real program and
// writes docs/benchmarks.md:
//
//	go run ./test/bench
//
// It exits with 1 when a target is missed. Servers and the load generator are
// processes of their own, so that all of them pay the same for the machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// roleVariable makes this program, started a second time, play one of the
// other parts.
const roleVariable = "TURNPIKE_TEST_BENCH_ROLE"

const (
	roleLoad = "load"
	roleBare = "bare"
)

// options are the command line.
type options struct {
	rounds   int
	duration time.Duration // of one measurement
	document string
	folder   string // for everything that is written while measuring
}

func main() {
	var err error
	switch role := os.Getenv(roleVariable); role {
	case roleLoad:
		err = playLoad(os.Stdin, os.Stdout)
	case roleBare:
		err = playBare(os.Stdin, os.Stdout)
	default:
		err = bench()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench() error {
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "rounds; each measures everything once, and the median counts")
	flag.DurationVar(&o.duration, "duration", 3*time.Second, "length of one measurement, at most 8s")
	flag.StringVar(&o.document, "document", "docs/benchmarks.md", "file to write the report to; empty writes none")
	flag.StringVar(&o.folder, "folder", "", "folder on the disk to measure (default: the system's temporary folder)")
	flag.Parse()
	if o.rounds < 1 || o.duration <= 0 || o.duration > 8*time.Second || flag.NArg() > 0 {
		return fmt.Errorf("one round at least, measurements of at most 8s, and no arguments; see -help")
	}
	// Children of ours are ended and their folder removed on a signal, too.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	folder, err := os.MkdirTemp(o.folder, "turnpike-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	o.folder = folder

	r, err := measure(ctx, o)
	if err != nil {
		return err
	}
	text := r.markdown()
	fmt.Print(text)
	if o.document != "" {
		if err := os.WriteFile(o.document, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	for _, t := range r.targets() {
		if !t.met {
			err = fmt.Errorf("missed: %s is %s, and should be %s", t.name, t.value, t.bound)
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}
	if err != nil {
		return fmt.Errorf("a target was missed")
	}
	return nil
}
