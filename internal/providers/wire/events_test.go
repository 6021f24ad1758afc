package wire

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"turnpike/internal/providers"
)

func TestEventsAreReadByTheStandard(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		want []string // "name|data"
		end  providers.Kind
	}{
		"one":                      {"data: a\n\n", []string{"|a"}, ""},
		"several":                  {"data: a\n\ndata: b\n\n", []string{"|a", "|b"}, ""},
		"named":                    {"event: ping\ndata: a\n\ndata: b\n\n", []string{"ping|a", "|b"}, ""},
		"name after data":          {"data: a\nevent: ping\n\n", []string{"ping|a"}, ""},
		"both":                     {"event: x\r\ndata: a\r\n\r\ndata: b\r\n\r\n", []string{"x|a", "|b"}, ""},
		"no space":                 {"data:a\n\n", []string{"|a"}, ""},
		"two spaces":               {"data:  a\n\n", []string{"| a"}, ""},
		"lines of data":            {"data: a\ndata: b\r\ndata:\ndata\ndata: c\n\n", []string{"|a\nb\n\n\nc"}, ""},
		"empty data first":         {"data\ndata: b\n\n", []string{"|\nb"}, ""},
		"empty data":               {"data:\n\n", []string{"|"}, ""},
		"comments":                 {": hello\n\n:\n\ndata: a\n: inside\ndata: b\n\n: bye\n\n", []string{"|a\nb"}, ""},
		"name alone":               {"event: a\n\ndata: b\n\n", []string{"|b"}, ""},
		"other fields":             {"id: 1\nretry: 5\nDATA: no\nwhatever\ndata: a\n\n", []string{"|a"}, ""},
		"colons in data":           {"data: {\"a\":\"b: c\"}\n\n", []string{`|{"a":"b: c"}`}, ""},
		"nothing":                  {"", nil, ""},
		"blank lines":              {"\n\r\n\r\n", nil, ""},
		"no blank line at the end": {"data: a\n\ndata: b\n", []string{"|a", "|b"}, providers.KindCut},
		"no line's end at the end": {"data: a\n\ndata: b", []string{"|a", "|b"}, providers.KindCut},
		"half a field":             {"data: a\n\ndata: b\nda", []string{"|a", "|b"}, providers.KindCut},
		"name and end":             {"event: x\n", []string{"x|"}, providers.KindCut},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := readEvents(strings.NewReader(c.body))
			if !slices.Equal(got, c.want) || kindOf(err) != c.end || c.end == "" && err != io.EOF {
				t.Errorf("got %q and %v, want %q and %s", got, err, c.want, c.end)
			}
			again, againErr := readEvents(iotest.OneByteReader(strings.NewReader(c.body)))
			if !slices.Equal(again, got) || kindOf(againErr) != kindOf(err) {
				t.Errorf("byte by byte it is %q and %v, not %q and %v", again, againErr, got, err)
			}
		})
	}
}

func TestEventIsReturnedBeforeTheNextByteArrives(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"data: a\n\n", "data: a\r\n\r\n"} {
		r, w := io.Pipe()
		go func() { _, _ = io.WriteString(w, body) }() // without an end
		e := NewEvents(&http.Response{Body: r}, nil)
		if _, data, err := e.Next(); string(data) != "a" || err != nil {
			t.Errorf("%q gave %q and %v", body, data, err)
		}
		_ = e.Close()
	}
}

func TestEventsAreLimitedInSize(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10_000_000)
	e := NewEvents(response(strings.NewReader("data: a\n\ndata: "+long+"\n\ndata: b\n\n")), nil)
	for _, want := range []string{"a", long, "b"} {
		if _, data, err := e.Next(); string(data) != want || err != nil {
			t.Fatalf("an event of %d bytes came as %d with %v", len(want), len(data), err)
		}
	}
	for name, body := range map[string]io.Reader{
		"a line":     io.MultiReader(strings.NewReader("data: "), endless('x')),
		"a comment":  io.MultiReader(strings.NewReader(": "), endless('x')),
		"many lines": strings.NewReader(strings.Repeat("data: some\n", 3<<20)),
	} {
		e := NewEvents(response(body), nil)
		if _, _, err := e.Next(); kindOf(err) != providers.KindProtocol {
			t.Errorf("%s without an end gave %v", name, err)
		}
		if _, _, err := e.Next(); kindOf(err) != providers.KindProtocol {
			t.Errorf("%s without an end gave %v the second time", name, err)
		}
		if got := len(e.data); got > maxEvent+4<<10 {
			t.Errorf("%s: %d bytes in memory, want at most %d", name, got, maxEvent)
		}
	}
}

func TestCommentsUseNoMemory(t *testing.T) {
	t.Parallel()
	e := NewEvents(response(io.MultiReader(strings.NewReader(strings.Repeat(": still thinking\n", 10_000)+"data: a\n\n"), endless('x'))), nil)
	if _, data, err := e.Next(); string(data) != "a" || err != nil {
		t.Fatalf("got %q and %v", data, err)
	}
	if got := cap(e.data); got > 4<<10 {
		t.Errorf("%d bytes in memory, want less than a few lines", got)
	}
}

