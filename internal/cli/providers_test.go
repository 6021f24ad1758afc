//go:build unix

package cli

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnpike/test/fakes/minisign"
	"turnpike/test/fakes/upstreams"
)

const storedKey = "sk-command-4f1c4b1ff3b84c2a9d07e6a1"

// run runs a command on the server's database.
func (s *testServer) run(stdin string, args ...string) (code int, out string) {
	var text strings.Builder
	code = Main(append(args, "--config", s.config, "--data", s.data), strings.NewReader(stdin), &text, &text)
	return code, text.String()
}

// must runs a command that must succeed, and print what is wanted.
func (s *testServer) must(stdin, want string, args ...string) string {
	s.t.Helper()
	code, out := s.run(stdin, args...)
	if code != 0 || !strings.Contains(out, want) {
		s.t.Fatalf("%s: exit code %d: %s; want 0 and %q", strings.Join(args, " "), code, out, want)
	}
	return out
}

// reject runs a command that must fail.
func (s *testServer) reject(want string, args ...string) {
	s.t.Helper()
	if code, out := s.run("", args...); code == 0 || !strings.Contains(out, want) {
		s.t.Errorf("%s: exit code %d: %s; want a failure and %q", strings.Join(args, " "), code, out, want)
	}
}

// eventually waits for a condition.
func (s *testServer) eventually(ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not within 30 s; log:\n%s", s.log)
		}
	}
}

