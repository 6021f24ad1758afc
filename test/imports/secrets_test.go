package imports

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// randomness lists the files that read crypto/rand, and why what they create isn't a credential, or which one it is. A
// credential must come from keyring.NewSecret, whose kinds are found, masked and revoked when they leak.
var randomness = map[string]string{
	"internal/keyring/secrets.go":               "creates the kinds of the registry",
	"webhook/sign.go":                           "creates webhook secrets, a kind of the registry",
	"internal/people/people.go":                 "states, challenges, pending sign-ins and browser marks: worthless without a password or another factor",
	"internal/db/group.go":                      "the ID of a process's commits",
	"internal/people/password.go":               "salts",
	"internal/people/totp.go":                   "second factors, worthless without the first",
	"internal/agents/toolservers/connect.go":    "the state of an authorization, bound to a session",
	"internal/agents/toolservers/connection.go": "the ID of a connection",
	"internal/api/mcp.go":                       "the ID of an MCP session, which needs a key",
	"internal/dashboard/savedform.go":           "the ID of a saved form, bound to a session",
	"internal/ids/generator.go":                 "IDs",
	"internal/keyring/master.go":                "the master key, which never leaves the server",
	"internal/certificates/store.go":            "private keys, which never leave the server",
	"internal/certificates/cache.go":            "private keys, which never leave the server",
	"internal/certificates/order.go":            "private keys, which never leave the server",
}

// registries are the files that may spell out the prefix of a secret. Others use package keyring.
var registries = []string{"internal/keyring/secrets.go", "webhook/webhook.go"}

var prefixLiteral = regexp.MustCompile(`^(tp_[a-z]+_|wh[a-z]*sec_)$`)

// TestSecretsAreCreatedByTheRegistryOnly guards N6: a secret of an unregistered kind would never be revoked.
func TestSecretsAreCreatedByTheRegistryOnly(t *testing.T) {
	t.Parallel()
	unused := maps.Clone(randomness)
	for _, dir := range []string{"internal", "webhook"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			name := filepath.ToSlash(strings.TrimPrefix(path, filepath.Join("..", "..")+string(filepath.Separator)))
			if importsRandomness(file) {
				if randomness[name] == "" {
					t.Errorf("%s reads crypto/rand: create credentials with keyring.NewSecret, or say in this test why it is none", name)
				}
				delete(unused, name)
			}
			if slices.Contains(registries, name) {
				return nil
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if s, _ := strconv.Unquote(literal.Value); prefixLiteral.MatchString(s) {
						t.Errorf("%s has the prefix %s; use the kinds of package keyring", name, s)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range unused {
		t.Errorf("%s doesn't read crypto/rand anymore; remove it from this test", name)
	}
}

func importsRandomness(file *ast.File) bool {
	return slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"crypto/rand"` })
}