func TestBrokenBodyIsCut(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	e := NewEvents(response(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken))), nil)
	if _, data, err := e.Next(); string(data) != "a" || err != nil {
		t.Fatalf("got %q and %v", data, err)
	}
	for range 2 {
		if _, _, err := e.Next(); kindOf(err) != providers.KindCut || !errors.Is(err, broken) {
			t.Errorf("got %v, want the cut", err)
		}
	}
}

// FuzzEvents checks every body for these guarantees: no panic, bounded memory,
// and the same events for every split into reads.
func FuzzEvents(f *testing.F) {
	for _, body := range []string{
		"", "data: a\n\n", "data\ndata: b\r\n\r\nevent: x\rdata: c\r\r: d\n", "event:x\n\n\ndata:\n\n", "data: a\n\r\n\rdata",
		"data: " + strings.Repeat("long", 3000) + "\ndata: more\n\n",
	} {
		f.Add([]byte(body), uint8(1), uint8(3))
	}
	f.Fuzz(func(t *testing.T, body []byte, a, b uint8) {
		whole, wholeErr := readEvents(bytes.NewReader(body))
		split, splitErr := readEvents(&splitReader{rest: body, sizes: [2]int{int(a) + 1, int(b) + 1}})
		if !slices.Equal(whole, split) || kindOf(wholeErr) != kindOf(splitErr) {
			t.Fatalf("in one read %q and %v, in reads of %d and %d %q and %v", whole, wholeErr, int(a)+1, int(b)+1, split, splitErr)
		}
		if want := simpleEvents(string(body)); wholeErr == io.EOF && !slices.Equal(whole, want) {
			t.Fatalf("got %q, a simple reader %q", whole, want)
		}
	})
}

// simpleEvents parses events in the obvious way.
func simpleEvents(body string) []string {
	var events, data []string
	name := ""
	for line := range strings.SplitSeq(body, "\n") {
		line = strings.TrimSuffix(line, "\r")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data != nil {
				events = append(events, name+"|"+strings.Join(data, "\n"))
			}
			data, name = nil, ""
		case field == "data":
			data = append(data, value)
		case field == "event":
			name = value
		}
	}
	return events
}

func readEvents(from io.Reader) ([]string, error) {
	e := NewEvents(response(from), nil)
	var got []string
	for {
		name, data, err := e.Next()
		if data != nil || name != "" {
			got = append(got, name+"|"+string(data))
		}
		if err != nil {
			return got, err
		}
	}
}

func response(from io.Reader) *http.Response { return &http.Response{Body: io.NopCloser(from)} }

func kindOf(err error) providers.Kind {
	var f *providers.Failure
	if errors.As(err, &f) {
		return f.Kind
	}
	return ""
}

// splitReader returns its bytes in parts of alternating sizes.
type splitReader struct {
	rest  []byte
	sizes [2]int
}

func (r *splitReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest[:min(len(r.rest), r.sizes[0])])
	r.rest = r.rest[n:]
	r.sizes[0], r.sizes[1] = r.sizes[1], r.sizes[0]
	return n, nil
}

type endless byte

func (b endless) Read(p []byte) (int, error) {
	return copy(p, bytes.Repeat([]byte{byte(b)}, len(p))), nil
}

func BenchmarkEvents(b *testing.B) {
	event := "data: " + `{"id":"chatcmpl-123","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}` + "\n\n"
	body := strings.Repeat(event, 1000)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		e := NewEvents(response(strings.NewReader(body)), nil)
		for {
			if _, _, err := e.Next(); err != nil {
				break
			}
		}
	}
}

// pieces returns one piece after the other, and calls before for each that it begins.
type pieces struct {
	all    []string
	rest   string
	before func()
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.rest == "" {
		if len(p.all) == 0 {
			return 0, io.EOF
		}
		p.before()
		p.rest, p.all = p.all[0], p.all[1:]
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

func TestStreamThatWaitsHasNoLargeBuffer(t *testing.T) {
	t.Parallel()
	event := "data: " + strings.Repeat("x", 92) + "\n\n"
	for name, first := range map[string]string{"many events": strings.Repeat(event, 30), "a long event": "data: " + strings.Repeat("x", 5*fullBuffer) + "\n\n"} {
		var e *Events
		var sizes []int // of the buffers that wait for a piece
		body := &pieces{all: []string{event, first, event, event}, before: func() { sizes = append(sizes, cap(e.buf)) }}
		e = NewEvents(&http.Response{Body: io.NopCloser(body)}, nil)
		count := 0
		for ; ; count++ {
			if _, _, err := e.Next(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if want := strings.Count(first, "data") + 3; count != want {
			t.Errorf("%s: got %d events, want %d", name, count, want)
		}
		if slices.Max(sizes) > firstBuffer {
			t.Errorf("%s: waiting with buffers of %d bytes, want at most %d", name, sizes, firstBuffer)
		}
		_ = e.Close()
	}
}
