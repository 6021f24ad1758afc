package api

import (
	"net/http"

	"turnpike/internal/fault"
)

// publicMux is what needs no key: health, the reference.
func (s *Server) publicMux() *http.ServeMux {
	mux := http.NewServeMux()
	public := func(pattern string, fn func(c *Call)) {
		mux.HandleFunc(pattern, func(_ http.ResponseWriter, r *http.Request) { fn(callOf(r)) })
	}
	public("GET /healthz", func(c *Call) { c.send(http.StatusOK, jsonType, []byte(`{"status":"ok"}`)) })
	public("GET /readyz", func(c *Call) {
		if err := s.DB.Ping(c.Context()); err != nil {
			c.fail(storageFault(err))
			return
		}
		c.send(http.StatusOK, jsonType, []byte(`{"status":"ok"}`))
	})
	r := reference()
	public("GET /openapi.json", r.json.serve)
	public("GET /openapi.yaml", r.yaml.serve)
	public("GET /docs", r.page.serve)
	public("GET /docs/docs.css", r.css.serve)
	public("/", func(c *Call) {
		c.fail(fault.New(fault.NotFound, "there is nothing at %s; the interface is under /v1 and its reference at /docs", masked(c.r.URL.Path, maxLoggedText)))
	})
	return mux
}
