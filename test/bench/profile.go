package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"turnpike/internal/app"
)

// writeProfile writes the CPU profile of gateway requests, plain and streamed, on
// each engine. The compiler optimizes releases with it.
func writeProfile(b *bench) {
	g := b.startGateway(usualResponse)
	defer g.stop()
	args := []string{"tool", "pprof", "-proto"}
	for i, at := range g.places {
		for _, stream := range []bool{false, true} {
			say("profile, %s, streamed: %v", g.servers[i+1].name, stream)
			file := filepath.Join(b.dir, fmt.Sprintf("%d-%v.pprof", i, stream))
			written := make(chan error, 1)
			go func() {
				profile, err := app.FetchProfile(b.ctx, at.Dir, b.duration)
				if err == nil {
					err = os.WriteFile(file, profile, 0o600)
				}
				written <- err
			}()
			b.underLoad(g.servers[i+1], loadOrder{Stream: stream, Duration: b.duration}, g.mock.pid())
			check(<-written)
			args = append(args, file)
		}
	}
	merge := exec.CommandContext(b.ctx, "go", args...)
	merge.Env = append(os.Environ(), "HOME="+b.dir) // where pprof looks for its settings
	check(os.WriteFile(b.profile, must(merge.Output()), 0o644))
}
