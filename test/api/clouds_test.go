package api_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnpike/internal/config"
	"turnpike/test/fakes/clouds"
	"turnpike/test/harness"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// cloudClient starts a server with one provider.
func cloudClient(t *testing.T, p config.Provider) *gatewayClient {
	t.Helper()
	p.Weight = 1
	return newGateway(t, "sqlite", func(cfg *config.Config) { cfg.Providers, cfg.Routes = []config.Provider{p}, nil })
}

// wantHello makes a chat request and checks the response.
func (m *gatewayClient) wantHello(t *testing.T, from string, b map[string]any) *harness.Response {
	t.Helper()
	r := m.chat(t, b)
	if r.Status != 200 || !strings.Contains(string(r.Body), "Hello from "+from) {
		t.Fatalf("got %d %s, want a response from %s", r.Status, r.Body, from)
	}
	return r
}

func TestAzureWithEntra(t *testing.T) {
	issuer := clouds.NewKey(t)
	assertion := func() string {
		return issuer.Sign(t, map[string]any{"iss": "https://issuer.example", "sub": "system:serviceaccount:turnpike", "aud": "api://AzureADTokenExchange", "exp": time.Now().Add(time.Hour).Unix()})
	}
	for name, c := range map[string]struct {
		azure  clouds.Azure
		signIn config.SignIn
	}{
		"secret":    {clouds.Azure{Tenant: "tenant-1", Client: "client-1", Secret: "s3cret-value"}, config.SignIn{ClientSecret: "s3cret-value"}},
		"federated": {clouds.Azure{Tenant: "tenant-1", Client: "client-1", Federated: issuer}, config.SignIn{TokenFile: writeFile(t, assertion()+"\n")}},
	} {
		t.Run(name, func(t *testing.T) {
			server := clouds.NewAzure(t, c.azure)
			sign := c.signIn
			sign.With, sign.TenantID, sign.ClientID, sign.Authority = config.Entra, "tenant-1", "client-1", config.Address(server.URL)
			for api, p := range map[string]config.Provider{
				"dated": {BaseURL: config.Address(server.URL + "/openai"), APIVersion: "2024-10-21"},
				"v1":    {BaseURL: config.Address(server.URL + "/openai/v1")},
			} {
				p.Name, p.Type, p.Catalog, p.SignIn = "azure", config.OpenAI, "openai", &sign
				p.Models = []config.ProviderModel{{ID: "gpt-4o", Upstream: "gpt-4o", Price: price("2", "8", "")}}
				m := cloudClient(t, p)
				before := server.Issued()
				for range 3 {
					m.wantHello(t, "Azure", body("gpt-4o", "hi", nil))
				}
				if n := server.Issued() - before; n != 1 {
					t.Errorf("%s: 3 requests needed %d tokens, want 1", api, n)
				}
				if last := server.Last(); api == "dated" && last.Path != "/openai/deployments/gpt-4o/chat/completions" || api == "v1" && last.Path != "/openai/v1/chat/completions" {
					t.Errorf("%s: the path is %s", api, last.Path)
				}
			}
			if refused := server.Refused(); len(refused) > 0 {
				t.Errorf("refused: %v", refused)
			}
		})
	}
	// A wrong secret is an error of the operator, and isn't shown to clients.
	server := clouds.NewAzure(t, clouds.Azure{Tenant: "tenant-1", Client: "client-1", Secret: "right"})
	m := cloudClient(t, config.Provider{Name: "azure", Type: config.OpenAI, Catalog: "openai", BaseURL: config.Address(server.URL + "/openai/v1"),
		SignIn: &config.SignIn{With: config.Entra, TenantID: "tenant-1", ClientID: "client-1", ClientSecret: "wrong-secret", Authority: config.Address(server.URL)}})
	if r := m.chat(t, body("gpt-4o", "hi", nil)).Want(t, 502, "upstream_error"); strings.Contains(string(r.Body), "AADSTS") || strings.Contains(string(r.Body), "wrong-secret") {
		t.Errorf("got %s", r.Body)
	}
}

