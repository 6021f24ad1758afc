// Command withpostgres runs a command with a throw-away PostgreSQL:
//
//	go run ./test/withpostgres -- go test ./...
//
// The command finds the server's address in TURNPIKE_TEST_DATABASE_URL. When
// that is set already, the command runs as it is, on the server it names.
// Signals are passed on to the command and all it started; the exit code is the
// command's. The command has no standard input.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"turnpike/internal/db/dbtest"
)

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: withpostgres [--] command [argument ...]")
		os.Exit(2)
	}
	code, err := run(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "withpostgres:", err)
	}
	os.Exit(code)
}

func run(args []string) (code int, err error) {
	// From here on no signal ends us before the server is stopped: one that comes
	// while it starts waits for the command.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)

	env := os.Environ()
	if os.Getenv(dbtest.URLVariable) == "" {
		cluster, err := dbtest.StartCluster()
		if err != nil {
			return 1, err
		}
		defer func() {
			if stopErr := cluster.Stop(); stopErr != nil {
				code, err = max(code, 1), errors.Join(err, stopErr)
			}
		}()
		env = append(env, dbtest.URLVariable+"="+cluster.URL())
	}

	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	// A process group of its own, for the signals: go test dies of SIGTERM
	// without telling the test binaries it runs.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 127, err
	}
	go func() {
		for s := range signals {
			_ = syscall.Kill(-cmd.Process.Pid, s.(syscall.Signal)) // fails only when all have ended
		}
	}()
	return exitCode(cmd.Wait())
}

// exitCode follows the shell: 128 and the signal's number for a killed command.
func exitCode(err error) (int, error) {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		if err != nil {
			return 1, err
		}
		return 0, nil
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}
