package credentials

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const (
	// fileReread is how often a file is read again. Kubernetes replaces tokens in files minutes before
	// they expire.
	fileReread = time.Minute
	// commandReread is how often a command runs that doesn't say when its key expires.
	commandReread = 5 * time.Minute
	maxKey        = 64 << 10
)

// File returns a source that reads a key from a file.
func File(path string) Fetch {
	return func(context.Context) (Token, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return Token{}, fmt.Errorf("api_key_file: %w", err)
		}
		key, err := singleKey(text)
		if err != nil {
			return Token{}, fmt.Errorf("api_key_file %s %w", path, err)
		}
		return Token{Value: key, Reread: fileReread}, nil
	}
}

// Command returns a source that runs a program without a shell. The program prints a key, or a JSON
// object with the key and its expiry.
func Command(args []string) Fetch {
	return func(ctx context.Context) (Token, error) {
		var stdout, stderr limitedBuffer
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.Env = withoutOwnSecrets(os.Environ())
		cmd.WaitDelay = time.Second // a child of it may keep the pipes open
		if err := cmd.Run(); err != nil {
			return Token{}, fmt.Errorf("api_key_command %s: %w: %s", args[0], err, firstLine(stderr.Bytes()))
		}
		token, err := parseOutput(stdout.Bytes())
		if err != nil {
			return Token{}, fmt.Errorf("the output of api_key_command %s %w", args[0], err)
		}
		return token, nil
	}
}

// limitedBuffer keeps the beginning of an output.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), max(0, maxKey+1-b.Len()))])
	return len(p), nil
}

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return line[:min(len(line), 200)]
}

// withoutOwnSecrets drops Turnpike's own variables, such as the master key.
func withoutOwnSecrets(env []string) (kept []string) {
	for _, variable := range env {
		if !strings.HasPrefix(variable, "TURNPIKE_") {
			kept = append(kept, variable)
		}
	}
	return kept
}

var errNotKey = errors.New("is not a key; expected one line of ASCII characters without spaces")

func singleKey(text []byte) (string, error) {
	key := string(bytes.TrimSpace(text))
	if key == "" {
		return "", errors.New("is empty; expected a key")
	}
	if len(key) > maxKey || strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", errNotKey
	}
	return key, nil
}

// commandOutput has the fields that the command-line tools of clouds print.
type commandOutput struct {
	Token       string      `json:"token"`
	AccessToken string      `json:"access_token"`
	Azure       string      `json:"accessToken"`
	ExpiresIn   json.Number `json:"expires_in"` // seconds
	ExpiresOn   json.Number `json:"expires_on"` // Unix time
	ExpiresAt   string      `json:"expires_at"` // RFC 3339
}

func parseOutput(text []byte) (Token, error) {
	if text = bytes.TrimSpace(text); !bytes.HasPrefix(text, []byte("{")) {
		key, err := singleKey(text)
		return Token{Value: key, Reread: commandReread}, err
	}
	var out commandOutput
	if err := json.Unmarshal(text, &out); err != nil {
		return Token{}, errors.New("is not valid JSON; expected {\"token\": …, \"expires_at\": …}")
	}
	key, err := singleKey([]byte(cmp.Or(out.Token, out.AccessToken, out.Azure)))
	if err != nil {
		return Token{}, errors.New("has no token; expected {\"token\": …, \"expires_at\": …}")
	}
	token := Token{Value: key, Reread: commandReread}
	switch {
	case out.ExpiresAt != "":
		token.Expires, err = time.Parse(time.RFC3339, out.ExpiresAt)
	case out.ExpiresOn != "":
		var seconds int64
		seconds, err = strconv.ParseInt(string(out.ExpiresOn), 10, 64)
		token.Expires = time.Unix(seconds, 0)
	case out.ExpiresIn != "":
		var seconds int64
		seconds, err = strconv.ParseInt(string(out.ExpiresIn), 10, 64)
		token.Expires = time.Now().Add(time.Duration(seconds) * time.Second)
	}
	if err != nil {
		return Token{}, errors.New("has an expiry that is not a time; expected expires_at in RFC 3339, or expires_in in seconds")
	}
	return token, nil
}