func TestVertexWithGoogle(t *testing.T) {
	const audience = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/oidc"
	key := clouds.NewKey(t)
	server := clouds.NewGoogle(t, clouds.Google{Account: "turnpike@p.iam.gserviceaccount.com", Key: key, Audience: audience, Subject: "pod-1"})
	account, _ := json.Marshal(map[string]string{"type": "service_account", "project_id": "p", "private_key_id": "k1", "private_key": key.PEM(t),
		"client_email": "turnpike@p.iam.gserviceaccount.com", "token_uri": server.URL + "/token"})
	subject := writeFile(t, key.Sign(t, map[string]any{"sub": "pod-1", "exp": time.Now().Add(time.Hour).Unix()}))
	workload, _ := json.Marshal(map[string]any{"type": "external_account", "audience": audience, "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
		"token_url": server.URL + "/sts", "credential_source": map[string]any{"file": subject}})
	for name, credentials := range map[string]string{"service account": string(account), "workload identity": string(workload)} {
		t.Run(name, func(t *testing.T) {
			sign := &config.SignIn{With: config.Google, CredentialsFile: writeFile(t, credentials)}
			base := config.Address(server.URL + clouds.GoogleBase + "/publishers/")
			m := cloudClient(t, config.Provider{Name: "vertex", Type: config.Gemini, BaseURL: base + "google", SignIn: sign,
				Models: []config.ProviderModel{{ID: "gemini-2.5-flash", Upstream: "gemini-2.5-flash"}}})
			m.wantHello(t, "Gemini", body("gemini-2.5-flash", "hi", nil))
			if path := server.Last().Path; path != clouds.GoogleBase+"/publishers/google/models/gemini-2.5-flash:generateContent" {
				t.Errorf("the path is %s", path)
			}
			server.RevokeTokens()

			m = cloudClient(t, config.Provider{Name: "vertex", Type: config.Anthropic, BaseURL: base + "anthropic", SignIn: sign,
				Models: []config.ProviderModel{{ID: "claude-sonnet-4-5", Upstream: "claude-sonnet-4-5@20250929"}}})
			m.wantHello(t, "Claude", body("claude-sonnet-4-5", "hi", nil))
			if path := server.Last().Path; path != clouds.GoogleBase+"/publishers/anthropic/models/claude-sonnet-4-5@20250929:rawPredict" {
				t.Errorf("the path is %s", path)
			}
			m.wantHello(t, "Claude", body("claude-sonnet-4-5", "hi", map[string]any{"stream": true}))
			if path := server.Last().Path; !strings.HasSuffix(path, ":streamRawPredict") {
				t.Errorf("the path of a stream is %s", path)
			}
			m.wantMessages(t)
			if refused := server.Refused(); len(refused) > 0 {
				t.Errorf("refused: %v", refused)
			}
		})
	}
}

// wantMessages makes requests in Anthropic's format.
func (m *gatewayClient) wantMessages(t *testing.T) {
	t.Helper()
	in := map[string]any{"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": []any{map[string]any{"role": "user", "content": "hi"}}}
	if r := m.ask(t, "POST", "/v1/messages", in).Want(t, 200, ""); !strings.Contains(string(r.Body), "Hello from Claude") {
		t.Errorf("got %s", r.Body)
	}
	in["stream"] = true
	if r := m.ask(t, "POST", "/v1/messages", in).Want(t, 200, ""); !strings.Contains(string(r.Body), "event: message_stop") {
		t.Errorf("the stream is %s", r.Body)
	}
	delete(in, "stream")
	delete(in, "max_tokens")
	if r := m.ask(t, "POST", "/v1/messages/count_tokens", in).Want(t, 200, ""); r.At("input_tokens") != 7.0 {
		t.Errorf("the count is %s", r.Body)
	}
}

