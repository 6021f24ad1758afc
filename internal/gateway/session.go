package gateway

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"
	"math/rand/v2"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/jsonbody"
)

// session identifies requests that share the beginning of their prompt, so that they go to the same
// provider and find it in that provider's cache. It is found when it is first needed: only requests
// that several providers can serve need it.
type session struct {
	tenant string // two workspaces never share a session
	name   string // from the client's header; may be empty
	of     *request
	input  []byte // replaces the input of a body in the format of the Responses API; may be nil

	read   bool
	digest []byte // nil if there is no session
}

// session returns the session of a call.
func (c Call) session(r *request) *session {
	return &session{tenant: c.Principal.WorkspaceID, name: c.Session, of: r}
}

// minPrompt is the size of a prompt from which its first messages identify a session. Providers
// cache from 1,024 tokens, which are about four bytes each. Shorter ones are distributed randomly.
const minPrompt = 4 << 10

// draw returns a random number with an exponential distribution. In a session, the same names always
// get the same number. Divided by weights, such numbers order a list by weighted rendezvous hashing:
// the order of the others doesn't change if a name is added or removed.
func (s *session) draw(names ...string) float64 {
	if s == nil {
		return rand.ExpFloat64()
	}
	if !s.read {
		s.digest, s.read = s.find(), true
	}
	if s.digest == nil {
		return rand.ExpFloat64()
	}
	h := sha256.New()
	h.Write(s.digest)
	for _, name := range names {
		writeText(h, 'n', name)
	}
	n := binary.BigEndian.Uint64(h.Sum(nil)) >> 11 // 53 bits
	return -math.Log((float64(n) + 0.5) / (1 << 53))
}

// find returns the digest of the session. prompt_cache_key comes first, then the client's header, then
// the prompt up to the first message of the user.
func (s *session) find() []byte {
	h := sha256.New()
	writeText(h, 't', s.tenant)
	p := prompt{limit: maxHashed}
	p.read(s.of.fields())
	switch {
	case p.cacheKey != "":
		writeText(h, 'k', p.cacheKey)
	case s.name != "":
		writeText(h, 's', s.name)
	case len(s.of.body)+len(s.input) < minPrompt:
		return nil
	default:
		if s.input != nil {
			p.messages = s.input
		}
		if p.system == nil && p.messages == nil {
			return nil
		}
		p.writeTo(h)
	}
	return h.Sum(nil)
}

// maxHashed limits how much of a prompt is compared.
const maxHashed = 64 << 10

// prompt is the beginning of a prompt in the formats of chat completions, the Responses API and the
// Messages API.
type prompt struct {
	cacheKey string
	system   jsontext.Value // a string or an array
	messages jsontext.Value // a string or an array
	limit    int            // bytes left to write
}

// read finds the fields of a body.
func (p *prompt) read(body jsonbody.Value) {
	for name, value := range body.Members() {
		switch string(name) {
		case "prompt_cache_key":
			p.cacheKey = string(value.String())
		case "system", "instructions":
			p.system = value.Text()
		case "messages", "input", "prompt":
			p.messages = value.Text()
		}
	}
}

// writeTo hashes the system prompt and the messages up to the first of the user.
func (p *prompt) writeTo(h hash.Hash) {
	p.writeValue(h, p.system)
	if p.messages.Kind() != '[' {
		p.writeValue(h, p.messages)
		return
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(p.messages), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if _, err := d.ReadToken(); err != nil {
		return
	}
	for d.PeekKind() != ']' {
		message, err := d.ReadValue()
		if err != nil || p.limit <= 0 {
			return
		}
		message = message.Clone()
		p.writeValue(h, message)
		if bytes.Contains(message, []byte(`"user"`)) {
			return
		}
	}
}

// cacheMark is where clients ask for the cache. They move it with every turn, so it isn't hashed.
const cacheMark = "cache_control"

// writeValue hashes the texts of a value without its white space.
func (p *prompt) writeValue(h hash.Hash, value jsontext.Value) {
	if len(value) == 0 {
		return
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(value), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for p.limit > 0 {
		token, err := d.ReadToken()
		if err != nil {
			return
		}
		if token.Kind() != '"' {
			continue
		}
		text := token.String()
		if kind, n := d.StackIndex(d.StackDepth()); kind == '{' && n%2 == 1 { // a name
			if text == cacheMark {
				if d.SkipValue() != nil {
					return
				}
				continue
			}
		}
		text = text[:min(len(text), p.limit)]
		p.limit -= len(text)
		writeText(h, 'v', text)
	}
}

// writeText hashes a text with its length, so that two texts differ from their concatenation.
func writeText(h hash.Hash, kind byte, text string) {
	var head [9]byte
	head[0] = kind
	binary.BigEndian.PutUint64(head[1:], uint64(len(text)))
	h.Write(head[:])
	h.Write([]byte(text))
}
