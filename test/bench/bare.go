package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"turnpike/test/chaos/program"
)

// bareOrder is what the bare server answers: the bytes that Turnpike did.
type bareOrder struct {
	Plain  []byte   `json:"plain"`
	Events [][]byte `json:"events"` // a stream's, written and flushed one by one
}

// playBare is the process of the server that everything is compared with: what
// net/http alone can do with the same bytes. It does not even read the request.
func playBare(in io.Reader, out io.Writer) error {
	from := bufio.NewReader(in)
	line, err := from.ReadBytes('\n')
	if err != nil {
		return err
	}
	var o bareOrder
	if err := json.Unmarshal(line, &o); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /plain", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(o.Plain)))
		_, _ = w.Write(o.Plain) // the generator notices
	})
	mux.HandleFunc("POST /stream", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		control := http.NewResponseController(w)
		for _, event := range o.Events {
			_, _ = w.Write(event)
			_ = control.Flush()
		}
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, ln.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, from) // ends with whoever started us
		os.Exit(0)
	}()
	return http.Serve(ln, mux)
}

// bareServer is that process, from outside.
type bareServer struct {
	address string
	cmd     *exec.Cmd
	in      io.Closer
}

func startBare(o bareOrder) (*bareServer, error) {
	order, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleVariable+"="+roleBare)
	cmd.Stderr = os.Stderr
	program.EndWithParent(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &bareServer{cmd: cmd, in: in}
	if _, err := in.Write(append(order, '\n')); err != nil {
		s.stop()
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("start the bare server: %w", err)
	}
	s.address = strings.TrimSpace(line)
	return s, nil
}

func (s *bareServer) stop() {
	s.in.Close()
	_ = s.cmd.Wait() // it ends with its input
}

// splitEvents cuts a stream into its events.
func splitEvents(stream []byte) [][]byte {
	var events [][]byte
	for event := range bytes.SplitAfterSeq(stream, []byte("\n\n")) {
		if len(event) > 0 {
			events = append(events, event)
		}
	}
	return events
}
