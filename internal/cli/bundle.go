package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"turnpike/internal/app"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/nodes"
)

const (
	// bundleTimeout is how long the running server and the database may take.
	bundleTimeout = 10 * time.Second
	// logTail limits the end of the log.
	logTail = 1 << 20
)

// bundle is a support bundle: files by name, and why some are missing.
type bundle struct {
	redactor *redactor
	names    []string
	files    map[string][]byte
	missing  bytes.Buffer
}

func (b *bundle) add(name string, text []byte, err error) {
	if err != nil {
		fmt.Fprintf(&b.missing, "%s: %s\n", name, message(err))
		return
	}
	b.names = append(b.names, name)
	b.files[name] = b.redactor.redact(text)
}

func (b *bundle) addJSON(name string, v any, err error) {
	text, encodeErr := json.MarshalIndent(v, "", "  ")
	b.add(name, append(text, '\n'), errors.Join(err, encodeErr))
}

// collectBundle gathers everything that helps to explain a problem. Parts that are
// unavailable are listed in missing.txt.
func collectBundle(ctx context.Context, l config.Loaded, checks []checkResult, logFile string) *bundle {
	ctx, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	b := &bundle{redactor: newRedactor(l.Config, os.Environ()), files: map[string][]byte{}}
	b.addJSON("doctor.json", doctorResult(checks), nil)
	var settings bytes.Buffer
	err := l.PrintJSON(&settings)
	b.add("settings.json", settings.Bytes(), err)
	b.addJSON("version.json", map[string]any{"version": version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
		"cpus": runtime.NumCPU(), "schema": len(db.Migrations()), "schema_fingerprint": db.Fingerprint(), "created_at": time.Now().UTC()}, nil)
	state, err := readDatabaseState(ctx, l.Config)
	b.addJSON("database.json", state, err)
	for _, part := range []struct {
		name  string
		fetch func(ctx context.Context, data string) ([]byte, error)
	}{{"metrics.txt", app.FetchMetrics}, {"goroutines.txt", app.FetchGoroutines}, {"memory.json", app.FetchMemory}} {
		text, err := part.fetch(ctx, l.Data)
		b.add(part.name, text, err)
	}
	if logFile != "" {
		text, err := readTail(logFile, logTail)
		b.add("server.log", text, err)
	}
	if b.missing.Len() > 0 {
		b.add("missing.txt", b.missing.Bytes(), nil)
	}
	return b
}

// databaseState is what the bundle has about the database.
type databaseState struct {
	Engine        string              `json:"engine"`
	SchemaVersion int                 `json:"schema_version"`
	Nodes         []nodes.Description `json:"nodes"`
}

func readDatabaseState(ctx context.Context, c config.Config) (s databaseState, err error) {
	if err := requireDatabase(c); err != nil {
		return s, err
	}
	d, err := app.OpenDatabase(ctx, c)
	if err != nil {
		return s, err
	}
	defer d.Close()
	s.Engine = d.Engine()
	if s.SchemaVersion, _, err = d.SchemaVersion(ctx); err != nil || s.SchemaVersion == 0 {
		return s, err
	}
	s.Nodes, err = nodes.List(ctx, d)
	return s, err
}

// readTail returns the whole lines in the last bytes of a file.
func readTail(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	skip := max(0, info.Size()-limit)
	if _, err := f.Seek(skip, io.SeekStart); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, limit))
	if skip > 0 {
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	return text, err
}

// write creates the file, which must not exist. A failed write leaves nothing behind.
func (b *bundle) write(path string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists; choose another file", path)
	}
	if err != nil {
		return fmt.Errorf("create the bundle: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = fmt.Errorf("write the bundle: %w", errors.Join(err, os.Remove(path)))
		}
	}()
	zip := gzip.NewWriter(f)
	archive := tar.NewWriter(zip)
	for _, name := range b.names {
		text := b.files[name]
		header := &tar.Header{Name: "turnpike-support/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: time.Now(), Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(text); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zip.Close())
}
