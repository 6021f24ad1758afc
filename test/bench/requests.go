package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/app"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/endusers"
	"turnpike/test/chaos/program"
)

// The request that is measured: a short question, answered in a sentence.
const (
	plainBody  = `{"model":"gpt-4o-mini","messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"What is the capital of France, and since when?"}]}`
	streamBody = `{"model":"gpt-4o-mini","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"What is the capital of France, and since when?"}]}`
	chatPath   = "/v1/chat/completions"
)

// anyKey is as long as a real key, for servers that don't check it.
var anyKey = strings.Repeat("x", 46)

func measureChat(b *bench) {
	servers := []*loaded{nil} // the bare server, once a response is known
	var answer, stream []byte
	for _, e := range b.engines {
		at, remove := b.newPlace(e)
		defer remove()
		server := must(b.binary().Serve(at, noLimits...))
		defer server.Kill()
		key := newAccounts(b.ctx, at, 1, testKey)[0].key
		servers = append(servers, &loaded{name: e.String(), address: addressOf(server.URL), pid: server.Pid(), database: e.pid,
			plain: chatRequest(chatPath, key, plainBody), stream: chatRequest(chatPath, key, streamBody)})
		if answer == nil {
			answer = must(callAPI(b.ctx, "POST", server.URL+chatPath, key, []byte(plainBody)))
			stream = must(callAPI(b.ctx, "POST", server.URL+chatPath, key, []byte(streamBody)))
		}
	}
	var address string
	events := bytes.SplitAfter(bytes.TrimSuffix(stream, []byte("\n\n")), []byte("\n\n"))
	events[len(events)-1] = append(bytes.Clone(events[len(events)-1]), "\n\n"...)
	bare := b.startChild(roleStatic, staticOrder{Plain: answer, Events: events, Ignore: true}, &address)
	defer bare.kill()
	servers[0] = &loaded{name: "bare net/http", address: address, pid: bare.pid(),
		plain: chatRequest("/plain", anyKey, plainBody), stream: chatRequest("/stream", anyKey, streamBody)}

	plain := b.throughput("chat", servers, false)
	b.atLeast(plain[1].ratio(plain[0], sample.rate), 0.35, "", "chat on SQLite against bare net/http")
	idle, afterCall := b.idleMemory()
	b.keyCheck()
	b.section("Chat, plain")
	b.requestTable(plain)
	b.section("Chat, streamed")
	b.requestTable(b.throughput("chat, streamed", servers, true))
	now, _ := memoryMB(servers[1].pid)
	b.fact("memory after start / after one request / after all chat above (SQLite)", megabytes(idle)+" / "+megabytes(afterCall)+" / "+megabytes(now))

	b.method("Chat: Turnpike is the release binary with its default settings. The durable request log is on, and no byte of a response leaves before its entry is committed. A test key calls `POST %s`, and the simulator answers without delay: the numbers show everything that Turnpike adds, which is HTTP, the key check, the request log and real token counts.", chatPath)
	b.method("The bare server is `net/http` with a handler that writes the bytes that Turnpike responded with (%d plain; %d in %d events when streamed, flushed one by one). It has no log and no key check, and doesn't read the request.", len(answer), len(stream), len(events))
	b.method("The load generator is a separate process: %d keep-alive connections over loopback, each sending its next request when the response to the last is complete, for %v after %v of warm-up. It reads every response to its end, and ends the run on any status but 200.", connections, b.duration, warmUp)
	b.method("Memory is the resident size, the highest within %v. The key check is a Go benchmark of `access.Authenticator` on SQLite with the key cached, including the reload every ten seconds.", settleTime)
}

func (b *bench) throughput(title string, servers []*loaded, stream bool, helpers ...int) []series {
	var subjects []subject
	for _, s := range servers {
		subjects = append(subjects, subject{s.name, func() sample { return b.underLoad(s, loadOrder{Stream: stream, Duration: b.duration}, helpers...) }})
	}
	return b.rounds(title, subjects...)
}

func (b *bench) requestTable(all []series) {
	b.table(all, rateColumn("requests"), ratioColumn, rateRounds, p50Column, p99Column, serverCPU("request"), databaseColumn, othersColumn)
}

func (b *bench) idleMemory() (idle, afterCall float64) {
	at := program.Place{Dir: filepath.Join(b.dir, "memory")}
	server := must(b.binary().Serve(at))
	defer server.Kill()
	idle = highestMB(server.Pid(), settleTime)
	key := newAccounts(b.ctx, at, 1, testKey)[0].key
	must(callAPI(b.ctx, "POST", server.URL+chatPath, key, []byte(plainBody)))
	afterCall = highestMB(server.Pid(), settleTime)
	b.atMost(idle, 45, "MB", "memory after start")
	b.atMost(afterCall, 60, "MB", "memory after one request")
	return idle, afterCall
}

