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

// studio is a provider of media. In its speech every letter can be heard, it
// draws another picture for every prompt, and its videos take a few polls.
type studio struct {
	server *httptest.Server
	delay  func() time.Duration
	polls  int
	gone   atomic.Bool // it takes calls and drops them
	watch  atomic.Pointer[func(c studioCall, answered bool)]

	mu     sync.Mutex
	calls  []studioCall
	videos []int // how often each was asked for
}

// studioCall is a call that came.
type studioCall struct {
	what string // method and path
	text string // the prompt, or what is to be said
	key  string // the Idempotency-Key
	n    int    // how many came up to this one
}

func newStudio(t *testing.T, delay func() time.Duration) *studio {
	t.Helper()
	s := &studio{delay: delay, polls: 3}
	s.server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.server.CloseClientConnections()
		s.server.Close()
	})
	return s
}

// onCall has fn hear of each call, before it is answered and after.
func (s *studio) onCall(fn func(c studioCall, answered bool)) {
	if fn == nil {
		s.watch.Store(nil)
		return
	}
	s.watch.Store(&fn)
}

func (s *studio) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct{ Prompt, Input string }
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the server died
	}
	if len(body) > 0 && json.Unmarshal(body, &in) != nil {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	c := s.note(studioCall{what: r.Method + " " + strings.TrimPrefix(r.URL.Path, "/v1"), text: in.Prompt + in.Input, key: r.Header.Get("Idempotency-Key")})
	watch := s.watch.Load()
	if watch != nil {
		(*watch)(c, false)
	}
	if s.gone.Load() {
		panic(http.ErrAbortHandler)
	}
	time.Sleep(s.delay()) // it is at work
	kind, status, answer := s.answer(c, r.URL.Query().Get("variant"))
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", fmt.Sprint(len(answer)))
	w.WriteHeader(status)
	_, _ = w.Write(answer)                    // whoever has died does not need it
	_ = http.NewResponseController(w).Flush() // so that it is there before anybody hears of it
	if watch := s.watch.Load(); watch != nil {
		(*watch)(c, true)
	}
}

func (s *studio) note(c studioCall) studioCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, c)
	c.n = len(s.calls)
	return c
}

// came are the calls so far that begin like this.
func (s *studio) came(what string) []studioCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.calls), func(c studioCall) bool { return !strings.HasPrefix(c.what, what) })
}

func (s *studio) answer(c studioCall, variant string) (kind string, status int, body []byte) {
	const jsonType = "application/json"
	switch path := strings.Split(c.what, "/"); {
	case c.what == "POST /audio/speech":
		return "audio/wav", http.StatusOK, spoken(c.text)
	case c.what == "POST /images/generations":
		return jsonType, http.StatusOK, fmt.Appendf(nil, `{"created":1,"data":[{"b64_json":%q}]}`, base64.StdEncoding.EncodeToString(drawn(c.text)))
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
			return "video/mp4", http.StatusOK, filmed(i)
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

// Each byte of a text is heard for so many samples.
const (
	speechRate = 8000
	perByte    = 4
)

var speechFormat = audio.Format{Rate: speechRate, Channels: 1}

// spoken is a WAV file out of which the text can be read again.
func spoken(text string) []byte {
	out := audio.Header(speechFormat, int64(2*perByte*len(text)))
	for _, b := range []byte(text) {
		for range perByte {
			out = endian.LittleEndian.AppendUint16(out, uint16(b))
		}
	}
	return out
}

// heard is the text of a WAV file, with a zero for every moment of silence. It
// returns how long the file is, too.
func heard(file []byte) (text string, lasts time.Duration, err error) {
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
				return "", 0, fmt.Errorf("sample %d is %d after %d: something is missing", k/2, got, first)
			}
		}
		out.WriteByte(byte(first))
	}
	return out.String(), f.Duration(int64(len(pcm))), nil
}

// drawn is a small picture that no other prompt has.
func drawn(prompt string) []byte {
	h := fnv.New64a()
	h.Write([]byte(prompt))
	picture := image.NewNRGBA(image.Rect(0, 0, 32, 32))
	endian.LittleEndian.PutUint64(picture.Pix, h.Sum64())
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.NoCompression}).Encode(&out, picture); err != nil {
		panic(err) // a buffer does not fail
	}
	return out.Bytes()
}

// filmed is a video that no other has.
func filmed(i int) []byte {
	return fmt.Appendf([]byte("\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom"), "%060000d", i)
}
