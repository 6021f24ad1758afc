package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"turnpike/test/chaos/program"
)

// warmUp is how long a server is under load before a measurement begins.
const warmUp = time.Second

// The call that is measured: a short question, answered in a sentence.
const (
	plainBody  = `{"model":"gpt-4o-mini","messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"What is the capital of France, and since when?"}]}`
	streamBody = `{"model":"gpt-4o-mini","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"What is the capital of France, and since when?"}]}`
)

// noLimits is so much that nobody reaches it: limits are on, and refuse nothing.
var noLimits = []string{"--limits-live-requests-per-minute", "100000000", "--limits-live-tokens-per-minute", "1000000000000", "--limits-live-in-flight", "1000000",
	"--limits-reads-per-minute", "0", "--limits-workspace-reads-per-minute", "0", "--limits-writes-per-minute", "0", "--limits-workspace-writes-per-minute", "0",
	"--limits-unauthenticated-connections", "1000000"}

// subject is a server under measurement.
type subject struct {
	name    string
	address string
	pid     int
	store   int // process of its database, 0 when it has none
	plain   []byte
	stream  []byte // requests

	forgiving bool // see loadOrder
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

// chat is what was measured of chat.
type chat struct {
	answer, events []byte // what a call is answered with

	keyChecks           []time.Duration
	idleMB, afterCallMB float64
	loadedMB            float64
	plain, stream       []*series // the bare server's first
}

// measureChat measures calls of a model. Without a database it does without
// PostgreSQL.
func measureChat(ctx context.Context, o options, database *postgres) (*chat, error) {
	c := &chat{}
	say("building")
	binary, err := program.Build(o.folder)
	if err != nil {
		return nil, err
	}
	if c.keyChecks, err = keyChecks(o.folder, o.rounds); err != nil {
		return nil, err
	}
	say("key check %v", median(c.keyChecks))
	if err := c.memory(binary, o.folder); err != nil {
		return nil, err
	}
	say("idle %.1f MB, after one call %.1f MB", c.idleMB, c.afterCallMB)

	calm := &calm{left: patience}
	subjects, stop, err := c.start(ctx, binary, o.folder, database)
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
				sample, err := leastDisturbed(calm, func(x sample) float64 { return x.others }, func() (sample, error) {
					return s.measure(ctx, kind, o.duration)
				})
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", s.name, kind, err)
				}
				all[i].samples = append(all[i].samples, sample)
				say("round %d, %s, %s: %.0f requests/s, others had %.0f %%", n+1, kind, s.name, sample.rate(), 100*sample.others)
			}
		}
		if kind == "plain" {
			c.plain = all
		} else {
			c.stream = all
		}
	}
	c.loadedMB, err = residentMB(subjects[1].pid)
	return c, err
}

// measure puts the subject under load.
func (s *subject) measure(ctx context.Context, kind string, duration time.Duration) (sample, error) {
	return s.beside(ctx, kind, loadOrder{Duration: duration}, 0)
}

// beside is measure with a process of ours, unless it is 0, whose time is
// nobody else's.
func (s *subject) beside(ctx context.Context, kind string, order loadOrder, pid int) (out sample, err error) {
	duration := order.Duration
	order.Address, order.Request, order.Duration, order.Forgiving = s.address, s.plain, warmUp, s.forgiving
	if kind == "stream" {
		order.Request = s.stream
	}
	if _, err := generate(ctx, order); err != nil {
		return out, err
	}
	u, err := watch(present(s.pid, pid, s.store), func() (err error) {
		order.Duration = duration
		out.loadResult, err = generate(ctx, order)
		return err
	})
	if err != nil {
		return out, err
	}
	out.cpu = u.cpu[0]
	if s.store != 0 {
		out.storeCPU = u.cpu[len(u.cpu)-1]
	}
	// The generator is no process that was there all the time.
	out.others = max(0, u.others-float64(out.loadResult.cpu)/float64(u.took*time.Duration(runtime.NumCPU())))
	return out, nil
}

// memory looks at a server that has done nothing, and at one that has answered
// one call.
func (c *chat) memory(binary program.Binary, folder string) error {
	at := program.Place{Folder: filepath.Join(folder, "memory")}
	server, err := binary.Serve(at)
	if err != nil {
		return err
	}
	defer server.Kill()
	if c.idleMB, err = settledMB(server.Pid()); err != nil {
		return err
	}
	key, err := newKey(binary, at)
	if err != nil {
		return err
	}
	if _, err := ask(server.URL, key, plainBody); err != nil {
		return err
	}
	c.afterCallMB, err = settledMB(server.Pid())
	return err
}

// start starts all servers. The bare one comes first.
func (c *chat) start(ctx context.Context, binary program.Binary, folder string, database *postgres) (subjects []*subject, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, s := range slices.Backward(stops) {
			s()
		}
	}
	turnpike := func(name string, at program.Place) (*subject, error) {
		server, err := binary.Serve(at, noLimits...)
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
		if c.answer == nil {
			if c.answer, err = ask(server.URL, key, plainBody); err != nil {
				return nil, err
			}
			if c.events, err = ask(server.URL, key, streamBody); err != nil {
				return nil, err
			}
		}
		return s, nil
	}

	embedded, err := turnpike("Turnpike, SQLite", program.Place{Folder: filepath.Join(folder, "sqlite")})
	if err != nil {
		return nil, stop, err
	}
	var address string
	bare, err := startChild(ctx, roleBare, bareOrder{Plain: c.answer, Events: splitEvents(c.events)}, &address)
	if err != nil {
		return nil, stop, err
	}
	stops = append(stops, bare.kill)
	key := strings.Repeat("x", 46) // as long as a real one
	subjects = []*subject{{name: "bare net/http", address: address, pid: bare.pid(),
		plain: rawRequest("/plain", key, plainBody), stream: rawRequest("/stream", key, streamBody)}, embedded}
	if database == nil {
		return subjects, stop, nil
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
