// Command bench measures the speed and memory of the release binary and writes
// docs/benchmarks.md:
//
//	go run ./test/bench
//
// It exits with 1 if a target is missed. The servers, the servers they are
// compared with and the load generator are separate processes: all of them pay
// the same for the machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

type options struct {
	rounds   int
	duration time.Duration // of one measurement
	wait     time.Duration // for a quiet machine
	only     string        // a part's name, empty for all
	sizes    []int         // numbers of stored deliveries to measure with
	logged   int           // log entries of the large tables
	output   string
	profile  string // written instead of measuring
	dir      string // everything the run writes
}

// parts are measured in this order.
var parts = []struct {
	name    string
	measure func(*bench)
}{
	{"chat", measureChat},
	{"gateway", measureGateway},
	{"limits", measureLimits},
	{"nodes", measureNodes},
	{"formats", measureFormats},
	{"webhooks", measureWebhooks},
	{"media", measureMedia},
	{"agents", measureAgents},
	{"pages", measurePages},
	{"large", measureLarge},
}

func main() {
	play, ok := roles[os.Getenv(roleVariable)]
	if !ok {
		play = func() error { return run(parseFlags()) }
	}
	if err := play(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parseFlags() options {
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "rounds; each measures everything once, and the median counts")
	flag.DurationVar(&o.duration, "duration", 3*time.Second, "length of one measurement, at most 8s")
	flag.DurationVar(&o.wait, "wait", 4*time.Minute, "how long each part waits for a quiet machine and repeats disturbed measurements")
	flag.StringVar(&o.only, "only", "", "measure only chat, gateway, limits, nodes, formats, webhooks, media, agents, pages or large, and print the report instead of writing it")
	largest := flag.Int("largest", 1_000_000, "largest number of stored deliveries to measure with, besides a tenth and a hundredth of it")
	flag.IntVar(&o.logged, "logged", 2_000_000, "log entries of the large tables, with three quarters of that in deliveries and in stored responses, and a quarter in waiting deliveries")
	flag.StringVar(&o.output, "output", "docs/benchmarks.md", "file to write the report to; empty writes none")
	flag.StringVar(&o.profile, "profile", "", "file to write a CPU profile of gateway requests to, instead of measuring")
	flag.StringVar(&o.dir, "dir", "", "directory on the disk to measure (default: the system's temporary directory)")
	flag.Parse()
	known := o.only == ""
	for _, p := range parts {
		known = known || p.name == o.only
	}
	if !known || *largest < 100 || o.logged < 4 || o.rounds < 1 || o.duration <= 0 || o.duration > 8*time.Second || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	o.sizes = []int{*largest / 100, *largest / 10, *largest}
	if o.only != "" {
		o.output = ""
	}
	return o
}

func run(o options) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer recoverFailure(&err)
	o.dir = must(os.MkdirTemp(o.dir, "turnpike-bench-"))
	defer os.RemoveAll(o.dir)
	b := newBench(ctx, o)
	defer func() {
		for _, stop := range b.stops {
			stop()
		}
	}()
	if o.profile != "" {
		writeProfile(b)
		return nil
	}
	for _, p := range parts {
		if o.only == "" || o.only == p.name {
			b.patience = o.wait
			p.measure(b)
		}
	}
	text := b.markdown()
	fmt.Print(text)
	if o.output != "" {
		check(os.WriteFile(o.output, []byte(text), 0o644))
	}
	for _, t := range b.targets {
		if !t.met {
			fmt.Fprintf(os.Stderr, "bench: missed: %s is %s, want %s\n", t.name, t.value, t.bound)
			err = errors.New("a target was missed")
		}
	}
	return err
}
