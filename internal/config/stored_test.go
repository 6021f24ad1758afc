package config

import (
	"strings"
	"testing"
)

// An API must not read the server's files and environment, or run its programs.
func TestStoredProviderHasNoSourcesOfTheServer(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{"api_key_env": `"HOME"`, "api_key_file": `"/etc/passwd"`, "api_key_command": `["id"]`,
		"sign_in": `{"with": "google", "credentials_file": "/etc/passwd"}`} {
		_, err := ParseProvider([]byte(`{"name": "a", "type": "gemini", "base_url": "https://example.com", "` + key + `": ` + value + `}`))
		if err == nil || !strings.Contains(err.Error(), key+": belongs into the configuration file") {
			t.Errorf("%s: got %v", key, err)
		}
	}
}