func TestBedrockWithSignatures(t *testing.T) {
	a := &clouds.AWS{AccessKey: "AKIAEXAMPLE", SecretKey: "secret/key+example", SessionToken: "session-token-example", Region: "eu-central-1"}
	server := clouds.NewBedrock(t, a)
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY", "AWS_SECRET_KEY"} {
		t.Setenv(name, "")
	}
	file := writeFile(t, "[bedrock]\naws_access_key_id = AKIAEXAMPLE\naws_secret_access_key = secret/key+example\naws_session_token = session-token-example\n")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	const upstream = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
	p := config.Provider{Name: "bedrock", Type: config.Anthropic, BaseURL: config.Address(server.URL), SignIn: &config.SignIn{With: config.AWS, Region: a.Region, Profile: "bedrock"},
		Models: []config.ProviderModel{{ID: "claude-sonnet-4-5", Upstream: upstream}}}
	m := cloudClient(t, p)
	r := m.wantHello(t, "Claude", body("claude-sonnet-4-5", "hi", nil))
	if path := server.Last().Path; path != "/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/invoke" {
		t.Errorf("the path is %s", path)
	}
	if e := m.entry(t, r); e.At("input_tokens") != 5.0 || e.At("output_tokens") != 3.0 || e.At("credits") == 0.0 { // the price of the table
		t.Errorf("the log entry is %s", e.Body)
	}
	m.wantHello(t, "Claude", body("claude-sonnet-4-5", "hi", map[string]any{"stream": true}))
	m.wantMessages(t)
	if refused := server.Refused(); len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
	// An exception inside a stream is an error of the stream.
	a.Exception = "throttlingException"
	if r := m.chat(t, body("claude-sonnet-4-5", "hi", map[string]any{"stream": true})); !strings.Contains(string(r.Body), "error") || strings.Contains(string(r.Body), "[DONE]") {
		t.Errorf("after an exception: %d %s", r.Status, r.Body)
	}
	a.Exception = ""

	// The server checks the signature: another secret is refused, and the environment comes first.
	t.Setenv("AWS_ACCESS_KEY_ID", a.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "another")
	t.Setenv("AWS_SESSION_TOKEN", a.SessionToken)
	cloudClient(t, p).chat(t, body("claude-sonnet-4-5", "hi", nil)).Want(t, 502, "upstream_error")
	if refused := server.Refused(); len(refused) == 0 || refused[0] != "the signature does not match" {
		t.Errorf("refused: %v", refused)
	}
}