func (b *bench) keyCheck() {
	at := program.Place{Dir: filepath.Join(b.dir, "keys")}
	key := newAccounts(b.ctx, at, 1, testKey)[0].key
	s := must(app.OpenStore(b.ctx, settings(at)))
	defer s.Close()
	auth := must(access.NewAuthenticator(s.DB, s.Ring, access.NewLastUsed(s.DB), time.Now))
	var micros []float64
	var texts []string
	for range b.options.rounds {
		var failed error
		result := testing.Benchmark(func(t *testing.B) {
			for t.Loop() {
				if _, failed = auth.Authenticate(b.ctx, key, "127.0.0.1"); failed != nil {
					t.FailNow()
				}
			}
		})
		check(failed)
		micros = append(micros, float64(result.NsPerOp())/1e3)
		texts = append(texts, number(micros[len(micros)-1], "µs"))
	}
	b.atMost(median(micros), 5, "µs", "key check, cached")
	b.fact("key check, cached, each round", strings.Join(texts, ", "))
}

const (
	slowProvider = 5 * time.Millisecond // at one connection
	manyStreams  = 500
	streamPause  = 100 * time.Millisecond
	openStreams  = 5000
	logEntries   = 1_000_000
	plentyOf     = 1_000_000_000 // credits
	manyUsers    = 10_000
)

// gatewayServers are a mock provider and what sends requests to it.
type gatewayServers struct {
	mock     *child
	provider string          // address of the mock
	servers  []*loaded       // a bare reverse proxy, then Turnpike on each engine
	places   []program.Place // of Turnpike
	programs []*program.Server
	stop     func()
}

// startGateway starts Turnpike with everything on: a key with a budget in a
// workspace with one, limits, and the durable log.
func (b *bench) startGateway(usual staticOrder) *gatewayServers {
	g := &gatewayServers{}
	var stops []func()
	g.stop = func() {
		for _, stop := range slices.Backward(stops) {
			stop()
		}
	}
	g.mock = b.startChild(roleStatic, usual, &g.provider)
	stops = append(stops, g.mock.kill)
	var proxied string
	proxy := b.startChild(roleProxy, g.provider, &proxied)
	stops = append(stops, proxy.kill)
	g.servers = []*loaded{newLoaded("httputil.ReverseProxy", proxied, proxy.pid(), anyKey)}
	g.servers[0].reconnect = true
	for _, e := range b.engines {
		at, remove := b.newPlace(e)
		stops = append(stops, remove)
		server := b.serveGateway(at, g.provider)
		stops = append(stops, server.Kill)
		g.servers, g.places = append(g.servers, b.loadWith(e, at, server, access.Key{}).loaded), append(g.places, at)
		g.programs = append(g.programs, server)
	}
	return g
}

// serveGateway starts Turnpike with the mock at the address as its provider.
func (b *bench) serveGateway(at program.Place, provider string) *program.Server {
	config := filepath.Join(at.Dir, "turnpike.yaml")
	text := fmt.Sprintf("providers:\n  - name: openai\n    type: openai\n    base_url: http://%s/v1\n    api_key: sk-bench\n", provider)
	check(os.WriteFile(config, []byte(text), 0o600))
	return must(b.binary().Serve(at, append([]string{"--config", config}, noLimits...)...))
}

// keyed is a server under load with a key of its own workspace.
type keyed struct {
	*loaded
	account
}

// loadWith creates a key like the given one, with a budget in a workspace with one.
func (b *bench) loadWith(e *engine, at program.Place, server *program.Server, like access.Key) keyed {
	budget := plentyOf * credits.Credit
	like.Tenant, like.MonthlyBudget = liveKey.Tenant, &budget
	a := newAccounts(b.ctx, at, 1, like)[0]
	must(callAPI(b.ctx, "PATCH", server.URL+"/v1/billing", a.key, fmt.Appendf(nil, `{"monthly_credits":%d}`, plentyOf)))
	s := newLoaded(e.String(), addressOf(server.URL), server.Pid(), a.key)
	s.database = e.pid
	return keyed{s, a}
}

// measureLimits measures requests to a mock provider with limits of models, budgets and end users.
func measureLimits(b *bench) {
	g := b.startGateway(usualResponse)
	defer g.stop()
	var limited []*loaded
	for i, e := range b.engines {
		for _, users := range []int{1, manyUsers} {
			limited = append(limited, b.loadWithUsers(e, g.places[i], g.programs[i], users))
		}
	}
	all := b.throughput("limits", slices.Concat(g.servers, limited), false, g.mock.pid())
	for i, s := range all[len(g.servers):] {
		b.atLeast(s.ratio(all[1+i/2], sample.rate), 0.95, "", "requests against a key without limits and users, %s", s.name)
	}
	b.section("Gateway, limits and end users")
	b.requestTable(all)
	b.method("Limits and users: the key is limited to `gpt-*`. In addition to its monthly budget, it has a budget per day and one per week for the model, a budget for its lifetime, rates for the model, and a limit for other models. Each request names an end user, one or %d in turn, who has a budget per day and a rate limit. The warm-up of %v meets all of them once, which acquires their leases.", manyUsers, warmUpUsers)
}

