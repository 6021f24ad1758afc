// Command simulate predicts what nodes and databases reach together, and how long they take to recover:
//
//	go run ./test/simulate
//
// It simulates group commit, posting, heartbeats and cores event by event, with measured costs (costs.go), and prints
// Markdown. The same flags always print the same. docs/explanation/past-one-postgresql.md has the result.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	setup
	nodeCounts, databaseCounts []int
}

func main() {
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(2)
	}
	writeAll(os.Stdout, o)
}

func parse(args []string) (options, error) {
	o := options{setup: setup{costs: measured, warmUp: 100 * time.Millisecond, longest: 10 * time.Second}}
	f := flag.NewFlagSet("simulate", flag.ContinueOnError)
	o.costs.flags(f)
	nodes := f.String("nodes", "1,3,10,30,100", "numbers of nodes")
	databases := f.String("databases", "1,4,16", "numbers of databases")
	f.IntVar(&o.nodeCores, "node-cores", 4, "cores of a node")
	f.IntVar(&o.dbCores, "db-cores", 8, "cores of a database")
	f.IntVar(&o.connections, "connections", 256, "connections of a node; each sends a request after the last response")
	f.DurationVar(&o.provider, "provider", 0, "time that a provider takes")
	f.IntVar(&o.requests, "requests", 20_000, "requests to measure for each row, at least")
	f.Uint64Var(&o.seed, "seed", 1, "seed of random numbers")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var err error
	if o.nodeCounts, err = numbers(*nodes); err != nil {
		return o, err
	}
	if o.databaseCounts, err = numbers(*databases); err != nil {
		return o, err
	}
	if o.nodeCores < 1 || o.dbCores < 1 || o.connections < 1 || o.requests < 1 || f.NArg() > 0 {
		return o, fmt.Errorf("cores, connections and requests must be positive, and there are no arguments")
	}
	return o, nil
}

// numbers parses positive numbers between commas.
func numbers(text string) (out []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a positive number", part)
		}
		out = append(out, n)
	}
	return out, nil
}

func writeAll(w io.Writer, o options) {
	fmt.Fprintf(w, "## Calibration\n\n")
	writeCalibration(w, o)
	fmt.Fprintf(w, "\n## Throughput\n\n")
	writeThroughput(w, o)
	fmt.Fprintf(w, "\n## A node dies\n\n")
	writeNodeDeaths(w, o)
	fmt.Fprintf(w, "\n## A database fails over\n\n")
	writeFailovers(w, o)
}
