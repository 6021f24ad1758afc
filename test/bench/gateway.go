package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"turnpike/test/chaos/program"
)

// What is measured of the gateway beside its throughput.
const (
	slowUpstream  = 5 * time.Millisecond // at one connection
	streamsAtOnce = 500
	streamPause   = 100 * time.Millisecond
	openStreams   = 5000
	openPause     = time.Second
)

// gateway is what was measured of calls to a provider.
type gateway struct {
	in, out int // bytes of a call and of its answer

	plain, stream []*series // the reverse proxy's first
	grown         []*series // plain, with a long log
	added         []*latencySeries
	first         []*latencySeries
	open          []openSample
}

// latencySeries is how long calls take directly and by a server, a round each.
type latencySeries struct {
	subject string
	direct  []sample
	through []sample
}

// openSample is the memory of a server with many open streams.
type openSample struct {
	subject string
	streams int
	mb      float64
}

// measureGateway measures calls to a mock provider. Without a database it does
// without PostgreSQL.
func measureGateway(ctx context.Context, o options, database *postgres) (*gateway, error) {
	binary, err := program.Build(o.folder)
	if err != nil {
		return nil, err
	}
	b := &gatewayBench{options: o, binary: binary, calm: &calm{left: patience}}
	defer b.stop()
	if err := b.start(ctx, database); err != nil {
		return nil, err
	}
	g := &gateway{in: len(gatewayBody(false)), out: len(upstreamAnswer)}
	for _, part := range []func(context.Context, *gateway) error{b.throughput, b.grown, b.latency, b.firstBytes, b.memory} {
		if err := part(ctx, g); err != nil {
			return nil, err
		}
	}
	return g, nil
}

type gatewayBench struct {
	options  options
	binary   program.Binary
	calm     *calm
	upstream *child
	direct   *subject   // the mock itself
	subjects []*subject // the proxy first
	places   []program.Place
	stops    []func()
}

func (b *gatewayBench) stop() {
	for _, s := range slices.Backward(b.stops) {
		s()
	}
}

// start starts the mock, the proxy and the servers.
func (b *gatewayBench) start(ctx context.Context, database *postgres) error {
	var address string
	var err error
	if b.upstream, err = startChild(ctx, roleUpstream, upstreamOrder{Plain: upstreamAnswer, Events: upstreamEvents(20)}, &address); err != nil {
		return err
	}
	b.stops = append(b.stops, b.upstream.kill)
	anyKey := strings.Repeat("x", 46)
	b.direct = &subject{name: "the mock itself", address: address, pid: b.upstream.pid()}
	b.direct.calls(anyKey)
	var at string
	proxy, err := startChild(ctx, roleProxy, proxyOrder{Upstream: address}, &at)
	if err != nil {
		return err
	}
	b.stops = append(b.stops, proxy.kill)
	reverse := &subject{name: "httputil.ReverseProxy", address: at, pid: proxy.pid(), forgiving: true}
	reverse.calls(anyKey)
	b.subjects = []*subject{reverse}
	places := []program.Place{{Folder: filepath.Join(b.options.folder, "gateway-sqlite")}}
	if database != nil {
		url, err := database.create(ctx, "gateway")
		if err != nil {
			return err
		}
		places = append(places, program.Place{Folder: filepath.Join(b.options.folder, "gateway-node"), DatabaseURL: url})
	}
	b.places = places
	for _, place := range places {
		s, err := b.turnpike(ctx, place, address)
		if err != nil {
			return err
		}
		if place.DatabaseURL != "" {
			s.name, s.store = "Turnpike, PostgreSQL", database.cmd.Process.Pid
		}
		b.subjects = append(b.subjects, s)
	}
	return nil
}

// turnpike starts a server before the mock, with everything on: a key with a
// budget in a workspace with one, limits, and the durable log.
func (b *gatewayBench) turnpike(ctx context.Context, at program.Place, upstream string) (*subject, error) {
	if err := os.MkdirAll(at.Folder, 0o700); err != nil {
		return nil, err
	}
	config := filepath.Join(at.Folder, "turnpike.yaml")
	text := fmt.Sprintf("providers:\n  - name: openai\n    type: openai\n    base_url: http://%s/v1\n    api_key: sk-bench\n", upstream)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	server, err := b.binary.Serve(at, append([]string{"--config", config}, noLimits...)...)
	if err != nil {
		return nil, err
	}
	b.stops = append(b.stops, server.Kill)
	out, errOut, err := b.binary.Run(at, "keys", "create", "--env", "live", "--budget", "1000000000", "--json")
	if err != nil {
		return nil, fmt.Errorf("make a key: %w\n%s", err, errOut)
	}
	var key struct{ Value string }
	if err := json.Unmarshal([]byte(out), &key); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, server.URL+"/v1/billing", strings.NewReader(`{"monthly_credits":1000000000}`))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key.Value)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("PATCH /v1/billing was answered with %s", res.Status)
	}
	s := &subject{name: "Turnpike, SQLite", address: strings.TrimPrefix(server.URL, "http://"), pid: server.Pid()}
	s.calls(key.Value)
	return s, nil
}

// calls makes the subject's requests.
func (s *subject) calls(key string) {
	s.plain, s.stream = rawRequest("/v1/chat/completions", key, gatewayBody(false)), rawRequest("/v1/chat/completions", key, gatewayBody(true))
}

// throughput is how many calls a second there are, with a mock that answers at once.
func (b *gatewayBench) throughput(ctx context.Context, g *gateway) (err error) {
	if g.plain, err = b.rounds(ctx, "gateway", "plain"); err != nil {
		return err
	}
	g.stream, err = b.rounds(ctx, "gateway", "stream")
	return err
}

