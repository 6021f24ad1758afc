package chaos

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"encoding/base64"
	endian "encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// The number of values in a body, and how deep they are nested: the defaults of limits.json_values and
// limits.json_depth, with some left for what is around them.
const (
	hostileValues = 99_000
	hostileDepth  = 120
)

// list returns a JSON array of n equal values.
func list(value string, n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(value+",", n), ",") + "]"
}

// values is a JSON object with a field of deep and of very many small values. The other fields come first.
func values(field string, others ...string) []byte {
	deep := strings.Repeat("[", hostileDepth) + strings.Repeat("]", hostileDepth)
	shape := "[" + strings.Repeat(deep+",", 300) + strings.Repeat(`{"a":1},`, (hostileValues-300*hostileDepth)/2) + "0]"
	return []byte("{" + strings.Join(append(others, fmt.Sprintf("%q:%s", field, shape)), ",") + "}")
}

// long is a JSON object with a string that is as long as a body may be.
func long(field string, size int, others ...string) []byte {
	return []byte("{" + strings.Join(append(others, fmt.Sprintf("%q:%q", field, strings.Repeat("word ", (size-1000)/5))), ",") + "}")
}

// form is a form with fields and files, and its Content-Type.
func form(t *testing.T, fields map[string]string, files ...[2]any) (kind string, body []byte) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for name, value := range fields {
		if err := w.WriteField(name, value); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range files {
		part, err := w.CreateFormFile(f[0].(string), "file.bin")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = part.Write(f[1].([]byte)) // to memory
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), b.Bytes()
}

// blackPNG is a PNG file with 16 bits for each of four channels. It is a thousandth of its pixels.
func blackPNG(side int) []byte {
	var pixels bytes.Buffer
	w, _ := zlib.NewWriterLevel(&pixels, zlib.BestSpeed) // the level is valid
	row := make([]byte, 1+8*side)
	for range side {
		_, _ = w.Write(row) // to memory
	}
	_ = w.Close()
	out := []byte("\x89PNG\r\n\x1a\n")
	chunk := func(name string, data []byte) {
		out = endian.BigEndian.AppendUint32(out, uint32(len(data)))
		body := append([]byte(name), data...)
		out = endian.BigEndian.AppendUint32(append(out, body...), crc32.ChecksumIEEE(body))
	}
	head := endian.BigEndian.AppendUint32(endian.BigEndian.AppendUint32(nil, uint32(side)), uint32(side))
	chunk("IHDR", append(head, 16, 6, 0, 0, 0))
	chunk("IDAT", pixels.Bytes())
	chunk("IEND", nil)
	return out
}

// webm is a WebM file with tracks, each of two bytes, and blocks.
func webm(tracks, blocks int) []byte {
	out := append([]byte{0x1A, 0x45, 0xDF, 0xA3, 0x80}, bytes.Repeat([]byte{0xAE, 0x80}, tracks)...)
	return append(out, bytes.Repeat([]byte{0xA3, 0x85, 0x81, 0, 0, 0, 0}, blocks)...)
}

// mp4 is an MP4 file with tracks and as many fragments, each with a tfhd.
func mp4(tracks, fragments int) []byte {
	box := func(name string, body []byte) []byte {
		return append(append(endian.BigEndian.AppendUint32(nil, uint32(8+len(body))), name...), body...)
	}
	out := append([]byte("\x00\x00\x00\x0cftypisom"), bytes.Repeat(box("trak", nil), tracks)...)
	return append(out, bytes.Repeat(box("moof", box("traf", box("tfhd", []byte{0, 0, 0, 0, 0, 0, 0, 1}))), fragments)...)
}

// pdf is a PDF file of that size, all of whose pages are one compressed stream of spaces.
func pdf(size int) []byte {
	var stream bytes.Buffer
	w := zlib.NewWriter(&stream)
	_, _ = w.Write(bytes.Repeat([]byte(" "), 64<<20)) // to memory
	_ = w.Close()
	var b bytes.Buffer
	b.WriteString("%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Count 100000/Kids[")
	b.WriteString(strings.Repeat("3 0 R ", (size-stream.Len()-1000)/6))
	fmt.Fprintf(&b, "]>>endobj\n3 0 obj<</Type/Page/Contents 4 0 R>>endobj\n4 0 obj<</Filter/FlateDecode/Length %d>>stream\n%s\nendstream endobj\n%%%%EOF", stream.Len(), stream.Bytes())
	return b.Bytes()
}

