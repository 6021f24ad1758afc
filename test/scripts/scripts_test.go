// Package scripts_test runs the user journeys in testdata against the program
// itself, as its users do: one script, one journey, on both databases.
package scripts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"turnpike/internal/cli"
	"turnpike/internal/db/dbtest"
	"turnpike/test/freeport"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"turnpike": func() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
	})
}

func TestJourneysOnSQLite(t *testing.T) {
	t.Parallel()
	run(t, false, func(env *testscript.Env) error {
		env.Setenv("TURNPIKE_DATA", filepath.Join(env.WorkDir, "data"))
		return nil
	})
}

func TestJourneysOnPostgres(t *testing.T) {
	t.Parallel()
	run(t, true, func(env *testscript.Env) error {
		tb := env.T().(testing.TB)
		env.Setenv("TURNPIKE_DATA", filepath.Join(env.WorkDir, "data"))
		env.Setenv("TURNPIKE_DATABASE_URL", dbtest.Empty(tb, "postgres"))
		env.Setenv("TURNPIKE_MASTER_KEY", strings.Repeat("0f", 32))
		return nil
	})
}

func run(t *testing.T, postgres bool, engine func(env *testscript.Env) error) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			address := freeport.Address(t)
			env.Setenv("TURNPIKE_LISTEN", address)
			env.Setenv("URL", "http://"+address)
			// The race detector would have each command wait for a second at its end.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			env.Values[receiverKey{}] = newReceiver()
			return engine(env)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"await":   await,
			"capture": capture,
			"hook":    hook,
			"hooked":  hooked,
			"http":    call,
			"publish": publish,
		},
		Condition: func(cond string) (bool, error) {
			if cond != "postgres" {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			return postgres, nil
		},
		RequireExplicitExec: true,
	})
}

// capture NAME PATTERN: the first match of the pattern in the last command's
// output becomes an environment variable.
func capture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: capture NAME PATTERN")
	}
	out := ts.ReadFile("stdout")
	m := regexp.MustCompile(args[1]).FindStringSubmatch(out)
	if m == nil {
		ts.Fatalf("%s does not match %q", args[1], out)
	}
	ts.Setenv(args[0], m[len(m)-1])
}

// call STATUS METHOD PATH [KEY [BODY]]: asks the server, waiting for it to be
// up, and prints the answer for stdout and capture.
func call(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: http STATUS METHOD PATH [KEY [BODY]]")
	}
	status, body := ask(ts, args[1:])
	fmt.Fprintln(ts.Stdout(), body)
	if status != args[0] {
		ts.Fatalf("got %s, expected %s: %s", status, args[0], body)
	}
}
