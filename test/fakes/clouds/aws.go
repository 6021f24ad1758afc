package clouds

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// AWS is the key that Bedrock knows.
type AWS struct {
	AccessKey, SecretKey, SessionToken string
	Region                             string
	// Exception, if set, ends streams after their first event.
	Exception string
	// Damage makes a checksum in streams of Converse wrong.
	Damage bool
}

// offeredTool returns the name of the first tool in a Converse request that has no result yet, or "".
func offeredTool(body map[string]any) string {
	text, _ := json.Marshal(body["messages"])
	config, _ := body["toolConfig"].(map[string]any)
	tools, _ := config["tools"].([]any)
	if len(tools) == 0 || bytes.Contains(text, []byte("toolResult")) {
		return ""
	}
	first, _ := tools[0].(map[string]any)
	spec, _ := first["toolSpec"].(map[string]any)
	name, _ := spec["name"].(string)
	return name
}

// converseEvents returns the events of ConverseStream, with their types.
func converseEvents(tool string) [][2]string {
	list := [][2]string{{"messageStart", `{"role":"assistant","p":"abcd"}`}}
	reason := "end_turn"
	if tool == "" {
		list = append(list, [2]string{"contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"Hello from"}}`}, [2]string{"contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":" Nova"}}`})
	} else {
		reason = "tool_use"
		list = append(list, [2]string{"contentBlockStart", fmt.Sprintf(`{"contentBlockIndex":0,"start":{"toolUse":{"toolUseId":"tooluse_1","name":%q}}}`, tool)},
			[2]string{"contentBlockDelta", `{"contentBlockIndex":0,"delta":{"toolUse":{"input":"{\"city\":"}}}`}, [2]string{"contentBlockDelta", `{"contentBlockIndex":0,"delta":{"toolUse":{"input":"\"Bonn\"}"}}}`})
	}
	return append(list, [2]string{"contentBlockStop", `{"contentBlockIndex":0}`}, [2]string{"messageStop", fmt.Sprintf(`{"stopReason":%q}`, reason)},
		[2]string{"metadata", `{"usage":{"inputTokens":5,"outputTokens":3,"totalTokens":10,"cacheReadInputTokens":2},"metrics":{"latencyMs":5}}`})
}

// NewBedrock starts Bedrock's runtime.
func NewBedrock(t testing.TB, a *AWS) *Server {
	return start(t, func(s *Server, mux *http.ServeMux) {
		signed := func(serve func(w http.ResponseWriter, r Request)) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if err := a.verify(r, body); err != nil {
					s.refuse(w, http.StatusForbidden, err)
					return
				}
				s.serve(w, r, body, serve)
			}
		}
		check := func(body map[string]any) error {
			if body["anthropic_version"] != "bedrock-2023-05-31" || body["model"] != nil || body["stream"] != nil {
				return fmt.Errorf("a body with version %v, model %v and stream %v", body["anthropic_version"], body["model"], body["stream"])
			}
			return nil
		}
		mux.HandleFunc("POST /model/{model}/invoke", signed(func(w http.ResponseWriter, r Request) {
			if err := check(r.Body); err != nil {
				s.refuse(w, http.StatusBadRequest, err)
				return
			}
			answerClaude(w, false)
		}))
		mux.HandleFunc("POST /model/{model}/invoke-with-response-stream", signed(func(w http.ResponseWriter, r Request) {
			if err := check(r.Body); err != nil {
				s.refuse(w, http.StatusBadRequest, err)
				return
			}
			w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
			for i, event := range claudeEvents {
				if i == 1 && a.Exception != "" {
					_, _ = w.Write(frame(map[string]string{":message-type": "exception", ":exception-type": a.Exception, ":content-type": "application/json"}, []byte(`{"message":"Slow down."}`)))
					return
				}
				payload, _ := json.Marshal(map[string]string{"bytes": base64.StdEncoding.EncodeToString([]byte(event)), "p": "abc"})
				_, _ = w.Write(frame(map[string]string{":message-type": "event", ":event-type": "chunk", ":content-type": "application/json"}, payload))
				w.(http.Flusher).Flush()
			}
		}))
		mux.HandleFunc("POST /model/{model}/converse", signed(func(w http.ResponseWriter, r Request) {
			content := `{"text":"Hello from Nova"}`
			if name := offeredTool(r.Body); name != "" {
				content = fmt.Sprintf(`{"toolUse":{"toolUseId":"tooluse_1","name":%q,"input":{"city":"Bonn"}}}`, name)
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"metrics":{"latencyMs":5},"output":{"message":{"role":"assistant","content":[%s]}},"stopReason":"end_turn",
				"usage":{"inputTokens":5,"outputTokens":3,"totalTokens":10,"cacheReadInputTokens":2}}`, content)
		}))
		mux.HandleFunc("POST /model/{model}/converse-stream", signed(func(w http.ResponseWriter, r Request) {
			w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
			for i, e := range converseEvents(offeredTool(r.Body)) {
				headers := map[string]string{":message-type": "event", ":event-type": e[0], ":content-type": "application/json"}
				if i == 2 && a.Exception != "" {
					headers, e[1] = map[string]string{":message-type": "exception", ":exception-type": a.Exception}, `{"message":"Slow down."}`
				}
				message := frame(headers, []byte(e[1]))
				if i == 2 && a.Damage {
					message[len(message)-1] ^= 1
				}
				_, _ = w.Write(message)
				w.(http.Flusher).Flush()
				if i == 2 && a.Exception != "" {
					return
				}
			}
		}))
		mux.HandleFunc("POST /model/{model}/count-tokens", signed(func(w http.ResponseWriter, r Request) {
			input, _ := r.Body["input"].(map[string]any)
			invoke, _ := input["invokeModel"].(map[string]any)
			encoded, _ := invoke["body"].(string)
			text, err := base64.StdEncoding.DecodeString(encoded)
			body := map[string]any{}
			if err := errors.Join(err, json.Unmarshal(text, &body), check(body)); err != nil {
				s.refuse(w, http.StatusBadRequest, err)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"inputTokens":7}`)
		}))
	})
}