// grown is the same when the log has many entries already.
func (b *gatewayBench) grown(ctx context.Context, g *gateway) (err error) {
	for _, at := range b.places {
		begun := time.Now()
		if err := fillLog(ctx, at); err != nil {
			return fmt.Errorf("fill the log: %w", err)
		}
		say("filled a log in %.1f s", time.Since(begun).Seconds())
	}
	g.grown, err = b.rounds(ctx, "gateway with a long log", "plain")
	return err
}

func (b *gatewayBench) rounds(ctx context.Context, name, kind string) (all []*series, err error) {
	for _, s := range b.subjects {
		all = append(all, &series{subject: s.name})
	}
	for n := range b.options.rounds {
		for i, s := range b.subjects {
			x, err := leastDisturbed(b.calm, func(x sample) float64 { return x.others }, func() (sample, error) {
				return s.beside(ctx, kind, loadOrder{Duration: b.options.duration}, b.upstream.pid())
			})
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", s.name, kind, err)
			}
			all[i].samples = append(all[i].samples, x)
			say("round %d, %s, %s, %s: %.0f requests/s, others had %.0f %%", n+1, name, kind, s.name, x.rate(), 100*x.others)
		}
	}
	return all, nil
}

// latency is what a server adds to a call that takes a few milliseconds, at
// one connection.
func (b *gatewayBench) latency(ctx context.Context, g *gateway) (err error) {
	if err := b.mock(ctx, upstreamOrder{Plain: upstreamAnswer, Events: upstreamEvents(20), Delay: slowUpstream}); err != nil {
		return err
	}
	g.added, err = b.against(ctx, "one connection", "plain", loadOrder{Duration: b.options.duration, Connections: 1})
	return err
}

// firstBytes is what a server adds to the time to the first token of many
// streams at once.
func (b *gatewayBench) firstBytes(ctx context.Context, g *gateway) (err error) {
	if err := b.mock(ctx, upstreamOrder{Plain: upstreamAnswer, Events: upstreamEvents(10), Delay: streamPause, Every: streamPause}); err != nil {
		return err
	}
	g.first, err = b.against(ctx, "many streams", "stream", loadOrder{Duration: b.options.duration, Connections: streamsAtOnce, First: true, Spread: 12 * streamPause})
	return err
}

// against measures each server in turn with the mock itself.
func (b *gatewayBench) against(ctx context.Context, name, kind string, o loadOrder) (all []*latencySeries, err error) {
	for _, s := range b.subjects {
		all = append(all, &latencySeries{subject: s.name})
	}
	for n := range b.options.rounds {
		for i, s := range b.subjects {
			direct, err := b.direct.beside(ctx, kind, o, 0)
			if err != nil {
				return nil, fmt.Errorf("%s, the mock itself: %w", name, err)
			}
			through, err := leastDisturbed(b.calm, func(x sample) float64 { return x.others }, func() (sample, error) {
				return s.beside(ctx, kind, o, b.upstream.pid())
			})
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", name, s.name, err)
			}
			all[i].direct, all[i].through = append(all[i].direct, direct), append(all[i].through, through)
			say("round %d, %s, %s: p50 %s and p99 %s, directly %s and %s", n+1, name, s.name, millis(through.P50), millis(through.P99), millis(direct.P50), millis(direct.P99))
		}
	}
	return all, nil
}

// memory is what many open streams take.
func (b *gatewayBench) memory(ctx context.Context, g *gateway) error {
	if err := b.mock(ctx, upstreamOrder{Plain: upstreamAnswer, Events: upstreamEvents(30), Every: openPause}); err != nil {
		return err
	}
	for _, s := range b.subjects[1:] {
		done := make(chan error, 1)
		go func() {
			_, err := generate(ctx, loadOrder{Address: s.address, Request: s.stream, Duration: time.Second, Connections: openStreams})
			done <- err
		}()
		x := openSample{subject: s.name, streams: openStreams}
		for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			mb, err := residentMB(s.pid)
			if err != nil {
				return err
			}
			x.mb = max(x.mb, mb)
		}
		if err := <-done; err != nil {
			return fmt.Errorf("%d open streams, %s: %w", openStreams, s.name, err)
		}
		g.open = append(g.open, x)
		say("%d open streams, %s: %.0f MB", openStreams, s.name, x.mb)
	}
	return nil
}

func (b *gatewayBench) mock(ctx context.Context, o upstreamOrder) error {
	var address string
	return b.upstream.ask(ctx, o, &address)
}

// gatewayBody is a call of about a kilobyte.
func gatewayBody(stream bool) string {
	text := strings.Repeat("Summarise what follows in one sentence. ", 22)
	options := ""
	if stream {
		options = `"stream":true,"stream_options":{"include_usage":true},`
	}
	return `{"model":"gpt-4o-mini",` + options + `"max_tokens":300,"messages":[{"role":"user","content":"` + text + `"}]}`
}

// upstreamAnswer is about as long.
var upstreamAnswer = []byte(`{"id":"chatcmpl-bench","object":"chat.completion","created":1786147200,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"` +
	strings.Repeat("A short sentence of the answer. ", 22) + `"},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":180,"completion_tokens":154,"total_tokens":334}}`)

func upstreamEvents(n int) [][]byte {
	head := `data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1786147200,"model":"gpt-4o-mini","choices":[`
	var events [][]byte
	for range n {
		events = append(events, []byte(head+`{"index":0,"delta":{"content":"A few words. "},"logprobs":null,"finish_reason":null}]}`+"\n\n"))
	}
	events = append(events, []byte(head+`{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}`+"\n\n"),
		[]byte(head+`],"usage":{"prompt_tokens":180,"completion_tokens":154,"total_tokens":334}}`+"\n\ndata: [DONE]\n\n"))
	return slices.Clip(events)
}