// price returns the price of a model's input in GET /v1/models.
func (s *testServer) price(model string) (credits float64) {
	s.t.Helper()
	req, err := http.NewRequest(http.MethodGet, s.url+"/v1/models/"+model, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var m struct {
		Pricing struct {
			Input float64 `json:"input_per_million"`
		} `json:"pricing"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
		s.t.Fatal(err)
	}
	return m.Pricing.Input
}

func TestCommandsManageProvidersOfARunningServer(t *testing.T) {
	s := startServer(t)
	s.write(s.file("blue", s.blue) + "log.level: debug\n")
	up := upstreams.NewOpenAI(t, storedKey)
	up.Models = []string{"mine", "brand-new"}
	s.reject("rejects this key (401)", "providers", "add", "stored", "--type", "openai", "--base-url", up.BaseURL(), "--api-key-file", write(t, "key", "sk-wrong-4f1c4b1ff3b84c2a9d07"))
	fields := write(t, "fields.json", `{"models": [{"id": "mine", "price": {"input": 0.15, "output": 0.6}}]}`)
	said := s.must(storedKey+"\n", "Added provider stored.", "providers", "add", "stored", "--type", "openai", "--base-url", up.BaseURL(), "--api-key-file", "-", "--file", fields)
	s.eventually(func() bool { return s.price("mine") == 150 })
	said += s.must("", "…e6a1", "providers", "list") + s.must("", "mine responded", "providers", "test", "stored") + s.must("", "Changed provider", "providers", "update", "stored", "--local")
	if out := s.must("", "brand-new", "providers", "models", "stored"); strings.Index(out, "brand-new") > strings.Index(out, "mine") {
		t.Errorf("the unknown model isn't first: %s", out)
	}
	s.reject("The server's configuration defines the provider", "providers", "remove", "blue")
	s.must("", "Added route fast.", "routes", "add", "fast", "mine")
	s.must("", "fast", "routes", "list")
	s.must("", "Removed route fast.", "routes", "remove", "fast")

	// The file wins over the stored one, and doctor says so.
	file := s.file("blue", s.blue)
	s.write(file + strings.Replace(file[strings.Index(file, "  - name"):], "name: blue", "name: stored", 1))
	_, report := s.run("", "doctor")
	if !strings.Contains(report, "stored in the database is not used: The configuration also defines stored") || !strings.Contains(report, "turnpike providers remove stored") {
		t.Errorf("doctor says nothing about the shadowed provider: %s", report)
	}
	s.write(file)
	s.must("", "Removed provider stored.", "providers", "remove", "stored")
	if strings.Contains(said+report+s.log.String(), storedKey) {
		t.Error("the key of the provider is in the output of a command or in the server's log")
	}
}

func TestMarkupOfARunningServer(t *testing.T) {
	s := startServer(t)
	s.must("", "Markup: 0% (default)", "pricing", "show")
	priced := strings.Replace(s.file("blue", s.blue), "{id: m}", "{id: m, price: {input: 1, output: 1}}", 1)
	s.write(priced)
	s.must("", "Markup: 12.5% (database)", "pricing", "set", "12.5")
	s.eventually(func() bool { return s.price("m") == 1125 })
	s.reject("markup_percent", "pricing", "set", "1000.5")
	s.reject("markup_percent", "pricing", "set", "much")
	s.write(priced + "markup_percent: 0\n")
	s.eventually(func() bool { return s.price("m") == 1000 })
	s.must("", "Markup: 0% (configuration)", "pricing", "show")
	s.reject("configuration defines markup_percent", "pricing", "set", "5")
	if _, out := s.run("", "doctor"); !strings.Contains(out, "turnpike pricing reset") {
		t.Errorf("doctor says nothing about the shadowed markup: %s", out)
	}
	s.write(priced)
	s.must("", "Markup: 0% (default)", "pricing", "reset")
	s.eventually(func() bool { return s.price("m") == 1000 })
}

// sign writes a table and its signature, and returns the path.
func sign(t *testing.T, by minisign.Signer, content string) string {
	t.Helper()
	path := write(t, "models.json", content)
	if err := os.WriteFile(path+".minisig", by.Sign([]byte(content)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCatalogUpdateAppliesOnlySignedAndNewerTables(t *testing.T) {
	s := startServer(t)
	mine, other := minisign.NewSigner(1), minisign.NewSigner(2)
	file := s.file("blue", s.blue) + "  - {name: openai, type: openai, base_url: \"" + s.blue.URL + "\"}\n"
	table := func(asOf, input string) string {
		return `{"as_of":"` + asOf + `","models":[{"provider":"openai","id":"gpt-4o","kind":"chat","usd":{"input_per_million":"` + input + `","output_per_million":"10"}},` +
			`{"provider":"openai","id":"gpt-next","kind":"chat","usd":{"input_per_million":"1","output_per_million":"2"}}]}`
	}
	s.write(file)
	s.eventually(func() bool { return s.price("gpt-4o") == 2500 })
	today := time.Now().UTC().Format(time.DateOnly)
	good := sign(t, mine, table(today, "1.25"))
	s.reject("catalog_public_key", "catalog", "update", "--from", good, "--yes")
	file += "catalog_public_key: " + mine.PublicKey() + "\n"
	s.write(file)

	forged := sign(t, mine, table(today, "1.25"))
	if err := os.WriteFile(forged, []byte(table(today, "0.01")), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		forged:                                                                  "does not match",
		sign(t, other, table(today, "1")):                                       "does not match",
		sign(t, mine, table("2020-01-01", "1")):                                 "not newer",
		sign(t, mine, table("2999-01-01", "1")):                                 "in the future",
		sign(t, mine, table(today, "-1")):                                       "out of range",
		sign(t, mine, table(today, "much")):                                     "not a number",
		sign(t, mine, `{"as_of":"`+today+`","models":[]}`):                      "empty",
		sign(t, mine, `{"as_of":"`+today+`","modles":[]}`):                      "modles",
		sign(t, mine, strings.Replace(table(today, "1"), "chat", "chatter", 1)): "models[0].kind",
		sign(t, mine, strings.Replace(table(today, "1"), "-next", "-4o", 1)):    "listed twice",
		write(t, "unsigned.json", table(today, "1")):                            "minisig",
	} {
		s.reject(want, "catalog", "update", "--from", path, "--yes")
	}
	s.reject("pass --yes", "catalog", "update", "--from", good)
	s.must("", "built_in", "pricing", "show")

	out := s.must("", "Applied the table of "+today, "catalog", "update", "--from", good, "--yes")
	for _, want := range []string{"~ openai/gpt-4o input 2.5 → 1.25", "+ openai/gpt-next input 1, output 2", "- anthropic/claude-opus-5 "} {
		if !strings.Contains(out, want) {
			t.Errorf("the diff lacks %q: %s", want, out)
		}
	}
	s.eventually(func() bool { return s.price("gpt-4o") == 1250 && s.price("gpt-next") == 1000 })
	s.must("", "Price version: "+today+"+", "pricing", "show")
	s.reject("not newer", "catalog", "update", "--from", good, "--yes")
	s.must("", "built_in", "catalog", "reset")
	s.eventually(func() bool { return s.price("gpt-4o") == 2500 })
	s.reject("already use the built-in", "catalog", "reset")
}
