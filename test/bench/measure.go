package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"turnpike/test/chaos/program"
)

const (
	// warmUp is how long a server is under load before a measurement begins.
	warmUp = time.Second

	// A measurement begins when others have less of the cores than this, and
	// one during which they had more is repeated; of several the least
	// disturbed one counts. It is chosen by what the others did, never by its
	// outcome. When patience, which is for the whole run, is spent, things are
	// measured as they are.
	disturbed = 0.10
	attempts  = 3
	patience  = 4 * time.Minute
)

// The call that is measured: a short question, answered in a sentence.
const (
	plainBody  = `{"model":"gpt-4o-mini","messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"What is the capital of France, and since when?"}]}`
	streamBody = `{"model":"gpt-4o-mini","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"What is the capital of France, and since when?"}]}`
)

// subject is a server under measurement.
type subject struct {
	name    string
	address string
	pid     int
	store   int // process of its database, 0 when it has none
	plain   []byte
	stream  []byte // requests
}

// sample is one measurement.
type sample struct {
	loadResult
	cpu      time.Duration // of the server, for all requests
	storeCPU time.Duration
	others   float64 // share of all cores that went to processes which are not ours
}

func (s sample) rate() float64 { return float64(s.Requests) / s.Took.Seconds() }

// series is one subject's samples, a round each.
type series struct {
	subject string
	samples []sample
}

// measure does all of it.
func measure(ctx context.Context, o options) (*report, error) {
	r := &report{options: o, cores: runtime.NumCPU(), goVersion: runtime.Version()}
	say := func(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }

	say("building")
	binary, err := program.Build(o.folder)
	if err != nil {
		return nil, err
	}
	if r.fsync50, r.fsync99, err = fsyncCost(o.folder); err != nil {
		return nil, err
	}
	say("fsync %v", r.fsync50)
	if r.keyChecks, err = keyChecks(o.folder, o.rounds); err != nil {
		return nil, err
	}
	say("key check %v", median(r.keyChecks))
	if err := r.memory(binary, o.folder); err != nil {
		return nil, err
	}
	say("idle %.1f MB, after one call %.1f MB", r.idleMB, r.afterCallMB)

	calm := &calm{left: patience}
	subjects, stop, err := r.start(binary, o.folder)
	defer stop()
	if err != nil {
		return nil, err
	}
	for _, kind := range []string{"plain", "stream"} {
		all := make([]*series, len(subjects))
		for i, s := range subjects {
			all[i] = &series{subject: s.name}
		}
		// Round by round and not subject by subject: what else the machine
		// does then meets all of them.
		for n := range o.rounds {
			for i, s := range subjects {
				sample, err := s.leastDisturbed(ctx, calm, kind, o.duration)
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", s.name, kind, err)
				}
				all[i].samples = append(all[i].samples, sample)
				say("round %d, %s, %s: %.0f requests/s, others had %.0f %%", n+1, kind, s.name, sample.rate(), 100*sample.others)
			}
		}
		if kind == "plain" {
			r.plain = all
		} else {
			r.stream = all
		}
	}
	r.loadedMB, err = residentMB(subjects[1].pid)
	return r, err
}

// leastDisturbed measures until the others are quiet, or often enough.
func (s *subject) leastDisturbed(ctx context.Context, c *calm, kind string, duration time.Duration) (best sample, err error) {
	for n := range attempts {
		if err := c.wait(); err != nil {
			return best, err
		}
		begun := time.Now()
		next, err := s.measure(ctx, kind, duration)
		if err != nil {
			return best, err
		}
		if n == 0 || next.others < best.others {
			best = next
		}
		if best.others <= disturbed {
			break
		}
		if c.left -= time.Since(begun); c.left <= 0 {
			break
		}
	}
	return best, nil
}

// measure puts the subject under load.
func (s *subject) measure(ctx context.Context, kind string, duration time.Duration) (out sample, err error) {
	order := loadOrder{Address: s.address, Request: s.plain, Duration: warmUp}
	if kind == "stream" {
		order.Request = s.stream
	}
	if _, err := generate(ctx, order); err != nil {
		return out, err
	}
	before, storeBefore, err := s.cpu()
	if err != nil {
		return out, err
	}
	busyBefore, err := machineBusy()
	if err != nil {
		return out, err
	}
	begun := time.Now()
	order.Duration = duration
	if out.loadResult, err = generate(ctx, order); err != nil {
		return out, err
	}
	busy, err := machineBusy()
	if err != nil {
		return out, err
	}
	capacity := time.Since(begun) * time.Duration(runtime.NumCPU())
	after, storeAfter, err := s.cpu()
	out.cpu, out.storeCPU = after-before, storeAfter-storeBefore
	ours := out.cpu + out.storeCPU + out.loadResult.cpu
	out.others = max(0, float64(busy-busyBefore-ours)/float64(capacity))
	return out, err
}

