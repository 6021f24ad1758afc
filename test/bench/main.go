// Command bench measures the speed and the memory of the real program and
// writes docs/benchmarks.md:
//
//	go run ./test/bench
//
// It exits with 1 when a target is missed. Servers, what they are compared
// with and whoever calls them are processes of their own, so that all of them
// pay the same for the machine.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// roleVariable makes this program, started a second time, play one of the
// other parts.
const roleVariable = "TURNPIKE_TEST_BENCH_ROLE"

const (
	roleLoad     = "load"
	roleBare     = "bare server"
	roleNode     = "server"
	roleReceiver = "receiver"
	roleSender   = "bare loop"
	roleUpstream = "mock provider"
	roleProxy    = "reverse proxy"
	rolePool     = "drawing loop"
)

// The parts that can be measured alone.
const (
	onlyChat     = "chat"
	onlyWebhooks = "webhooks"
	onlyGateway  = "gateway"
	onlyMedia    = "media"
	onlyAgents   = "agents"
	onlyPages    = "pages"
)

// options are the command line.
type options struct {
	rounds   int
	duration time.Duration // of one measurement
	only     string        // empty for all
	pending  []int         // deliveries that wait, for the measurements with many of them
	document string
	folder   string // for everything that is written while measuring
}

func main() {
	var err error
	in := orders{json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)}
	switch role := os.Getenv(roleVariable); role {
	case roleLoad:
		err = playLoad(os.Stdin, os.Stdout)
	case roleBare:
		err = playBare(in)
	case roleNode:
		err = playNode(in)
	case roleReceiver:
		err = playReceiver(in)
	case roleSender:
		err = playSender(in)
	case roleUpstream:
		err = playUpstream(in)
	case roleProxy:
		err = playProxy(in)
	case rolePool:
		err = playPool(in)
	default:
		err = bench()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench() error {
	o := options{pending: []int{10_000, 100_000, 1_000_000}}
	flag.IntVar(&o.rounds, "rounds", 5, "rounds; each measures everything once, and the median counts")
	flag.DurationVar(&o.duration, "duration", 3*time.Second, "length of one measurement, at most 8s")
	flag.StringVar(&o.only, "only", "", "measure only chat, webhooks, gateway, media, agents or pages; a part of the report is printed and not written")
	flag.Func("pending", "numbers of waiting deliveries to measure with (default 10000,100000,1000000)", func(text string) (err error) {
		o.pending, err = parseNumbers(text)
		return err
	})
	flag.StringVar(&o.document, "document", "docs/benchmarks.md", "file to write the report to; empty writes none")
	flag.StringVar(&o.folder, "folder", "", "folder on the disk to measure (default: the system's temporary folder)")
	flag.Parse()
	if o.rounds < 1 || o.duration <= 0 || o.duration > 8*time.Second || flag.NArg() > 0 {
		return fmt.Errorf("one round at least, measurements of at most 8s, and no arguments; see -help")
	}
	switch o.only {
	case "":
	case onlyChat, onlyWebhooks, onlyGateway, onlyMedia, onlyAgents, onlyPages:
		o.document = ""
	default:
		return fmt.Errorf("-only takes %s, %s, %s, %s, %s or %s", onlyChat, onlyWebhooks, onlyGateway, onlyMedia, onlyAgents, onlyPages)
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

func parseNumbers(text string) (numbers []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a number of deliveries", part)
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers, nil
}
