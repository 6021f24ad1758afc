package api

import (
	"net/http"

	"turnpike/internal/files"
)

// publicMux is what needs no key: health, the reference, files, whose URLs are
// signed, and reports of leaked keys.
func (s *Server) publicMux() *http.ServeMux {
	mux := http.NewServeMux()
	public := func(pattern string, fn func(c *Call)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { fn(callOf(w)) })
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
	if s.Files != nil {
		public("GET "+files.Prefix, func(c *Call) { c.serveFile() })
		public("OPTIONS "+files.Prefix, func(c *Call) {
			if isPreflight(c.r) { // a page that asks for parts of a video, say
				c.answerPreflight()
				return
			}
			c.serveFile()
		})
	}
	if s.Leaks != nil {
		s.leakRoutes(public)
	}
	answerTheRest(mux)
	return mux
}
