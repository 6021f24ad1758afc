package gateway

import (
	"net/http"
	"strings"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/providers"
)

// BenchmarkRun measures the gateway itself with a body of 1 kB, a provider that responds
// immediately and a log that writes nothing.
func BenchmarkRun(b *testing.B) {
	body := `{"model":"small","max_tokens":100,"temperature":0.7,"messages":[{"role":"system","content":"You are helpful."},{"role":"user","content":"` + strings.Repeat("word ", 180) + `"}]}`
	for name, fields := range map[string]string{"plain": "", "stream": `"stream":true,`, "list": `"models":["large"],`, "image": `"image":1,`, "auto": ""} {
		b.Run(name, func(b *testing.B) {
			body := body
			if name == "auto" {
				body = strings.Replace(body, `"small"`, `"auto:cheapest"`, 1)
			}
			text := []byte("{" + fields + body[1:])
			p := newFake("one", respond(10, 5))
			r := newFixture(b, []providers.Provider{p})
			if name == "auto" {
				r = newFixture(b, []providers.Provider{p}, tieredSupplier())
			}
			month := *r.budget * 1000
			r.budget, r.current.Load().Rates = &month, Rates{}
			principal := &access.Principal{Tenant: accounts.Tenant{WorkspaceID: r.workspace, Environment: accounts.Live}, KeyID: testKey}
			var log *audit.Log
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%1000 == 0 { // a stopped log writes nothing and frees nothing
					group := db.NewGroup(r.db)
					group.Stop()
					log = audit.NewLog(group, nil, nil)
				}
				p.requests = p.requests[:0]
				c := Call{Principal: principal, Record: log.Open(audit.Entry{}), Body: text, Header: http.Header{}}
				response, err := r.Chat(b.Context(), c)
				if err != nil {
					b.Fatal(err)
				}
				if response.Stream != nil {
					_, _ = readAll(response.Stream)
					_ = response.Stream.Close()
				}
				c.Record.Note(func(e *audit.Entry) { e.Hold.Release() })
			}
		})
	}
}