func (b *bench) loadWithUsers(e *engine, at program.Place, server *program.Server, users int) *loaded {
	s := b.loadWith(e, at, server, access.Key{Limits: benchLimits(), Allowed: catalog.Allowed{Models: catalog.Patterns{"gpt-*"}}})
	must(callAPI(b.ctx, "PATCH", server.URL+"/v1/users/settings", s.key,
		fmt.Appendf(nil, `{"from_requests":true,"default_limits":{"budget":%d,"window":"day","requests_per_minute":%d}}`, plentyOf, plentyOf/100)))
	d := must(app.OpenDatabase(b.ctx, settings(at)))
	defer d.Close()
	tenant := accounts.Tenant{WorkspaceID: s.workspace, Environment: accounts.Live}
	write(b.ctx, d, func(tx *db.Tx) {
		for i := range users {
			name := fmt.Sprintf("%s%0*d", userMark[:len(userMark)-userDigits], userDigits, i)
			must(endusers.Ensure(b.ctx, tx, endusers.Use{Tenant: tenant, Name: name, At: time.Now()}))
		}
	})
	s.users = users
	if s.name += ", limits and a user"; users > 1 {
		s.name = fmt.Sprintf("%s, limits and %d users", e, users)
	}
	s.plain = chatRequest(chatPath, s.key, strings.Replace(providerBody(false), "{", `{"user":"`+userMark+`",`, 1))
	return s.loaded
}

// benchLimits are a budget in three windows, of which two are for the measured model, and rates.
func benchLimits() []accounts.Limit {
	budget, rate := plentyOf*credits.Credit, int64(plentyOf/10)
	return []accounts.Limit{
		{Models: catalog.Patterns{"gpt-4o-mini"}, Budget: &budget, Window: accounts.WindowDay, RequestsPerMinute: &rate, TokensPerMinute: &rate},
		{Models: catalog.Patterns{"gpt-*"}, Budget: &budget, Window: accounts.WindowWeek},
		{Budget: &budget, Window: accounts.WindowLifetime},
		{Models: catalog.Patterns{"claude-*"}, Budget: &budget, Window: accounts.WindowMonth},
	}
}

var usualResponse = staticOrder{Plain: providerAnswer, Events: providerEvents(20)}