func (s *subject) cpu() (own, store time.Duration, err error) {
	if own, err = cpuTime(s.pid); err != nil || s.store == 0 {
		return own, 0, err
	}
	store, err = cpuTime(s.store)
	return own, store, err
}

// memory looks at a server that has done nothing, and at one that has answered
// one call.
func (r *report) memory(binary program.Binary, folder string) error {
	at := program.Place{Folder: filepath.Join(folder, "memory")}
	server, err := binary.Serve(at)
	if err != nil {
		return err
	}
	defer server.Kill()
	if r.idleMB, err = settledMB(server.Pid()); err != nil {
		return err
	}
	key, err := newKey(binary, at)
	if err != nil {
		return err
	}
	if _, err := ask(server.URL, key, plainBody); err != nil {
		return err
	}
	r.afterCallMB, err = settledMB(server.Pid())
	return err
}

// start starts all servers. The bare one comes first.
func (r *report) start(binary program.Binary, folder string) (subjects []*subject, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, s := range slices.Backward(stops) {
			s()
		}
	}
	turnpike := func(name string, at program.Place) (*subject, error) {
		server, err := binary.Serve(at)
		if err != nil {
			return nil, err
		}
		stops = append(stops, server.Kill)
		key, err := newKey(binary, at)
		if err != nil {
			return nil, err
		}
		s := &subject{name: name, address: strings.TrimPrefix(server.URL, "http://"), pid: server.Pid()}
		s.plain, s.stream = rawRequest("/v1/chat/completions", key, plainBody), rawRequest("/v1/chat/completions", key, streamBody)
		if r.answer == nil {
			if r.answer, err = ask(server.URL, key, plainBody); err != nil {
				return nil, err
			}
			if r.events, err = ask(server.URL, key, streamBody); err != nil {
				return nil, err
			}
		}
		return s, nil
	}

	embedded, err := turnpike("Turnpike, SQLite", program.Place{Folder: filepath.Join(folder, "sqlite")})
	if err != nil {
		return nil, stop, err
	}
	bare, err := startBare(bareOrder{Plain: r.answer, Events: splitEvents(r.events)})
	if err != nil {
		return nil, stop, err
	}
	stops = append(stops, bare.stop)
	key := strings.Repeat("x", 46) // as long as a real one
	subjects = []*subject{{name: "bare net/http", address: bare.address, pid: bare.cmd.Process.Pid,
		plain: rawRequest("/plain", key, plainBody), stream: rawRequest("/stream", key, streamBody)}, embedded}

	database, err := startPostgres(folder)
	if err != nil {
		// Not a target, so the rest is still worth knowing; the report says it.
		r.withoutPostgres = err
		fmt.Fprintln(os.Stderr, "bench: without PostgreSQL:", err)
		return subjects, stop, nil
	}
	stops = append(stops, database.stop)
	if r.postgresVersion, err = database.version(); err != nil {
		return nil, stop, err
	}
	scaled, err := turnpike("Turnpike, PostgreSQL", program.Place{Folder: filepath.Join(folder, "node"), DatabaseURL: database.url})
	if err != nil {
		return nil, stop, err
	}
	scaled.store = database.cmd.Process.Pid
	return append(subjects, scaled), stop, nil
}

func newKey(binary program.Binary, at program.Place) (string, error) {
	out, errOut, err := binary.Run(at, "keys", "create", "--env", "test", "--json")
	if err != nil {
		return "", fmt.Errorf("make a key: %w\n%s", err, errOut)
	}
	var key struct{ Value string }
	return key.Value, json.Unmarshal([]byte(out), &key)
}

// ask makes one call and returns the answer.
func ask(url, key, body string) ([]byte, error) {
	req, err := http.NewRequest("POST", url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("the call was answered with %s: %s", res.Status, answer)
	}
	return answer, err
}

func rawRequest(path, key, body string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nUser-Agent: bench\r\n"+
		"Accept: */*\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, key, len(body), body)
}

func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
