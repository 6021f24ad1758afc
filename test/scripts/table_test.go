package scripts_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"turnpike/test/fakes/minisign"
)

// publish FILE: serves a model table and its signature over HTTPS. Its date, TODAY, becomes the current one. The
// commands that follow trust the server's certificate and the signer.
func publish(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: publish FILE")
	}
	table := []byte(strings.ReplaceAll(ts.ReadFile(args[0]), "TODAY", time.Now().UTC().Format(time.DateOnly)))
	signer := minisign.NewSigner(1)
	files := http.NewServeMux()
	files.HandleFunc("GET /models.json", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(table) })
	files.HandleFunc("GET /models.json.minisig", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(signer.Sign(table)) })
	server := httptest.NewTLSServer(files)
	ts.Defer(server.Close)
	trusted := ts.MkAbs("table.pem")
	ts.Check(os.WriteFile(trusted, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	ts.Setenv("SSL_CERT_FILE", trusted)
	ts.Setenv("TABLE", server.URL)
	ts.Setenv("TURNPIKE_CATALOG_PUBLIC_KEY", signer.PublicKey())
}
