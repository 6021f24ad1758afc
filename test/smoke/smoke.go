// Package smoke selects the tests of a long suite that run on every change.
package smoke

import (
	"flag"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// Only restricts a run with -short, as in .ci/run, to these tests. TestMain calls it before it runs the tests.
func Only(tests ...func(*testing.T)) {
	flag.Parse()
	run := flag.Lookup("test.run")
	if !testing.Short() || run.Value.String() != "" {
		return
	}
	names := make([]string, len(tests))
	for i, test := range tests {
		name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
		names[i] = name[strings.LastIndexByte(name, '.')+1:]
	}
	if err := run.Value.Set("^(" + strings.Join(names, "|") + ")$"); err != nil {
		panic(err)
	}
}
