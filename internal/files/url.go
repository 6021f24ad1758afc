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

	"turnpike/internal/fault"
)

// Prefix is the path under which files are served.
const Prefix = "/files/"

// link is what a signed URL says.
type link struct {
	Owner
	sha256  string
	name    string
	expires string // in Unix seconds, as it is written
}

// URL mints a signed URL. The name is what a browser saves the file as; it is
// part of what is signed.
func (s *Store) URL(o Owner, f File, name string, expires time.Time) string {
	l := link{o, f.SHA256, name, strconv.FormatInt(expires.Unix(), 10)}
	var path strings.Builder
	for i, part := range []string{o.WorkspaceID, o.Environment, f.SHA256, name} {
		if i > 0 {
			path.WriteByte('/')
		}
		path.WriteString(url.PathEscape(part))
	}
	return s.publicURL + Prefix + path.String() + "?expires=" + l.expires + "&signature=" + l.sign(s.key)
}

// sign is over all parts, each behind its length, so that no two links have
// the same text.
func (l link) sign(key []byte) string {
	mac := hmac.New(sha256.New, key)
	for _, part := range []string{"turnpike/file/v1", l.WorkspaceID, l.Environment, l.sha256, l.name, l.expires} {
		fmt.Fprintf(mac, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// check reads the link of a request, and says how much of its life is left.
func (s *Store) check(r *http.Request) (l link, left time.Duration, err error) {
	path, under := strings.CutPrefix(r.URL.Path, Prefix)
	parts := strings.SplitN(path, "/", 4)
	if !under || len(parts) != 4 {
		return l, 0, fault.New(fault.InvalidSignature, "this is not the address of a file; use a url as it was given, unchanged")
	}
	query := r.URL.Query()
	l = link{Owner{parts[0], parts[1]}, parts[2], parts[3], query.Get("expires")}
	if !hmac.Equal([]byte(query.Get("signature")), []byte(l.sign(s.key))) {
		return l, 0, fault.New(fault.InvalidSignature, "the signature does not belong to this address; use a url as it was given, unchanged")
	}
	seconds, err := strconv.ParseInt(l.expires, 10, 64)
	if err != nil {
		return l, 0, fault.New(fault.InvalidSignature, "the address does not say when it expires").Because(err)
	}
	if left = time.Unix(seconds, 0).Sub(s.now()); left <= 0 {
		return l, 0, fault.New(fault.InvalidSignature, "the url has expired; read the object again, which has a new one")
	}
	return l, left, nil
}
