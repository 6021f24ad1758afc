package dashboard

import (
	"fmt"
	"strings"

	"turnpike/internal/access"
)

// codeTab is an example in one language, for the template part code-tabs.
type codeTab struct {
	Language string // a name in languages
	Code     string
}

// languages are the titles of the tabs.
var languages = map[string]string{"curl": "curl", "python": "Python", "typescript": "TypeScript", "go": "Go", "env": ".env"}

// Title returns the tab's title.
func (t codeTab) Title() string { return languages[t.Language] }

// exampleModel is the model of the examples.
const exampleModel = "gpt-5.4-mini"

// snippetKey is a key as it is written in each language: its secret, or an environment variable.
type snippetKey struct{ shell, python, typescript, golang string }

var environmentKey = snippetKey{"$TURNPIKE_API_KEY", `os.environ["TURNPIKE_API_KEY"]`, "process.env.TURNPIKE_API_KEY", `os.Getenv("TURNPIKE_API_KEY")`}

func secretKey(secret string) snippetKey {
	quoted := fmt.Sprintf("%q", secret)
	return snippetKey{secret, quoted, quoted, quoted}
}

// chatTabs are a first request.
func (req *request) chatTabs(k snippetKey) []codeTab {
	base := req.s.PublicURL
	return []codeTab{
		{"curl", "curl " + base + "/v1/chat/completions \\\n  -H \"Authorization: Bearer " + k.shell + "\" \\\n  -H \"Content-Type: application/json\" \\\n" +
			`  -d '{"model":"` + exampleModel + `","messages":[{"role":"user","content":"Hello!"}]}'`},
		{"python", k.pythonClient(base) + `response = client.chat.completions.create(
    model="` + exampleModel + `",
    messages=[{"role": "user", "content": "Hello!"}],
)
print(response.choices[0].message.content)`},
		{"typescript", k.typescriptClient(base) + `const response = await client.chat.completions.create({
  model: "` + exampleModel + `",
  messages: [{ role: "user", content: "Hello!" }],
});
console.log(response.choices[0].message.content);`},
		{"go", k.goProgram(base, `	response, err := client.Chat.Completions.New(context.Background(), openai.ChatCompletionNewParams{
		Model:    "`+exampleModel+`",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello!")},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(response.Choices[0].Message.Content)`)},
	}
}

// modelsTabs list the models, for keys that may not call them.
func (req *request) modelsTabs(k snippetKey) []codeTab {
	base := req.s.PublicURL
	return []codeTab{
		{"curl", "curl " + base + "/v1/models \\\n  -H \"Authorization: Bearer " + k.shell + "\""},
		{"python", k.pythonClient(base) + "for model in client.models.list():\n    print(model.id)"},
		{"typescript", k.typescriptClient(base) + "for await (const model of client.models.list()) {\n  console.log(model.id);\n}"},
		{"go", k.goProgram(base, `	models, err := client.Models.List(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, model := range models.Data {
		fmt.Println(model.ID)
	}`)},
	}
}

func (k snippetKey) pythonClient(base string) string {
	imports := "from openai import OpenAI  # pip install openai\n\n"
	if strings.HasPrefix(k.python, "os.") {
		imports = "import os\n" + imports
	}
	return imports + "client = OpenAI(base_url=\"" + base + "/v1\", api_key=" + k.python + ")\n"
}

func (k snippetKey) typescriptClient(base string) string {
	return "import OpenAI from \"openai\"; // npm install openai\n\nconst client = new OpenAI({ baseURL: \"" + base + "/v1\", apiKey: " + k.typescript + " });\n"
}

func (k snippetKey) goProgram(base, body string) string {
	imports := "\t\"context\"\n\t\"fmt\"\n\t\"log\"\n"
	if strings.HasPrefix(k.golang, "os.") {
		imports += "\t\"os\"\n"
	}
	return "package main\n\nimport (\n" + imports + "\n\t\"github.com/openai/openai-go/v3\"\n\t\"github.com/openai/openai-go/v3/option\"\n)\n\nfunc main() {\n" +
		"\tclient := openai.NewClient(option.WithBaseURL(\"" + base + "/v1\"), option.WithAPIKey(" + k.golang + "))\n" + body + "\n}"
}

// keyTabs are a request that a key may send, and the variables of a .env file.
func (req *request) keyTabs(k *access.Key, secret string) []codeTab {
	tabs := req.modelsTabs(secretKey(secret))
	if _, grant, err := access.ParseScopes(k.Scopes); err == nil && grant.Allows(access.ChatCompletionsCreate) {
		tabs = req.chatTabs(secretKey(secret))
	}
	return append(tabs, codeTab{"env", "TURNPIKE_BASE_URL=" + req.s.PublicURL + "\nTURNPIKE_API_KEY=" + secret + "\n# OpenAI's SDKs read these:\nOPENAI_BASE_URL=" + req.s.PublicURL + "/v1\nOPENAI_API_KEY=" + secret})
}

