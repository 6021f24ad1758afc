package api_test

import (
	"testing"

	"turnpike/test/harness"
	"turnpike/test/statements"
)

func TestMain(m *testing.M) { harness.MainWithStatements(m, statements.API) }