// frame encodes a message of an event stream: lengths, their checksum, headers, payload, checksum.
func frame(headers map[string]string, payload []byte) []byte {
	var head bytes.Buffer
	for name, value := range headers {
		head.WriteByte(byte(len(name)))
		head.WriteString(name)
		head.WriteByte(7) // a string
		_ = binary.Write(&head, binary.BigEndian, uint16(len(value)))
		head.WriteString(value)
	}
	var out bytes.Buffer
	_ = binary.Write(&out, binary.BigEndian, uint32(16+head.Len()+len(payload)))
	_ = binary.Write(&out, binary.BigEndian, uint32(head.Len()))
	_ = binary.Write(&out, binary.BigEndian, crc32.ChecksumIEEE(out.Bytes()))
	out.Write(head.Bytes())
	out.Write(payload)
	_ = binary.Write(&out, binary.BigEndian, crc32.ChecksumIEEE(out.Bytes()))
	return out.Bytes()
}

var authorization = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})$`)

// verify computes the signature of a request as "Signature Version 4 signing process" in the AWS
// General Reference describes.
func (a *AWS) verify(r *http.Request, body []byte) error {
	m := authorization.FindStringSubmatch(r.Header.Get("Authorization"))
	if m == nil {
		return fmt.Errorf("no signature but %q", r.Header.Get("Authorization"))
	}
	key, day, region, service, signature := m[1], m[2], m[3], m[4], m[6]
	names := strings.Split(m[5], ";")
	date := r.Header.Get("X-Amz-Date")
	at, err := time.Parse("20060102T150405Z", date)
	switch {
	case key != a.AccessKey || region != a.Region || service != "bedrock":
		return fmt.Errorf("the scope is %s in %s for %s", key, region, service)
	case err != nil || at.Format("20060102") != day || time.Since(at).Abs() > 5*time.Minute:
		return fmt.Errorf("the date is %s on %s", date, day)
	case r.Header.Get("X-Amz-Security-Token") != a.SessionToken:
		return errors.New("the session token is wrong")
	case !slices.IsSorted(names) || !slices.Contains(names, "host") || !slices.Contains(names, "x-amz-date") || a.SessionToken != "" && !slices.Contains(names, "x-amz-security-token"):
		return fmt.Errorf("the signed headers are %v", names)
	}
	var headers strings.Builder
	for _, name := range names {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = strconv.FormatInt(r.ContentLength, 10)
		}
		headers.WriteString(name + ":" + strings.Join(strings.Fields(value), " ") + "\n")
	}
	segments := strings.Split(r.URL.EscapedPath(), "/")
	for i, segment := range segments {
		segments[i] = uriEncode(segment) // a second time, for all services but S3
	}
	payload := sha256.Sum256(body)
	canonical := strings.Join([]string{r.Method, strings.Join(segments, "/"), r.URL.RawQuery, headers.String(), m[5], hex.EncodeToString(payload[:])}, "\n")
	digest := sha256.Sum256([]byte(canonical))
	scope := strings.Join([]string{day, region, service, "aws4_request"}, "/")
	text := strings.Join([]string{"AWS4-HMAC-SHA256", date, scope, hex.EncodeToString(digest[:])}, "\n")
	derived := []byte("AWS4" + a.SecretKey)
	for _, part := range []string{day, region, service, "aws4_request", text} {
		mac := hmac.New(sha256.New, derived)
		mac.Write([]byte(part))
		derived = mac.Sum(nil)
	}
	if hex.EncodeToString(derived) != signature {
		return errors.New("the signature does not match")
	}
	return nil
}

// uriEncode encodes all bytes but A-Z, a-z, 0-9 and -._~.
func uriEncode(text string) string {
	var out strings.Builder
	for _, c := range []byte(text) {
		if 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	return out.String()
}