// verifyTabs are the verification of a webhook's signature, and for curl a signed event that a receiver accepts.
func verifyTabs() []codeTab {
	return []codeTab{
		{"curl", `# Sends a signed event to your receiver. Set WEBHOOK_SECRET to the endpoint's secret.
URL=http://localhost:3000/hooks
body='{"id":"evt_example","object":"event","type":"test","data":{}}'
timestamp=$(date +%s)
signature=$(printf '%s.%s' "$timestamp" "$body" | openssl dgst -sha256 -hmac "$WEBHOOK_SECRET" | sed 's/.* //')
curl -i "$URL" -H "Content-Type: application/json" --data-binary "$body" \
  -H "Service-Event-Id: dlv_example" \
  -H "Service-Timestamp: $timestamp" \
  -H "Service-Signature: $signature"`},
		{"python", `import hashlib, hmac, time

def verify(body: bytes, headers, secret: str) -> int:
    timestamp = headers.get("Service-Timestamp", "")
    if not (timestamp.isascii() and timestamp.isdigit()) or abs(time.time() - int(timestamp)) > 300:
        return 400
    expected = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    signature = headers.get("Service-Signature", "")
    return 200 if hmac.compare_digest(signature.encode(), expected.encode()) else 401`},
		{"typescript", `import { createHmac, timingSafeEqual } from "node:crypto";

function verify(body: Buffer, headers: Record<string, string>, secret: string): 200 | 400 | 401 {
  const timestamp = headers["service-timestamp"] ?? "";
  if (!/^\d+$/.test(timestamp) || Math.abs(Date.now() / 1000 - Number(timestamp)) > 300) return 400;
  const expected = Buffer.from(createHmac("sha256", secret).update(` + "`${timestamp}.`" + `).update(body).digest("hex"));
  const signature = Buffer.from(headers["service-signature"] ?? "");
  return signature.length === expected.length && timingSafeEqual(signature, expected) ? 200 : 401;
}`},
		{"go", `// Package webhook is a single file of Turnpike without dependencies: webhook/webhook.go
body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 2<<20))
if err != nil {
	http.Error(w, "cannot read the body", http.StatusBadRequest)
	return
}
switch err := webhook.Verify(body, r.Header, secret); {
case errors.Is(err, webhook.ErrStale), errors.Is(err, webhook.ErrBadTimestamp):
	http.Error(w, err.Error(), http.StatusBadRequest)
	return
case err != nil:
	http.Error(w, err.Error(), http.StatusUnauthorized)
	return
}
event, err := webhook.Parse(body)`},
	}
}

// tokenTabs exchange a token of an issuer for a scoped token.
func tokenTabs(endpoint, rule string) []codeTab {
	const grant, kind = "urn:ietf:params:oauth:grant-type:token-exchange", "urn:ietf:params:oauth:token-type:jwt"
	return []codeTab{
		{"curl", "curl " + endpoint + " \\\n  -d grant_type=" + grant + " \\\n  -d subject_token_type=" + kind + " \\\n  -d client_id=" + rule + ` -d subject_token="$TOKEN"`},
		{"python", `import json, os
from urllib.parse import urlencode
from urllib.request import urlopen

fields = {
    "grant_type": "` + grant + `",
    "subject_token_type": "` + kind + `",
    "client_id": "` + rule + `",
    "subject_token": os.environ["TOKEN"],
}
with urlopen("` + endpoint + `", urlencode(fields).encode()) as response:
    api_key = json.load(response)["access_token"]`},
		{"typescript", `const response = await fetch("` + endpoint + `", {
  method: "POST",
  body: new URLSearchParams({
    grant_type: "` + grant + `",
    subject_token_type: "` + kind + `",
    client_id: "` + rule + `",
    subject_token: process.env.TOKEN!,
  }),
});
const { access_token: apiKey } = await response.json();`},
		{"go", `response, err := http.PostForm("` + endpoint + `", url.Values{
	"grant_type":         {"` + grant + `"},
	"subject_token_type": {"` + kind + `"},
	"client_id":          {"` + rule + `"},
	"subject_token":      {os.Getenv("TOKEN")},
})
if err != nil {
	log.Fatal(err)
}
defer response.Body.Close()
var token struct {
	APIKey string ` + "`json:\"access_token\"`" + `
}
if err := json.NewDecoder(response.Body).Decode(&token); err != nil {
	log.Fatal(err)
}`},
	}
}