// hostileUpstream starts a server that is a provider, an issuer, and a server of tools. What it sends
// never ends.
func hostileUpstream(t *testing.T) string {
	t.Helper()
	line := append(append([]byte("data: "), bytes.Repeat([]byte("x"), 10<<20-100)...), "\n\n"...)
	endless := bytes.Repeat([]byte("x"), 64<<10)
	var objects []string
	for _, field := range []string{"choices", "data", "output", "content", "items"} {
		objects = append(objects, fmt.Sprintf("%q:%s", field, list("{}", 200_000)))
	}
	small := []byte(`{"id":"x",` + strings.Join(objects, ",") + `}`)
	spaces := bytes.Repeat([]byte(" "), 64<<10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20)) // the model is in it
		_, _ = io.Copy(io.Discard, r.Body)
		is := func(model string) bool { return bytes.Contains(start, []byte(model)) }
		kind, head, rest := "application/json", "", spaces
		w.Header().Set("Content-Type", kind)
		switch {
		case is("line"):
			kind, rest = "text/event-stream", line
		case is("values-vectors"), is("values-image"), is("values"):
			if is(`"stream":true`) {
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprintf(w, "data: %s\n\ndata: [DONE]\n\n", small)
				return
			}
			_, _ = w.Write(small) // the client may be gone
			return
		case is("endless"):
			head, rest = `{"id":"`, endless
		}
		w.Header().Set("Content-Type", kind)
		for _, err := w.Write([]byte(head)); err == nil; {
			_, err = w.Write(rest)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// attacks returns the inputs of each operation, by its ID.
func (s *hostileServer) attacks(t *testing.T) map[string][]hostileInput {
	t.Helper()
	all := s.modelAttacks(t)
	for id, list := range s.resourceAttacks(t) {
		all[id] = list
	}
	return all
}

// jsonAttack is an attack with a JSON body.
func jsonAttack(name string, body []byte) hostileInput { return hostileInput{name: name, body: body} }

// ofField is the attack on a field of a resource.
func ofField(field string, others ...string) []hostileInput {
	return []hostileInput{
		{name: "values", body: values(field, others...)},
		{name: "a long string", body: long(field, 1<<20, others...), turns: 4},
	}
}

func (s *hostileServer) resourceAttacks(t *testing.T) map[string][]hostileInput {
	t.Helper()
	all := map[string][]hostileInput{
		"exchangeToken":      {s.issuerAttack(t)},
		"createFile":         {s.fileAttack(t)},
		"createBatch":        append(ofField("metadata"), s.batchAttacks(t)...),
		"openTunnel":         {{name: "unfinished messages", send: s.unfinished(t, "/v1/tunnel", 1<<20), turns: hostileAtOnce}},
		"openResponseSocket": {{name: "unfinished messages", send: s.unfinished(t, "/v1/responses", hostileBody-1000), turns: hostileAtOnce}, {name: "announcements", send: s.announcements}},
		"listProviderModels": {{name: "an endless response", path: "/admin/providers/hostile/models"}},
		"testProvider":       append(ofField("model"), hostileInput{name: "an endless response", path: "/admin/providers/hostile/test", body: []byte(`{"model":"endless"}`)}),
		"reportLeak":         {s.leakAttack()},
		// Nobody but GitHub and GitLab can send a body that is read.
		"reportLeakFromGitHub": {{name: "an unsigned report", body: values("x"), want: []int{http.StatusForbidden}}},
		"reportLeakFromGitLab": {{name: "a report without a secret", body: values("x"), want: []int{http.StatusNotFound}}},
	}
	for id, field := range map[string]string{
		"cancelResponse": "x", "createConversation": "items", "updateConversation": "metadata", "createConversationItems": "items",
		"createImageBatch": "requests", "cancelImageBatch": "x", "createVideo": "input_reference", "remixVideo": "metadata", "cancelVideo": "x",
		"createVoiceRender": "segments", "cancelVoiceRender": "x", "cancelTranscriptionJob": "x", "cancelBatch": "x",
		"createMessageBatch": "requests", "cancelMessageBatch": "x", "cancelAgentRun": "x", "sendAgentToolOutputs": "tool_outputs", "decideAgentApproval": "arguments",
		"createScopedToken": "scopes", "createKey": "metadata", "updateKey": "metadata", "rotateKey": "grace_period_seconds", "endKeyGrace": "x",
		"createFederationRule": "grants", "updateFederationRule": "grants", "createProject": "limits", "updateProject": "limits",
		"createWebhook": "events", "updateWebhook": "events", "pauseWebhook": "x", "resumeWebhook": "held", "rotateWebhookSecret": "grace_period_seconds", "endWebhookGrace": "x",
		"testWebhook": "type", "replayWebhook": "types", "createOpenAIWebhookEndpoint": "event_types", "updateOpenAIWebhookEndpoint": "event_types",
		"rotateOpenAIWebhookSecret": "x", "testOpenAIWebhookEndpoint": "event_type", "replayDelivery": "new_id",
		"updateBilling": "alert_thresholds", "updateNotifications": "webhook", "sendMCPMessage": "params", "sendMCPMessageToServer": "params",
		"createToolServer": "tool_settings", "updateToolServer": "tool_settings", "createRoute": "models", "updateRoute": "models",
		"updateUserSettings": "default_limits", "updateUser": "budget",
		"createProvider": "models", "updateProvider": "models", "updatePricing": "markup_percent", "createOperatorRoute": "models", "updateOperatorRoute": "models",
	} {
		all[id] = ofField(field)
	}
	return all
}

func (s *hostileServer) modelAttacks(t *testing.T) map[string][]hostileInput {
	t.Helper()
	const model = `"model":"gpt-4o-mini"`
	messages := list(`{"role":"user","content":"x"}`, hostileValues/3)
	document := base64.StdEncoding.EncodeToString(pdf(5 << 20))
	live := func(name, body string) hostileInput {
		return hostileInput{name: name, key: liveKeys, body: []byte(body), want: []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusRequestEntityTooLarge, http.StatusOK}}
	}
	claude := func(model, more string) string {
		return fmt.Sprintf(`{"model":%q,"max_tokens":100,"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]%s}`, model, more)
	}
	conversation := func(model, more string) string {
		return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"x"}]%s}`, model, more)
	}
	claudePDF := []byte(`{"model":"claude-sonnet-4-5","max_tokens":100,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"` + document + `"}}]}]}`)
	responsePDF := []byte(`{` + model + `,"input":[{"role":"user","content":[{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,` + document + `"}]}]}`)
	vectors := list(`"a"`, 2048)
	all := map[string][]hostileInput{
		"createChatCompletion": {
			jsonAttack("messages", []byte(`{`+model+`,"messages":`+messages+`}`)), jsonAttack("values", values("messages", model)), jsonAttack("tools", values("tools", model, `"messages":[{"role":"user","content":"x"}]`)),
			{name: "a long message", body: long("x", hostileBody, model, `"messages":[{"role":"user","content":"x"}]`), turns: 16},
			live("long lines", conversation("line", `,"stream":true`)), live("an endless response", conversation("endless", "")), live("an endless stream", conversation("endless", `,"stream":true`)),
			live("a response of small values", conversation("values", "")), live("an event of small values", conversation("values", `,"stream":true`)),
		},
		"createCompletion": {jsonAttack("values", values("prompt", model)), live("an endless response", `{"model":"endless","prompt":"x"}`)},
		"createResponse": {
			jsonAttack("items", []byte(`{`+model+`,"input":`+messages+`}`)), jsonAttack("values", values("input", model)), {name: "a PDF", body: responsePDF, turns: 8},
			live("long lines", `{"model":"line","input":"x","stream":true}`), live("an endless response", `{"model":"endless","input":"x"}`),
		},
		"countResponseTokens": {jsonAttack("items", []byte(`{`+model+`,"input":`+messages+`}`)), {name: "a PDF", body: responsePDF, turns: 8}},
		"createMessage": {
			jsonAttack("messages", []byte(`{"model":"claude-sonnet-4-5","max_tokens":100,"messages":`+messages+`}`)), jsonAttack("values", values("messages", model, `"max_tokens":10`)), {name: "a PDF", body: claudePDF, turns: 8},
			live("long lines", claude("line-claude", `,"stream":true`)), live("an endless response", claude("endless-claude", "")),
		},
		"countMessageTokens": {jsonAttack("messages", []byte(`{"model":"claude-sonnet-4-5","messages":`+messages+`}`)), {name: "a PDF", body: claudePDF, turns: 8}},
		"createEmbeddings": {
			{name: "inputs", body: []byte(`{"model":"text-embedding-3-large","dimensions":256,"input":` + vectors + `}`), turns: 4},
			jsonAttack("tokens", []byte(`{"model":"text-embedding-3-small","input":`+list(list("1", 8000), 20)+`}`)), jsonAttack("values", values("input", `"model":"text-embedding-3-small"`)),
			live("an endless response", `{"model":"endless-vectors","input":"x"}`), live("a response of small values", `{"model":"values-vectors","input":"x"}`),
		},
		"createModeration": {jsonAttack("values", values("input")), jsonAttack("results", []byte(`{"input":`+list(`"x"`, 4000)+`}`)),
			{name: "more results than there is memory for", body: []byte(`{"input":` + list(`"x"`, hostileValues) + `}`), want: []int{http.StatusServiceUnavailable}}},
		"createRerank": {jsonAttack("values", values("documents", `"query":"x"`)), jsonAttack("documents", []byte(`{"query":"x","documents":`+list(`"x"`, hostileValues)+`}`))},
		"createImage": {
			{name: "large images", body: []byte(`{"model":"gpt-image-1","prompt":"x","n":4,"size":"1536x1536"}`), turns: 4}, jsonAttack("values", values("models", `"prompt":"x"`)),
			live("an endless response", `{"model":"endless-image","prompt":"x"}`), live("a response of small values", `{"model":"values-image","prompt":"x"}`),
		},
		"editImage":              s.imageAttacks(t),
		"createSpeech":           {jsonAttack("values", values("voice", `"input":"x"`)), live("an endless response", `{"model":"endless-speech","input":"x","voice":"alloy"}`)},
		"createTranscription":    s.audioAttacks(t, "whisper-1"),
		"createTranslation":      s.audioAttacks(t, "whisper-1"),
		"createTranscriptionJob": s.audioAttacks(t, "whisper-1"),
		"createAgentRun": {jsonAttack("values", values("tools", model, `"input":"x"`)), jsonAttack("items", []byte(`{`+model+`,"input":`+messages+`}`)),
			live("an endless response", `{"model":"endless","input":"x"}`)},
	}
	return all
}

func (s *hostileServer) imageAttacks(t *testing.T) (all []hostileInput) {
	t.Helper()
	for name, side := range map[string]int{"the largest images": 2364, "larger images": 6000} {
		image := blackPNG(side)
		files := [][2]any{{"mask", image}}
		for range 16 {
			files = append(files, [2]any{"image", image})
		}
		a := hostileInput{name: name, turns: 4}
		a.kind, a.body = form(t, map[string]string{"model": "gpt-image-1", "prompt": "x"}, files...)
		all = append(all, a)
	}
	return all
}

func (s *hostileServer) audioAttacks(t *testing.T, model string) (all []hostileInput) {
	t.Helper()
	for name, file := range map[string][]byte{
		"WebM with blocks": webm(20_000, 20_000), "WebM with tracks": webm(hostileBody/2-10_000, 1), "MP4 with fragments": mp4(20_000, 20_000), "MP4 with tracks": mp4(hostileBody/8-10_000, 1),
	} {
		a := hostileInput{name: name, want: []int{http.StatusBadRequest}, turns: 8}
		a.kind, a.body = form(t, map[string]string{"model": model}, [2]any{"file", file})
		all = append(all, a)
	}
	return all
}

// issuerAttack exchanges tokens of issuers whose configuration never ends.
func (s *hostileServer) issuerAttack(t *testing.T) hostileInput {
	t.Helper()
	key := s.keys[testKeys][0]
	id := s.must(t, request{method: "POST", path: "/v1/keys", key: key, body: `{"name":"ci","scopes":["models:read"]}`})
	forms := make([]string, hostileAtOnce)
	for n := range forms {
		issuer := fmt.Sprintf("%s/%d", s.upstream, n)
		rule := s.must(t, request{method: "POST", path: "/v1/federation_rules", key: key,
			body: fmt.Sprintf(`{"name":"ci%d","issuer":%q,"audience":"https://a.example","subject":"x","key_id":%q,"scopes":["models:read"]}`, n, issuer, id)})
		encode := base64.RawURLEncoding.EncodeToString
		token := encode([]byte(`{"alg":"ES256","typ":"JWT"}`)) + "." + encode(fmt.Appendf(nil, `{"iss":%q,"aud":"https://a.example","sub":"x"}`, issuer)) + "." + encode(make([]byte, 64))
		forms[n] = url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "subject_token_type": {"urn:ietf:params:oauth:token-type:jwt"},
			"client_id": {rule}, "subject_token": {token}}.Encode()
	}
	o := operation{method: "POST", path: "/oauth/token"}
	return hostileInput{name: "endless issuers", want: []int{http.StatusServiceUnavailable}, send: func(n int) (int, error) {
		return s.send(o, hostileInput{kind: "application/x-www-form-urlencoded", body: []byte(forms[n])}, n)
	}}
}

// leakAttack sends reports as JSON and as text. An address may send some per minute.
func (s *hostileServer) leakAttack() hostileInput {
	o := operation{method: "POST", path: "/leaks/report"}
	both := []hostileInput{{body: []byte(`{"keys":` + list(`"tp_live_"`, 5000) + `}`)}, {kind: "text/plain", body: bytes.Repeat([]byte("tp_live_"), 8<<10-1)}}
	return hostileInput{name: "many keys", send: func(n int) (int, error) { return s.send(o, both[n%2], n) }}
}

func (s *hostileServer) fileAttack(t *testing.T) hostileInput {
	t.Helper()
	a := hostileInput{name: "a large file", want: []int{http.StatusOK}, turns: 4}
	a.kind, a.body = form(t, map[string]string{"purpose": "user_data"}, [2]any{"file", make([]byte, 32<<20)})
	return a
}

// batchAttacks create batches of hostile requests, and wait for them.
func (s *hostileServer) batchAttacks(t *testing.T) []hostileInput {
	t.Helper()
	messages := list(`{"role":"user","content":"x"}`, hostileValues/3-10)
	word := strings.Repeat("word ", (1<<20)/5)
	few, many := s.batchAttack(t, 4, messages), s.batchAttack(t, 2, `[{"role":"user","content":"`+word+`"}]`)
	few.name, few.turns, few.most = "hostile lines", 2, 4
	many.name = "long lines"
	return []hostileInput{few, many}
}

// batchAttack creates batches whose lines have the messages.
func (s *hostileServer) batchAttack(t *testing.T, requests int, messages string) hostileInput {
	t.Helper()
	var lines bytes.Buffer
	for n := range requests {
		fmt.Fprintf(&lines, `{"custom_id":"%d","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o-mini","messages":%s}}`+"\n", n, messages)
	}
	files := map[string]string{}
	for _, key := range s.keys[testKeys] {
		files[key] = s.uploadBatch(t, key, lines.Bytes())
	}
	o := operation{method: "POST", path: "/v1/batches"}
	return hostileInput{want: []int{http.StatusOK},
		send: func(n int) (int, error) {
			return s.send(o, hostileInput{body: fmt.Appendf(nil, `{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h"}`, files[s.key(o, hostileInput{}, n)])}, n)
		},
		settled: func() { s.endBatches(t) }}
}

// uploadBatch stores the input of a batch, and returns its ID.
func (s *hostileServer) uploadBatch(t *testing.T, key string, lines []byte) string {
	t.Helper()
	kind, body := form(t, map[string]string{"purpose": "batch"}, [2]any{"file", lines})
	req, err := http.NewRequest("POST", s.URL+"/v1/files", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := hostileClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var file struct{ ID string }
	if err := json.NewDecoder(res.Body).Decode(&file); err != nil || file.ID == "" {
		t.Fatalf("no file: %v, %v", res.Status, err)
	}
	return file.ID
}

// endBatches waits until all batches have ended, and checks that none of their lines failed.
func (s *hostileServer) endBatches(t *testing.T) {
	t.Helper()
	running := regexp.MustCompile(`"status":"(validating|in_progress|finalizing)"`)
	failed := regexp.MustCompile(`"failed":[1-9]`)
	for _, key := range s.keys[testKeys] {
		var all []byte
		eventually(t, hostileTimeout, "the batches end", func() bool {
			out := call(s.URL, request{method: "GET", path: "/v1/batches?limit=100", key: key})
			all = out.body
			return out.status == http.StatusOK && !running.Match(all)
		})
		if failed.Match(all) {
			t.Errorf("lines failed: %s", all)
		}
	}
}

func (s *hostileServer) dial(n int, path string) (*websocket.Conn, error) {
	conn, _, err := websocket.Dial(context.Background(), s.URL+path, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + s.key(operation{}, hostileInput{}, n)}}})
	if err == nil {
		conn.SetReadLimit(1 << 30)
	}
	return conn, err
}

// unfinished sends the first frame of a message that has more. The response to a ping shows that the
// server has read it.
func (s *hostileServer) unfinished(t *testing.T, path string, size int) func(n int) (int, error) {
	frame := append(endian.BigEndian.AppendUint64([]byte{0x01, 0x80 | 127}, uint64(size)), make([]byte, 4+size)...)
	frame = append(frame, 0x89, 0x80, 0, 0, 0, 0) // a ping; masks of zeros change nothing
	var arrived sync.WaitGroup                    // all messages are there at the same time
	arrived.Add(hostileAtOnce)
	return func(n int) (int, error) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			arrived.Done()
			return 0, err
		}
		defer func() {
			arrived.Done()
			arrived.Wait()
			conn.Close()
		}()
		_ = conn.SetDeadline(time.Now().Add(hostileTimeout))
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
			path, s.key(operation{}, hostileInput{}, n))
		from := bufio.NewReader(conn)
		res, err := http.ReadResponse(from, nil)
		if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
			return 0, err
		}
		go func() { _, _ = conn.Write(frame) }() // the server may close the connection meanwhile
		_, _ = from.ReadBytes(0x8A)              // a pong, or the server closes the connection
		return res.StatusCode, nil
	}
}

// announcements sends messages that don't call the model, each of which continues the one before.
func (s *hostileServer) announcements(n int) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), hostileTimeout)
	defer cancel()
	conn, err := s.dial(n, "/v1/responses")
	if err != nil {
		return 0, err
	}
	defer conn.CloseNow()
	text, previous := strings.Repeat("word ", 200<<10), ""
	rounds := 4
	if full {
		rounds = 12
	}
	for range rounds {
		message, err := json.Marshal(map[string]any{"type": "response.create", "model": "gpt-4o-mini", "store": false, "generate": false, "input": text, "previous_response_id": previous})
		if err != nil {
			return 0, err
		}
		if conn.Write(ctx, websocket.MessageText, message) != nil {
			break // the server has no memory for it
		}
		_, answer, err := conn.Read(ctx)
		if err != nil {
			break
		}
		var event struct{ Response struct{ ID string } }
		_ = json.Unmarshal(answer, &event) // an error has none
		previous = event.Response.ID
	}
	return http.StatusSwitchingProtocols, nil
}
