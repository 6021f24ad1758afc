package api_test

import (
	"testing"

	"turnpike/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
