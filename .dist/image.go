package main

import (
	"archive/zip"
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageUser is the user and group that the container runs as, by number, so that
// Kubernetes can verify that it isn't root.
const imageUser = 65532

// rootFiles is the root file system of the image.
func rootFiles(binary string) ([]file, error) {
	program, err := readFile(binary, "usr/bin/turnpike", 0o755)
	if err != nil {
		return nil, err
	}
	zones, err := zoneFiles()
	if err != nil {
		return nil, err
	}
	files := []file{
		{name: "data", mode: 0o700, owner: imageUser, dir: true},
		{name: "etc", mode: 0o755, dir: true},
		{name: "etc/group", mode: 0o644, content: fmt.Appendf(nil, "root:x:0:\nturnpike:x:%d:\n", imageUser)},
		{name: "etc/passwd", mode: 0o644, content: fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nturnpike:x:%[1]d:%[1]d:Turnpike:/data:/sbin/nologin\n", imageUser)},
		{name: "etc/ssl", mode: 0o755, dir: true},
		{name: "etc/ssl/certs", mode: 0o755, dir: true},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: certificates()},
		{name: "tmp", mode: 0o1777, dir: true},
		{name: "usr", mode: 0o755, dir: true},
		{name: "usr/bin", mode: 0o755, dir: true},
		program,
		{name: "usr/share", mode: 0o755, dir: true},
	}
	return append(files, zones...), nil
}

// certificates are Mozilla's root certificates. Those that are only trusted
// under a condition are left out, since the file can't express it.
func certificates() []byte {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&all, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer cannot fail
		}
	}
	return all.Bytes()
}

// zoneFiles are the time zones of the Go distribution.
func zoneFiles() ([]file, error) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(goroot)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	const root = "usr/share/zoneinfo"
	files := []file{{name: root, mode: 0o755, dir: true}}
	seen := map[string]bool{".": true}
	for _, entry := range archive.File {
		if entry.FileInfo().IsDir() {
			continue
		}
		var parents []string
		for dir := path.Dir(entry.Name); !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			parents = append([]string{dir}, parents...)
		}
		for _, dir := range parents {
			files = append(files, file{name: path.Join(root, dir), mode: 0o755, dir: true})
		}
		r, err := entry.Open()
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: path.Join(root, entry.Name), mode: 0o644, content: content})
	}
	return files, nil
}

// writeRoot writes the root file system for the platform of this machine, for the
// Dockerfile.
func (r release) writeRoot(directory string) error {
	binary := filepath.Join(os.TempDir(), "turnpike-root")
	defer os.Remove(binary)
	if err := r.build(target{"linux", runtime.GOARCH}, binary); err != nil {
		return err
	}
	files, err := rootFiles(binary)
	if err != nil {
		return err
	}
	for _, f := range files {
		to := filepath.Join(directory, f.name)
		if f.dir {
			err = os.MkdirAll(to, 0o755)
		} else {
			err = os.WriteFile(to, f.content, os.FileMode(f.mode))
		}
		if err == nil {
			err = os.Chmod(to, os.FileMode(f.mode&0o777)|sticky(f.mode))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func sticky(mode int64) os.FileMode {
	if mode&0o1000 != 0 {
		return os.ModeSticky
	}
	return 0
}

// image writes an archive in the OCI image layout, with an image for each
// architecture of Linux.
func (r release) image(built map[target]string) error {
	if !slices.ContainsFunc(r.targets, func(t target) bool { return t.os == "linux" }) {
		return nil
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, t := range r.targets {
		if t.os != "linux" {
			continue
		}
		image, err := r.platformImage(t, built[t])
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: t.os, Architecture: t.arch}}})
	}
	directory, err := os.MkdirTemp("", "turnpike-image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	store, err := layout.Write(directory, empty.Index)
	if err != nil {
		return err
	}
	name := strings.ReplaceAll(r.version, "+", "-") // a tag has no plus sign
	err = store.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": "turnpike:" + name, "io.containerd.image.name": "docker.io/library/turnpike:" + name}))
	if err != nil {
		return err
	}
	return r.writeLayout(directory, r.path("turnpike_"+r.version+"_image.tar"))
}

func (r release) writeLayout(directory, to string) error {
	var files []file
	err := filepath.WalkDir(directory, func(name string, entry os.DirEntry, err error) error {
		if err != nil || name == directory {
			return err
		}
		relative, err := filepath.Rel(directory, name)
		if err != nil {
			return err
		}
		f := file{name: filepath.ToSlash(relative), mode: 0o755, dir: entry.IsDir()}
		if !f.dir {
			f.mode = 0o644
			f.content, err = os.ReadFile(name)
		}
		files = append(files, f)
		return err
	})
	if err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	return errors.Join(r.writeTar(out, files), out.Close())
}

func (r release) platformImage(t target, binary string) (v1.Image, error) {
	files, err := rootFiles(binary)
	if err != nil {
		return nil, err
	}
	var plain bytes.Buffer
	if err := r.writeTar(&plain, files); err != nil {
		return nil, err
	}
	compressed, err := compress(plain.Bytes())
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: static.NewLayer(compressed, types.OCILayer),
		History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "make dist"}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = t.os, t.arch, v1.Time{Time: r.time}
	diff, _, err := v1.SHA256(bytes.NewReader(plain.Bytes()))
	if err != nil {
		return nil, err
	}
	config.RootFS.DiffIDs = []v1.Hash{diff}
	config.Config = v1.Config{
		User:       fmt.Sprintf("%[1]d:%[1]d", imageUser),
		Entrypoint: []string{"/usr/bin/turnpike"},
		Cmd:        []string{"serve"},
		WorkingDir: "/data",
		Env: []string{"PATH=/usr/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt",
			"TURNPIKE_DATA=/data", "TURNPIKE_LISTEN=0.0.0.0:8080", "TURNPIKE_LOG_FORMAT=json"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}},
		Volumes:      map[string]struct{}{"/data": {}},
		StopSignal:   "SIGTERM",
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/usr/bin/turnpike", "healthcheck"},
			Interval: 10 * time.Second, Timeout: 11 * time.Second, StartPeriod: 30 * time.Second, Retries: 3},
		Labels: map[string]string{"org.opencontainers.image.title": "Turnpike", "org.opencontainers.image.version": r.version,
			"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.description": "The self-hosted AI API platform in one binary"},
	}
	return mutate.ConfigFile(image, config)
}
