package main

import (
	"testing"

	"turnpike/internal/db/dbtest"
)

func TestCommandSeesTheServerAndItsExitCodeIsOurs(t *testing.T) {
	for name, c := range map[string]struct {
		given, script string
		want          int
	}{
		"success":        {"postgres://given", `exit 0`, 0},
		"failure":        {"postgres://given", `exit 7`, 7},
		"killed":         {"postgres://given", `kill -TERM $$`, 128 + 15},
		"a given server": {"postgres://given", `test "$TURNPIKE_TEST_DATABASE_URL" = postgres://given`, 0},
		"a server of its own": {"", `case "$TURNPIKE_TEST_DATABASE_URL" in
			postgres://postgres@127.0.0.1:*) exit 0 ;; esac; exit 1`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(dbtest.URLVariable, c.given)
			if got, err := run([]string{"sh", "-c", c.script}); got != c.want || err != nil {
				t.Errorf("exit code %d, %v; want %d", got, err, c.want)
			}
		})
	}
}
