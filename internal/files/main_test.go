package files_test

import (
	"os"
	"testing"
)

// TestMain sets the credentials, which the SDK reads from the environment.
func TestMain(m *testing.M) {
	os.Setenv("AWS_ACCESS_KEY_ID", "test")
	os.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	os.Exit(m.Run())
}
