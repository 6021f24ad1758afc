//go:build browser

package browser_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"

	"turnpike/test/npm"
)

const (
	minScore       = 0.95 // of accessibility and best practices
	maxMeasuredCLS = 0.02 // cumulative layout shift
)

// report is the part of Lighthouse's report that the test reads.
type report struct {
	FinalURL   string `json:"finalDisplayedUrl"`
	Categories map[string]struct {
		Score     *float64
		AuditRefs []struct{ ID string }
	}
	Audits map[string]struct {
		Title        string
		Score        *float64
		NumericValue float64
	}
	RuntimeError *struct{ Code, Message string }
}

// maxTries is how often a page is measured at most. Lighthouse asks for another try if Chromium's trace has no start
// of the navigation, which happens about once in 30 pages.
const maxTries = 3

// lighthouse measures a page in a new Chromium.
type lighthouse struct {
	command, cookie string
	env             []string
}

func newLighthouse(t *testing.T) *lighthouse {
	t.Helper()
	modules, err := npm.Install("lighthouse")
	if err != nil {
		t.Fatal(err)
	}
	env, err := npm.Environment(modules)
	if err != nil {
		t.Fatal(err)
	}
	chrome, err := findChromium()
	if err != nil {
		t.Fatal(err)
	}
	return &lighthouse{command: filepath.Join(modules, ".bin", "lighthouse"), env: append(env, "CHROME_PATH="+chrome)}
}

func (l *lighthouse) measure(t *testing.T, address, form string) *report {
	t.Helper()
	flags := []string{"--headless=new"}
	if os.Getuid() == 0 { // the sandbox doesn't work as root
		flags = append(flags, "--no-sandbox")
	}
	// The machine may be busy, so the speed isn't checked, and nothing is slowed down. Live pages never stop loading.
	args := []string{address, "--quiet", "--output=json", "--only-categories=accessibility,best-practices,performance", "--throttling-method=provided", "--max-wait-for-load=10000", "--chrome-flags=" + strings.Join(flags, " ")}
	if form == "desktop" {
		args = append(args, "--preset=desktop")
	}
	if l.cookie != "" {
		headers, _ := json.Marshal(map[string]string{"Cookie": l.cookie}) // cannot fail
		args = append(args, "--extra-headers="+string(headers))
	}
	for try := 1; ; try++ {
		cmd := exec.CommandContext(t.Context(), l.command, args...)
		cmd.Env, cmd.Dir, cmd.Stderr = l.env, t.TempDir(), os.Stderr
		out, runErr := cmd.Output() // also fails if the report has an error
		r := &report{}
		if err := json.Unmarshal(out, r); err != nil {
			t.Fatalf("lighthouse %s: %v, %v", address, err, runErr)
		}
		switch {
		case r.RuntimeError == nil && runErr == nil:
			return r
		case r.RuntimeError == nil:
			t.Fatalf("lighthouse %s: %v", address, runErr)
		case r.RuntimeError.Code != "NO_NAVSTART" || try == maxTries:
			t.Fatalf("lighthouse %s: %s", address, r.RuntimeError.Message)
		}
		t.Logf("lighthouse %s: measured again: %s", address, r.RuntimeError.Message)
	}
}

func TestLighthouseScores(t *testing.T) {
	t.Parallel()
	l := newLighthouse(t)
	j := newJourney(t, "lighthouse")
	j.becomeOwner()
	workspace := j.path()
	for range 20 {
		body := strings.NewReader(`{"model":"gpt-5.4-mini","messages":[{"role":"user","content":"Hello!"}]}`)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, j.base+"/v1/chat/completions", body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+j.key)
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != http.StatusOK || response.Body.Close() != nil {
			t.Fatalf("a request failed: %s", response.Status)
		}
	}
	var cookies []string
	for _, c := range call(j.tab, network.GetCookies, network.GetCookiesParams{}).Cookies {
		cookies = append(cookies, c.Name+"="+c.Value)
	}
	for _, form := range []string{"desktop", "mobile"} {
		for name, path := range map[string]string{"sign-in": "/dashboard/login", "Home": workspace, "Requests": workspace + "requests", "Playground": workspace + "playground", "settings": workspace + "settings"} {
			l.cookie = strings.Join(cookies, "; ")
			if name == "sign-in" {
				l.cookie = "" // who is signed in sees Home
			}
			r := l.measure(t, j.base+path, form)
			if !strings.HasSuffix(r.FinalURL, path) {
				t.Errorf("%s: Lighthouse measured %s", name, r.FinalURL)
			}
			for _, category := range []string{"accessibility", "best-practices"} {
				c := r.Categories[category]
				if c.Score == nil || *c.Score < minScore {
					t.Errorf("%s (%s): %s is %v, want at least %v", name, form, category, c.Score, minScore)
				}
				for _, ref := range c.AuditRefs {
					if a := r.Audits[ref.ID]; a.Score != nil && *a.Score < minScore {
						t.Logf("%s (%s): %s: %s", name, form, ref.ID, a.Title)
					}
				}
			}
			shift := r.Audits["cumulative-layout-shift"]
			if shift.Score == nil || shift.NumericValue > maxMeasuredCLS {
				t.Errorf("%s (%s): the layout shifts by %.3f, want at most %.2f", name, form, shift.NumericValue, maxMeasuredCLS)
			}
			t.Logf("%s (%s): accessibility %.0f, best practices %.0f, layout shift %.4f", name, form, 100**r.Categories["accessibility"].Score, 100**r.Categories["best-practices"].Score, shift.NumericValue)
		}
	}
}
