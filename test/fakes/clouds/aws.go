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
