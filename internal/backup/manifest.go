package backup

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// format is the version of the layout of a backup.
	format = 1

	manifestName = "manifest.json"
	// databaseName is a SQLite database, also for a server on PostgreSQL.
	databaseName = "turnpike.db"
	filesPrefix  = "files/"
)

// Manifest describes a backup. It is written last, so a backup without one is
// incomplete.
type Manifest struct {
	Format     int       `json:"format"`
	Name       string    `json:"name"`
	Version    string    `json:"turnpike_version"`
	Schema     int       `json:"schema_version"`
	Engine     string    `json:"engine"` // of the server
	MasterKey  string    `json:"master_key_fingerprint"`
	RootKey    string    `json:"root_key"` // encrypted with the master key, as in the database
	Encrypted  bool      `json:"encrypted,omitzero"`
	StartedAt  time.Time `json:"started_at"` // everything committed before is in the backup
	FinishedAt time.Time `json:"finished_at"`
	// MissingFiles have a row in the database but could not be found.
	MissingFiles int      `json:"missing_files"`
	Members      []Member `json:"members"`
}

// Member is a file of a backup.
type Member struct {
	Path   string `json:"path"`  // with slashes
	Bytes  int64  `json:"bytes"` // as stored, like the hash
	SHA256 string `json:"sha256"`
}

// Bytes returns the size of all members.
func (m *Manifest) Bytes() (sum int64) {
	for _, member := range m.Members {
		sum += member.Bytes
	}
	return sum
}

// plain returns the path of a member once it is decrypted.
func (m *Manifest) plain(member Member) string {
	if m.Encrypted {
		return strings.TrimSuffix(member.Path, encryptedSuffix)
	}
	return member.Path
}

var errManifest = errors.New(manifestName + " is corrupt; use another backup")

// Signer authenticates what is stored next to the data of the backups: *keyring.Ring.
type Signer interface {
	SignBackup(description []byte) []byte
}

// encode returns a description with its own checksum, and the signature of this server.
func encode(description any, by Signer) ([]byte, error) {
	body, err := json.MarshalIndent(description, "  ", "  ")
	if err != nil {
		return nil, err
	}
	return seal(body, by.SignBackup(body)), nil
}

func seal(body, signature []byte) []byte {
	sum, signed := sha256.Sum256(slices.Concat(signature, body)), ""
	if signature != nil {
		signed = fmt.Sprintf("  \"hmac_sha256\": \"%x\",\n", signature)
	}
	return fmt.Appendf(nil, "{\n  \"sha256\": \"%x\",\n%s  \"backup\": %s\n}\n", sum, signed, body)
}

// sealed is a description that was read, with its checksum verified.
type sealed struct {
	body      []byte
	signature []byte // nil in backups of earlier versions
}

func unseal(data []byte) (s sealed, err error) {
	var read struct {
		HMAC   string `json:"hmac_sha256"`
		Backup json.RawMessage
	}
	if err := json.Unmarshal(data, &read); err != nil {
		return s, errManifest
	}
	if read.HMAC != "" {
		if s.signature, err = hex.DecodeString(read.HMAC); err != nil {
			return s, errManifest
		}
	}
	if s.body = read.Backup; !bytes.Equal(seal(s.body, s.signature), data) {
		return s, errManifest
	}
	return s, nil
}

func (s sealed) isSignedBy(by Signer) bool {
	return s.signature != nil && hmac.Equal(s.signature, by.SignBackup(s.body))
}

func (s sealed) manifest() (*Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(s.body, &m); err != nil {
		return nil, errManifest
	}
	if m.Format != format {
		return nil, fmt.Errorf("the backup has format %d, which this version of Turnpike does not know; use version %s or a later one", m.Format, m.Version)
	}
	for _, member := range m.Members {
		path := m.plain(member)
		if !filepath.IsLocal(filepath.FromSlash(path)) || path != databaseName && !strings.HasPrefix(path, filesPrefix) {
			return nil, errManifest
		}
	}
	return &m, nil
}
