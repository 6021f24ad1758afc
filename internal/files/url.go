package files

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/fault"
)

// Prefix is the path under which files are served.
const Prefix = "/files/"

type link struct {
	accounts.Tenant
	sha256  string
	name    string
	expires string // Unix seconds, as written
}

// URL returns a signed URL. Browsers save the file under the name, which is
// signed as well.
func (s *Store) URL(t accounts.Tenant, f File, name string, expires time.Time) string {
	return s.publicURL + s.Path(t, f, name, expires)
}

// Path returns the signed URL without the server's address.
func (s *Store) Path(t accounts.Tenant, f File, name string, expires time.Time) string {
	l := link{t, f.SHA256, name, strconv.FormatInt(expires.Unix(), 10)}
	var path strings.Builder
	for i, part := range []string{t.WorkspaceID, string(t.Environment), f.SHA256, name} {
		if i > 0 {
			path.WriteByte('/')
		}
		path.WriteString(url.PathEscape(part))
	}
	return Prefix + path.String() + "?expires=" + l.expires + "&signature=" + l.sign(s.key)
}

// sign returns the signature of all parts. Each has its length as a prefix, so
// that no two links sign the same string.
func (l link) sign(key []byte) string {
	mac := hmac.New(sha256.New, key)
	for _, part := range []string{"turnpike/file/v1", l.WorkspaceID, string(l.Environment), l.sha256, l.name, l.expires} {
		fmt.Fprintf(mac, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// check verifies the link of a request and returns how long it stays valid.
func (s *Store) check(r *http.Request) (l link, left time.Duration, err error) {
	path, under := strings.CutPrefix(r.URL.Path, Prefix)
	parts := strings.SplitN(path, "/", 4)
	if !under || len(parts) != 4 {
		return l, 0, fault.New(fault.InvalidSignature, "This is not the URL of a file. Use the URL exactly as returned.")
	}
	query := r.URL.Query()
	l = link{accounts.Tenant{WorkspaceID: parts[0], Environment: accounts.Environment(parts[1])}, parts[2], parts[3], query.Get("expires")}
	if !hmac.Equal([]byte(query.Get("signature")), []byte(l.sign(s.key))) {
		return l, 0, fault.New(fault.InvalidSignature, "The signature does not match this URL. Use the URL exactly as returned.")
	}
	seconds, err := strconv.ParseInt(l.expires, 10, 64)
	if err != nil {
		return l, 0, fault.New(fault.InvalidSignature, "The URL does not contain a valid expiry time.").Because(err)
	}
	if left = time.Unix(seconds, 0).Sub(s.now()); left <= 0 {
		return l, 0, fault.New(fault.InvalidSignature, "The URL has expired. Read the object again to get a new one.")
	}
	return l, left, nil
}
