package config

import "testing"

func TestScansNeedOneReachableAddress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scan LeakScan
		ok   bool
	}{
		"path":               {LeakScan{Git: "/srv/git/app.git"}, true},
		"URL with a token":   {LeakScan{Git: "https://github.com/acme/app", TokenEnv: "T"}, true},
		"log":                {LeakScan{Log: "/var/log/ci"}, true},
		"nothing":            {LeakScan{}, false},
		"both":               {LeakScan{Git: "/a", Log: "/b"}, false},
		"plain HTTP":         {LeakScan{Git: "http://example.com/a"}, false},
		"another protocol":   {LeakScan{Git: "ext::sh -c x://"}, false},
		"an option":          {LeakScan{Git: "--upload-pack=x"}, false},
		"password in a URL":  {LeakScan{Git: "https://me:pw@example.com/a"}, false},
		"token for a path":   {LeakScan{Log: "/var/log/ci", TokenEnv: "T"}, false},
		"two tokens":         {LeakScan{Log: "https://example.com/a", TokenEnv: "T", TokenFile: "/t"}, false},
		"too short interval": {LeakScan{Log: "/var/log/ci", Every: 1}, false},
	} {
		if c.scan.Every == 0 {
			c.scan.Every = minScanInterval
		}
		if got := scanProblems([]LeakScan{c.scan}); (len(got) == 0) != c.ok {
			t.Errorf("%s: got problems %v", name, got)
		}
	}
}