// TestBedrockConverse serves a model that has only the Converse API to all faces.
func TestBedrockConverse(t *testing.T) {
	a := &clouds.AWS{AccessKey: "AKIAEXAMPLE", SecretKey: "secret/key+example", Region: "eu-central-1"}
	server := clouds.NewBedrock(t, a)
	for _, name := range []string{"AWS_SESSION_TOKEN", "AWS_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY", "AWS_SECRET_KEY"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_ACCESS_KEY_ID", a.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", a.SecretKey)
	m := cloudClient(t, config.Provider{Name: "bedrock", Type: config.Bedrock, BaseURL: config.Address(server.URL), SignIn: &config.SignIn{With: config.AWS, Region: a.Region},
		Models: []config.ProviderModel{{ID: "nova-lite", Upstream: "eu.amazon.nova-lite-v1:0", Kind: "chat", Price: price("2", "8", ""), Capabilities: []string{"tools", "vision"}}}})
	pixel := "data:image/png;base64,iVBORw0KGgo="
	in := body("nova-lite", "hi", map[string]any{"temperature": 1.5, "max_tokens": 50, "stop": []string{"END"}, "messages": []any{
		map[string]any{"role": "system", "content": "Be brief."},
		map[string]any{"role": "user", "content": []any{map[string]any{"type": "text", "text": "What is it?"}, map[string]any{"type": "image_url", "image_url": map[string]any{"url": pixel}}}},
		map[string]any{"role": "user", "content": "Quick."}}})
	r := m.wantHello(t, "Nova", in)
	if path := server.Last().Path; path != "/model/eu.amazon.nova-lite-v1%3A0/converse" {
		t.Errorf("the path is %s", path)
	}
	sent, _ := json.Marshal(server.Last().Body)
	want := `{"inferenceConfig":{"maxTokens":50,"stopSequences":["END"],"temperature":1},"messages":[{"content":[{"text":"What is it?"},` +
		`{"image":{"format":"png","source":{"bytes":"iVBORw0KGgo="}}},{"text":"Quick."}],"role":"user"}],"system":[{"text":"Be brief."}]}`
	if string(sent) != want {
		t.Errorf("Bedrock got %s, want %s", sent, want)
	}
	if e := m.entry(t, r); e.At("input_tokens") != 7.0 || e.At("output_tokens") != 3.0 || e.At("cached_tokens") != 2.0 || e.At("credits") == 0.0 {
		t.Errorf("the log entry is %s", e.Body)
	}
	stream := map[string]any{"stream": true, "stream_options": map[string]any{"include_usage": true}}
	if r := m.chat(t, body("nova-lite", "hi", stream)).Want(t, 200, ""); !strings.Contains(string(r.Body), `"content":"Hello from"`) || !strings.Contains(string(r.Body), `"content":" Nova"`) ||
		!strings.Contains(string(r.Body), `"prompt_tokens":7`) || !strings.HasSuffix(strings.TrimSpace(string(r.Body)), "[DONE]") {
		t.Errorf("the stream is %s", r.Body)
	}
	// Tools, their results, and JSON by a forced tool.
	tool := map[string]any{"type": "function", "function": map[string]any{"name": "weather", "parameters": map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}}}}
	withTool := body("nova-lite", "hi", map[string]any{"tools": []any{tool}, "tool_choice": "required"})
	r = m.chat(t, withTool).Want(t, 200, "")
	if r.Text("choices.0.message.tool_calls.0.function.arguments") != `{"city":"Bonn"}` || r.Text("choices.0.finish_reason") != "tool_calls" {
		t.Errorf("the call is %s", r.Body)
	}
	if config, _ := json.Marshal(server.Last().Body["toolConfig"]); !strings.Contains(string(config), `"toolChoice":{"any":{}}`) {
		t.Errorf("the tools are %s", config)
	}
	call := r.At("choices.0.message.tool_calls.0").(map[string]any)
	withTool["messages"] = []any{map[string]any{"role": "user", "content": "hi"}, map[string]any{"role": "assistant", "tool_calls": []any{call}},
		map[string]any{"role": "tool", "tool_call_id": call["id"], "content": "Sunny."}}
	withTool["tool_choice"] = "none"
	m.wantHello(t, "Nova", withTool)
	delete(withTool, "tool_choice")
	withTool["messages"], withTool["stream"] = []any{map[string]any{"role": "user", "content": "hi"}}, true
	if r := m.chat(t, withTool).Want(t, 200, ""); !strings.Contains(string(r.Body), `"arguments":"{\"city\":"`) || !strings.Contains(string(r.Body), `"finish_reason":"tool_calls"`) {
		t.Errorf("the streamed call is %s", r.Body)
	}
	schema := map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "place", "schema": map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}}}}
	if r := m.chat(t, body("nova-lite", "hi", map[string]any{"response_format": schema})).Want(t, 200, ""); r.Text("choices.0.message.content") != `{"city":"Bonn"}` || r.Text("choices.0.finish_reason") != "stop" {
		t.Errorf("the JSON is %s", r.Body)
	}
	// The other faces.
	messages := map[string]any{"model": "nova-lite", "max_tokens": 100, "messages": []any{map[string]any{"role": "user", "content": "hi"}}}
	responses := map[string]any{"model": "nova-lite", "input": "hi"}
	for path, b := range map[string]map[string]any{"/v1/messages": messages, "/v1/responses": responses} {
		if r := m.ask(t, "POST", path, b).Want(t, 200, ""); !strings.Contains(string(r.Body), "Hello from Nova") {
			t.Errorf("%s: %s", path, r.Body)
		}
		b["stream"] = true
		if r := m.ask(t, "POST", path, b).Want(t, 200, ""); !strings.Contains(string(r.Body), "Hello from") || !strings.Contains(string(r.Body), " Nova") {
			t.Errorf("the stream of %s: %s", path, r.Body)
		}
	}
	if refused := server.Refused(); len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
	m.chat(t, body("nova-lite", "hi", map[string]any{"n": 2})).Want(t, 400, "invalid_parameter")
	// An exception or a wrong checksum inside a stream is an error of the stream.
	for _, fail := range []func(){func() { a.Exception = "throttlingException" }, func() { a.Exception, a.Damage = "", true }} {
		fail()
		if r := m.chat(t, body("nova-lite", "hi", stream)); !strings.Contains(string(r.Body), "error") || strings.Contains(string(r.Body), "[DONE]") {
			t.Errorf("a failing stream: %d %s", r.Status, r.Body)
		}
	}
}
