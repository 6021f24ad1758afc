package dashboard_test

import (
	"testing"

	"turnpike/test/harness"
)

func TestMain(m *testing.M) { harness.MainWithStatements(m) }
