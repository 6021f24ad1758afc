package api

import (
	"io"
	"iter"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"

	"turnpike/internal/fault"
	"turnpike/internal/gateway"
)

func createSpeech(c *Call) error {
	body, err := c.readModelBody()
	if err != nil {
		return err
	}
	response, err := c.s.Gateway.Speech(c.Context(), c.modelCall(body))
	if err != nil {
		return err
	}
	c.nameModel(response)
	audio := response.Audio
	defer audio.Close()
	if audio.AsEvents() {
		return c.streamSpeech(audio)
	}
	return c.streamFile(readParts(audio), streamedFile{
		setHeaders: func(h http.Header) {
			h.Set("Content-Type", audio.ContentType())
			if size := audio.Size(); size >= 0 {
				h.Set("Content-Length", strconv.FormatInt(size, 10))
			}
		},
		beforeLog: func() { _ = audio.Close() }, // so that the log entry has the usage
	})
}

// speechEvent is an event of a speech stream in OpenAI's format.
type speechEvent struct {
	Type  string       `json:"type"`
	Audio []byte       `json:"audio,omitzero"` // base64
	Usage *speechUsage `json:"usage,omitzero"`
}

type speechUsage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	TotalTokens  int64 `json:"total_tokens"`
}

// streamSpeech sends the audio in events. An error before the first one is an ordinary error
// response; a later one is the last event.
func (c *Call) streamSpeech(audio *gateway.Audio) error {
	out := &eventWriter{c: c}
	send := func(e speechEvent) {
		data, _ := json.Marshal(e) // it has only strings and numbers
		out.named(e.Type, data)
	}
	end := func(f *fault.Error, last func()) error {
		_ = audio.Close() // before the log entry is settled, so that it has the usage
		c.settleStream(f)
		if last(); !c.Started {
			c.failUnlogged(out.err)
		}
		return nil
	}
	for part, err := range readParts(audio) {
		switch {
		case err != nil && !c.Started:
			return err
		case err != nil:
			f := c.Fault(err)
			return end(f, func() { out.event(c.errorJSON(f)) })
		case len(part) > 0:
			send(speechEvent{Type: "speech.audio.delta", Audio: part})
		}
		if out.err != nil {
			return end(nil, func() {})
		}
	}
	return end(nil, func() {
		input, output := audio.Usage()
		send(speechEvent{Type: "speech.audio.done", Usage: &speechUsage{input, output, input + output}})
	})
}

// readParts yields what a reader has, and at least one part, which may be empty.
func readParts(from io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if (n > 0 || err == io.EOF) && !yield(buf[:n], nil) || err == io.EOF {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// streamedFile describes a file that is sent while it is generated.
type streamedFile struct {
	setHeaders func(h http.Header)
	beforeLog  func() // called before the log entry is settled
}

// streamFile sends a file in parts. An error before the first part is an ordinary
// error response; a later one drops the connection, because the file must not look
// complete.
func (c *Call) streamFile(parts iter.Seq2[[]byte, error], f streamedFile) error {
	defer c.setWriteDeadline() // the end of the response may come long after its last byte
	var broken *fault.Error
	var size int64
	for part, err := range parts {
		size += int64(len(part))
		switch {
		case err != nil && !c.Started:
			return err
		case err != nil:
			broken = c.Fault(err)
		case !c.Started:
			// Send no byte before the request is in the log.
			if err := c.waitUntilLogged(); err != nil {
				return err
			}
			c.setSuccessHeaders(c.W.Header())
			f.setHeaders(c.W.Header())
			c.WriteHeader(http.StatusOK)
		}
		if c.writeChunks(part) != nil || http.NewResponseController(c.W).Flush() != nil {
			break // the client has disconnected
		}
		c.clearWriteDeadline()
	}
	f.beforeLog()
	c.content.SetBinary(c.W.Header().Get("Content-Type"), size)
	c.logContent()
	c.settle(http.StatusOK, broken)
	if broken != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}
