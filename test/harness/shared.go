package harness

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"turnpike/test/statements"
)

// Shared returns the server that tests of the package share. It's for tests that
// neither move the clock, nor change the configuration, nor stop the server, nor
// count what other workspaces do. The package's TestMain must be Main.
func Shared(engine string) *Server { return shared[engine]() }

// shared holds one server per engine, started by the first test that needs it.
var shared = map[string]func() *Server{
	"sqlite":   sync.OnceValue(func() *Server { return startShared("sqlite") }),
	"postgres": sync.OnceValue(func() *Server { return startShared("postgres") }),
}

func startShared(engine string) *Server {
	s := Start(process, Config(process, engine), NewClock())
	s.shared = true
	return s
}

// Main is the TestMain of packages that use Shared.
func Main(m *testing.M) {
	run(m, func() {})
}

// MainWithStatements is Main that also checks that the statements which the tests execute read a bounded number of rows,
// apart from exceptions, all of which must be needed.
func MainWithStatements(m *testing.M, needed statements.Exceptions) {
	recorded := statements.Record()
	run(m, func() { recorded.Check(process, needed) })
}

func run(m *testing.M, after func()) {
	code := m.Run()
	after()
	process.end()
	if process.failed {
		code = 1
	}
	os.Exit(code)
}

// process stands for the whole test run where a helper needs a test.
var process = &lifetime{}

// lifetime implements as much of testing.TB as starting a server takes. A call
// to any other method panics.
type lifetime struct {
	testing.TB
	mu      sync.Mutex
	cleanup []func()
	failed  bool
}

func (*lifetime) Helper()                  {}
func (*lifetime) Logf(f string, a ...any)  { fmt.Fprintf(os.Stderr, f+"\n", a...) }
func (*lifetime) Name() string             { return "shared server" }
func (*lifetime) Context() context.Context { return context.Background() }

func (l *lifetime) Error(args ...any) {
	l.failed = true
	fmt.Fprintln(os.Stderr, append([]any{"shared server:"}, args...)...)
}

func (l *lifetime) Failed() bool { return l.failed }

func (l *lifetime) Errorf(format string, args ...any) { l.Error(fmt.Sprintf(format, args...)) }

func (l *lifetime) Fatal(args ...any) {
	l.Error(args...)
	l.end()
	os.Exit(1)
}

func (l *lifetime) Fatalf(format string, args ...any) { l.Fatal(fmt.Sprintf(format, args...)) }

func (l *lifetime) Cleanup(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleanup = append(l.cleanup, fn)
}

func (l *lifetime) TempDir() string {
	dir, err := os.MkdirTemp("", "turnpike-shared-")
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// end runs the cleanup functions, the last one first.
func (l *lifetime) end() {
	for len(l.cleanup) > 0 {
		last := len(l.cleanup) - 1
		fn := l.cleanup[last]
		l.cleanup = l.cleanup[:last]
		fn()
	}
}
