package dashboard_test

import (
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
	"turnpike/webhook"
)

func TestSignatureIsVerifiedByTheCodeInEveryTab(t *testing.T) {
	t.Parallel()
	const secret = "whsec_c2VjcmV0IG9mIHRoZSBlbmRwb2ludA=="
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		page := b.get(t, b.in(accounts.Test, "webhooks")).shows(t, `role="radiogroup" aria-label="Language"`, ">curl<", ">Python<", ">TypeScript<", ">Go<")
		code := func(language string) string {
			page.find(t, `data-copy="#verify-`+language+`"`)
			return html.UnescapeString(page.find(t, `(?s)<pre id="verify-`+language+`"[^>]*>(.*?)</pre>`))
		}
		run := func(t *testing.T, program string, args ...string) string {
			t.Helper()
			cmd := exec.CommandContext(t.Context(), program, args...)
			cmd.Env = append(os.Environ(), "WEBHOOK_SECRET="+secret)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v:\n%s", err, out)
			}
			return string(out)
		}
		for _, language := range []string{"typescript", "go"} { // which the guide's tests run
			if !strings.Contains(code(language), "erify(") {
				t.Errorf("the code in %s verifies nothing:\n%s", language, code(language))
			}
		}
		t.Run("curl", func(t *testing.T) {
			verified := make(chan error, 1)
			receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err == nil {
					err = webhook.Verify(body, r.Header, secret)
				}
				verified <- err
			}))
			defer receiver.Close()
			run(t, "openssl", "version")
			run(t, "sh", "-c", strings.Replace(code("curl"), "http://localhost:3000/hooks", receiver.URL, 1))
			if err := <-verified; err != nil {
				t.Error(err)
			}
		})
		t.Run("python", func(t *testing.T) {
			body, now := []byte(`{"type":"test"}`), time.Now()
			header := http.Header{}
			if err := webhook.Sign(header, "dlv_1", now, body, secret); err != nil {
				t.Fatal(err)
			}
			call := "\nheaders = {'Service-Timestamp': '" + strconv.FormatInt(now.Unix(), 10) + "', 'Service-Signature': '" + header.Get(webhook.HeaderSignature) + "'}\n" +
				"print(verify(b'" + string(body) + "', headers, '" + secret + "'), verify(b'{}', headers, '" + secret + "'), verify(b'{}', {}, '" + secret + "'))"
			if got, want := strings.TrimSpace(run(t, "python3", "-c", code("python")+call)), "200 401 400"; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	})
}
