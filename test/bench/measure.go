package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
)

// measure does all of it, or the part that was asked for.
func measure(ctx context.Context, o options) (*report, error) {
	r := &report{options: o, cores: runtime.NumCPU(), goVersion: runtime.Version()}
	var err error
	if r.fsync50, r.fsync99, err = fsyncCost(o.folder); err != nil {
		return nil, err
	}
	say("fsync %v", r.fsync50)
	database, err := startPostgres(o.folder)
	if err == nil {
		defer database.stop()
		if r.postgresVersion, err = database.version(); err != nil {
			return nil, err
		}
	} else {
		// The rest is still worth knowing; the report says it.
		r.withoutPostgres = err
		say("without PostgreSQL: %v", err)
	}
	wanted := func(part string) bool { return o.only == "" || o.only == part }
	if wanted(onlyChat) {
		if r.chat, err = measureChat(ctx, o, database); err != nil {
			return nil, err
		}
	}
	if wanted(onlyGateway) {
		if r.gateway, err = measureGateway(ctx, o, database); err != nil {
			return nil, err
		}
	}
	if wanted(onlyWebhooks) {
		if r.hooks, err = measureHooks(ctx, o, database); err != nil {
			return nil, err
		}
	}
	if wanted(onlyMedia) {
		if r.media, err = measureMedia(ctx, o, database); err != nil {
			return nil, err
		}
	}
	if wanted(onlyAgents) {
		if r.agents, err = measureAgents(ctx, o, database); err != nil {
			return nil, err
		}
	}
	if wanted(onlyPages) {
		if r.pages, err = measurePages(ctx, o, database); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }

func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
