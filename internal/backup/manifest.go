package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
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
	StartedAt  time.Time `json:"started_at"` // everything committed before is in the backup
	FinishedAt time.Time `json:"finished_at"`
	// MissingFiles have a row in the database but could not be found.
	MissingFiles int      `json:"missing_files"`
	Members      []Member `json:"members"`
}

// Member is a file of a backup.
type Member struct {
	Path   string `json:"path"` // with slashes
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Bytes returns the size of all members.
func (m *Manifest) Bytes() (sum int64) {
	for _, member := range m.Members {
		sum += member.Bytes
	}
	return sum
}

var errManifest = errors.New(manifestName + " is corrupt; use another backup")

// encode returns the manifest with its own checksum.
func (m *Manifest) encode() ([]byte, error) {
	body, err := json.MarshalIndent(m, "  ", "  ")
	if err != nil {
		return nil, err
	}
	return seal(body), nil
}

func seal(body []byte) []byte {
	sum := sha256.Sum256(body)
	return fmt.Appendf(nil, "{\n  \"sha256\": \"%s\",\n  \"backup\": %s\n}\n", hex.EncodeToString(sum[:]), body)
}

func decodeManifest(data []byte) (*Manifest, error) {
	var sealed struct{ Backup json.RawMessage }
	if err := json.Unmarshal(data, &sealed); err != nil || !bytes.Equal(seal(sealed.Backup), data) {
		return nil, errManifest
	}
	var m Manifest
	if err := json.Unmarshal(sealed.Backup, &m); err != nil {
		return nil, errManifest
	}
	if m.Format != format {
		return nil, fmt.Errorf("the backup has format %d, which this version of Turnpike does not know; use version %s or a later one", m.Format, m.Version)
	}
	for _, member := range m.Members {
		if !filepath.IsLocal(filepath.FromSlash(member.Path)) || member.Path != databaseName && !strings.HasPrefix(member.Path, filesPrefix) {
			return nil, errManifest
		}
	}
	return &m, nil
}
