package config

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"
)

// LeakScan is a Git repository or a CI log that the server scans for leaked secrets.
type LeakScan struct {
	Git       string        `key:"git"` // a path or an https:// URL
	Log       string        `key:"log"` // a file, a directory or an https:// URL
	Every     time.Duration `key:"every" default:"1h"`
	Username  string        `key:"username" default:"x-access-token"` // for the token, of a Git repository
	TokenEnv  string        `key:"token_env"`                         // the variable that has the token
	TokenFile string        `key:"token_file"`                        // read at each scan
}

// Token returns the token for the repository or the log, or an empty string.
func (s LeakScan) Token() (string, error) {
	if s.TokenFile == "" {
		return strings.TrimSpace(os.Getenv(s.TokenEnv)), nil
	}
	text, err := os.ReadFile(s.TokenFile)
	return strings.TrimSpace(string(text)), err
}

const minScanInterval = time.Minute

func scanProblems(list []LeakScan) Problems {
	f := &faults{}
	for i, s := range list {
		f.path = fmt.Sprintf("leaks.scan[%d]", i)
		key, address := "git", s.Git
		if address == "" {
			key, address = "log", s.Log
		}
		f.addIf((s.Git == "") == (s.Log == ""), "", "must have either git or log")
		f.addIf(s.Every < minScanInterval, "every", "must be at least %s", minScanInterval)
		f.addIf(s.TokenEnv != "" && s.TokenFile != "", "token_env", "is set next to token_file; expected one of the two")
		f.addIf(strings.HasPrefix(address, "-"), key, "is neither a path nor an https:// URL")
		if !strings.Contains(address, "://") {
			f.addIf(s.TokenEnv+s.TokenFile != "", key, "is a path, for which there is no token")
			continue
		}
		u, err := url.Parse(address)
		f.addIf(err != nil || u.Scheme != "https" || u.Host == "", key, "is neither a path nor an https:// URL")
		f.addIf(err == nil && u.User != nil, key, "has a password; use username, and token_env or token_file")
	}
	return f.all
}
