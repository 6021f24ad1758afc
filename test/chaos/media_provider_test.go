package chaos

import (
	"bytes"
	"encoding/base64"
	endian "encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"image"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/audio"
)

// mediaProvider is a provider of media. Its speech encodes every letter, each prompt
// has a different image, and videos take a few polls.
type mediaProvider struct {
	server *httptest.Server
	delay  func() time.Duration
	polls  int
	gone   atomic.Bool // drops every request
	watch  atomic.Pointer[func(c providerCall, answered bool)]

	mu     sync.Mutex
	calls  []providerCall
	videos []int // downloads of each video
}

type providerCall struct {
	what string // method and path
	text string // the prompt or the text to speak
	key  string
	n    int // number of requests up to this one
}

func newMediaProvider(t *testing.T, delay func() time.Duration) *mediaProvider {
	t.Helper()
	s := &mediaProvider{delay: delay, polls: 3}
	s.server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.server.CloseClientConnections()
		s.server.Close()
	})
	return s
}

// onCall calls fn before and after each response.
func (s *mediaProvider) onCall(fn func(c providerCall, answered bool)) {
	if fn == nil {
		s.watch.Store(nil)
		return
	}
	s.watch.Store(&fn)
}

func (s *mediaProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct{ Prompt, Input string }
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the server died
	}
	isForm := strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/form-data")
	if len(body) > 0 && !isForm && json.Unmarshal(body, &in) != nil {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	c := s.record(providerCall{what: r.Method + " " + strings.TrimPrefix(r.URL.Path, "/v1"), text: in.Prompt + in.Input, key: r.Header.Get("Idempotency-Key")})
	watch := s.watch.Load()
	if watch != nil {
		(*watch)(c, false)
	}
	if s.gone.Load() {
		panic(http.ErrAbortHandler)
	}
	time.Sleep(s.delay()) // simulates work
	kind, status, answer := s.respond(c, r.URL.Query().Get("variant"))
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", fmt.Sprint(len(answer)))
	w.WriteHeader(status)
	_, _ = w.Write(answer)                    // fails only if the client has died
	_ = http.NewResponseController(w).Flush() // so that the client has it before fn is called
	if watch := s.watch.Load(); watch != nil {
		(*watch)(c, true)
	}
}

func (s *mediaProvider) record(c providerCall) providerCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, c)
	c.n = len(s.calls)
	return c
}

// received returns the requests so far that start with the prefix.
func (s *mediaProvider) received(what string) []providerCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.calls), func(c providerCall) bool { return !strings.HasPrefix(c.what, what) })
}

func (s *mediaProvider) respond(c providerCall, variant string) (kind string, status int, body []byte) {
	const jsonType = "application/json"
	switch path := strings.Split(c.what, "/"); {
	case c.what == "POST /audio/speech":
		return "audio/wav", http.StatusOK, encodeSpeech(c.text)
	case c.what == "POST /audio/transcriptions":
		return jsonType, http.StatusOK, []byte(`{"text":"A word."}`)
	case c.what == "POST /images/generations":
		return jsonType, http.StatusOK, fmt.Appendf(nil, `{"created":1,"data":[{"b64_json":%q}]}`, base64.StdEncoding.EncodeToString(drawImage(c.text)))
	case c.what == "POST /videos":
		s.mu.Lock()
		defer s.mu.Unlock()
		s.videos = append(s.videos, 0)
		return jsonType, http.StatusOK, fmt.Appendf(nil, `{"id":"v%d","object":"video","status":"queued","progress":0,"error":null}`, len(s.videos)-1)
	case path[0] == "GET " && len(path) >= 3 && path[1] == "videos":
		var i int
		if _, err := fmt.Sscanf(path[2], "v%d", &i); err != nil {
			break
		}
		if len(path) == 4 && variant == "video" {
			return "video/mp4", http.StatusOK, renderVideo(i)
		} else if len(path) == 4 {
			break
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.videos[i]++
		state := "in_progress"
		if s.videos[i] >= s.polls {
			state = "completed"
		}
		return jsonType, http.StatusOK, fmt.Appendf(nil, `{"id":%q,"object":"video","status":%q,"progress":%d,"error":null}`, path[2], state, min(100, 100*s.videos[i]/s.polls))
	}
	return jsonType, http.StatusNotFound, []byte(`{"error":{"message":"no such thing"}}`)
}

// Each byte of a text lasts this many samples.
const (
	speechRate = 8000
	perByte    = 4
)

var speechFormat = audio.Format{Rate: speechRate, Channels: 1}

// encodeSpeech returns a WAV file that decodeSpeech can read.
func encodeSpeech(text string) []byte {
	out := audio.Header(speechFormat, int64(2*perByte*len(text)))
	for _, b := range []byte(text) {
		for range perByte {
			out = endian.LittleEndian.AppendUint16(out, uint16(b))
		}
	}
	return out
}

// decodeSpeech returns the text of a WAV file, with a zero for every unit of silence,
// and its duration.
func decodeSpeech(file []byte) (text string, lasts time.Duration, err error) {
	f, sound, err := audio.ReadWAV(bytes.NewReader(file))
	if err != nil || f != speechFormat {
		return "", 0, fmt.Errorf("%v: %w", f, err)
	}
	pcm, err := io.ReadAll(sound)
	if err != nil {
		return "", 0, err
	}
	var out strings.Builder
	for i := 0; i+2*perByte <= len(pcm); i += 2 * perByte {
		first := endian.LittleEndian.Uint16(pcm[i:])
		for k := i; k < i+2*perByte; k += 2 {
			if got := endian.LittleEndian.Uint16(pcm[k:]); got != first {
				return "", 0, fmt.Errorf("sample %d is %d after %d: a part is missing", k/2, got, first)
			}
		}
		out.WriteByte(byte(first))
	}
	return out.String(), f.Duration(int64(len(pcm))), nil
}

// drawImage returns a small image that is unique to the prompt.
func drawImage(prompt string) []byte {
	h := fnv.New64a()
	h.Write([]byte(prompt))
	img := image.NewNRGBA(image.Rect(0, 0, 32, 32))
	endian.LittleEndian.PutUint64(img.Pix, h.Sum64())
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.NoCompression}).Encode(&out, img); err != nil {
		panic(err) // a buffer does not fail
	}
	return out.Bytes()
}

// renderVideo returns a file that is unique to the video.
func renderVideo(i int) []byte {
	return fmt.Appendf([]byte("\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom"), "%060000d", i)
}