// measureGateway measures requests to a mock provider.
func measureGateway(b *bench) {
	g := b.startGateway(usualResponse)
	defer g.stop()
	mock, servers, places, usual := g.mock, g.servers, g.places, usualResponse
	direct := newLoaded("the mock itself", g.provider, mock.pid(), anyKey)

	plain := b.throughput("gateway", servers, false, mock.pid())
	for i, s := range plain[1:] {
		b.atLeast(s.ratio(plain[0], sample.rate), []float64{0.9, 0.8}[i], "", "requests to a provider against a bare reverse proxy, %s", s.name)
	}
	b.section("Gateway, plain")
	b.requestTable(plain)
	streams := b.throughput("gateway, streamed", servers, true, mock.pid())
	for i, s := range streams[1:] {
		b.atLeast(s.ratio(streams[0], sample.rate), []float64{0.8, 0.7}[i], "", "streams of a provider against a bare reverse proxy, %s", s.name)
	}
	b.section("Gateway, streamed")
	b.requestTable(streams)

	for _, at := range places {
		d := must(app.OpenDatabase(b.ctx, settings(at)))
		for from := 0; from < logEntries; from += logBatch {
			addLogEntries(b.ctx, d, logEntriesOf{"ws_other", []string{"key_a", "key_b"}, time.Now(), from, from + logBatch})
		}
		d.Close()
	}
	longLog := b.throughput("gateway with a long log", servers, false, mock.pid())
	for i, s := range longLog[1:] {
		b.atLeast(s.ratio(longLog[0], sample.rate)/plain[i+1].ratio(plain[0], sample.rate), 0.8, "", "the same ratio with %d log entries against before, %s", logEntries, s.name)
	}
	b.section("Gateway, plain, with %d log entries", logEntries)
	b.requestTable(longLog)

	b.section("Gateway, latency")
	columns := []column{p50Column, figureColumn("direct", "ms", func(x sample) float64 { return inMillis(x.directP50) }),
		p99Column, figureColumn("direct", "ms", func(x sample) float64 { return inMillis(x.directP99) })}
	usual.Delay = slowProvider
	mock.ask(b.ctx, usual, &g.provider)
	added := b.againstDirect("one connection", servers, direct, loadOrder{Duration: b.duration, Connections: 1})
	for _, s := range added[1:] {
		b.atMost(s.figure(func(x sample) float64 { return inMillis(x.p50 - x.directP50) }), 0.40, "ms", "time added to a request of 5 ms, median, %s", s.name)
	}
	b.text("One connection, a provider that takes %v:", slowProvider)
	b.table(added, columns...)
	mock.ask(b.ctx, staticOrder{Plain: providerAnswer, Events: providerEvents(10), Delay: streamPause, Every: streamPause}, &g.provider)
	first := b.againstDirect("first token", servers, direct, loadOrder{Stream: true, Duration: b.duration, Connections: manyStreams, FirstByte: true, Spread: 12 * streamPause})
	for _, s := range first[1:] {
		b.atMost(s.figure(func(x sample) float64 { return inMillis(x.p99 - x.directP99) }), 2, "ms", "time added to the first token at %d streams, p99, %s", manyStreams, s.name)
	}
	b.text("\nFirst token of %d concurrent streams:", manyStreams)
	b.table(first, columns...)

	mock.ask(b.ctx, staticOrder{Plain: providerAnswer, Events: providerEvents(30), Every: time.Second}, &g.provider)
	for _, s := range servers[1:] {
		name := fmt.Sprintf("memory with %d open streams, %s", openStreams, s.name)
		mb := b.openStreamsMemory(s)
		b.atMost(mb, 250, "MB", "%s", name)
		b.fact(name, megabytes(mb))
	}

	b.method("Gateway: a live key with a budget, in a workspace with a budget, calls a mock of OpenAI's API on this machine (%d bytes in, %d out; 22 events when streamed). Limits and the durable log are on. The mock is a separate process, and so is `httputil.ReverseProxy` in front of it, which has no keys, budgets or log. Their CPU isn't counted as the server's.", len(providerBody(false)), len(providerAnswer))
	b.method("Latency: the time that a server adds is the difference to calling the mock directly in the same round. For the first token the mock waits %v before a response and between events; the streams start one after the other over the time that one takes.", streamPause)
	b.method("Open streams: %d connections with one stream each that lasts half a minute. Memory is the highest resident size of 15 seconds.", openStreams)
}

func newLoaded(name, address string, pid int, key string) *loaded {
	return &loaded{name: name, address: address, pid: pid,
		plain: chatRequest(chatPath, key, providerBody(false)), stream: chatRequest(chatPath, key, providerBody(true))}
}

// againstDirect measures each server and, right before it, the mock itself.
func (b *bench) againstDirect(title string, servers []*loaded, direct *loaded, o loadOrder) []series {
	var subjects []subject
	for _, s := range servers {
		subjects = append(subjects, subject{s.name, func() sample {
			without := b.underLoad(direct, o)
			x := b.underLoad(s, o, direct.pid)
			x.directP50, x.directP99 = without.p50, without.p99
			return x
		}})
	}
	return b.rounds(title, subjects...)
}

func (b *bench) openStreamsMemory(s *loaded) float64 {
	done := make(chan error, 1)
	go func() {
		var r loadResult
		done <- b.load.tryAsk(b.ctx, loadOrder{Targets: []loadTarget{{s.address, s.stream}}, Duration: time.Second, Connections: openStreams}, &r)
	}()
	mb := highestMB(s.pid, 15*time.Second)
	check(<-done)
	say("%d open streams, %s: %s", openStreams, s.name, megabytes(mb))
	return mb
}

// Requests and responses have about a kilobyte.
func providerBody(stream bool) string {
	text := strings.Repeat("Summarise what follows in one sentence. ", 22)
	options := ""
	if stream {
		options = `"stream":true,"stream_options":{"include_usage":true},`
	}
	return `{"model":"gpt-4o-mini",` + options + `"max_tokens":300,"messages":[{"role":"user","content":"` + text + `"}]}`
}

var providerAnswer = []byte(`{"id":"chatcmpl-bench","object":"chat.completion","created":1786147200,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"` +
	strings.Repeat("A short sentence of the answer. ", 22) + `"},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":180,"completion_tokens":154,"total_tokens":334}}`)

func providerEvents(n int) (events [][]byte) {
	head := `data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1786147200,"model":"gpt-4o-mini","choices":[`
	for range n {
		events = append(events, []byte(head+`{"index":0,"delta":{"content":"A few words. "},"logprobs":null,"finish_reason":null}]}`+"\n\n"))
	}
	return append(events, []byte(head+`{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}`+"\n\n"),
		[]byte(head+`],"usage":{"prompt_tokens":180,"completion_tokens":154,"total_tokens":334}}`+"\n\ndata: [DONE]\n\n"))
}
