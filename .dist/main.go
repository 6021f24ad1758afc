// Command dist builds the release: archives, Debian and RPM packages, a
// container image, an SBOM and checksums. It needs neither a network nor Docker,
// and the same commit gives the same bytes.
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// release is what the artifacts have in common.
type release struct {
	version    string
	maintainer string
	time       time.Time // of the commit
	out        string
	targets    []target
}

// target is a platform that a binary is built for.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "/" + t.arch }

var allTargets = []target{
	{"linux", "amd64"}, {"linux", "arm64"},
	{"darwin", "amd64"}, {"darwin", "arm64"},
	{"windows", "amd64"}, {"windows", "arm64"},
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("dist: ")
	version := flag.String("version", "dev", "version of the artifacts")
	maintainer := flag.String("maintainer", "The Turnpike Authors <noreply@github.com>", "maintainer of the packages, as Name <address>")
	out := flag.String("out", "dist", "directory of the artifacts, which is replaced")
	platforms := flag.String("platforms", "", "build only for these platforms, such as linux/amd64,linux/arm64")
	root := flag.String("root", "", "only write the root file system of the image for this platform to a directory")
	flag.Parse()
	chosen, err := chooseTargets(*platforms)
	if err == nil {
		err = run(release{version: strings.TrimPrefix(*version, "v"), maintainer: *maintainer, out: *out, targets: chosen}, *root)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// chooseTargets returns the named platforms, or all of them without names.
func chooseTargets(platforms string) ([]target, error) {
	if platforms == "" {
		return allTargets, nil
	}
	var chosen []target
	for name := range strings.SplitSeq(platforms, ",") {
		i := slices.IndexFunc(allTargets, func(t target) bool { return t.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("-platforms: unknown platform %q; known platforms: %v", name, allTargets)
		}
		chosen = append(chosen, allTargets[i])
	}
	return chosen, nil
}

func run(r release, root string) (err error) {
	if r.time, err = commitTime(); err != nil {
		return err
	}
	if root != "" {
		return r.writeRoot(root)
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	binaries, err := os.MkdirTemp("", "turnpike-dist")
	if err != nil {
		return err
	}
	defer os.RemoveAll(binaries)
	built := map[target]string{}
	for _, t := range r.targets {
		log.Printf("building for %s", t)
		path := filepath.Join(binaries, t.os+"_"+t.arch)
		if err := r.build(t, path); err != nil {
			return err
		}
		built[t] = path
		if err := r.archive(t, path); err != nil {
			return err
		}
		if t.os == "linux" {
			if err := r.packages(t.arch, path); err != nil {
				return err
			}
		}
	}
	if err := r.image(built); err != nil {
		return err
	}
	if err := r.bom(built[r.targets[0]]); err != nil {
		return err
	}
	return r.checksums()
}

// commitTime is the time that every artifact carries, from SOURCE_DATE_EPOCH or
// the commit.
func commitTime() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		got, err := exec.Command("git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("read the time of the commit: %w; outside of a git repository, set SOURCE_DATE_EPOCH to seconds since 1970", err)
		}
		text = string(got)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

func (r release) build(t target, to string) error {
	to, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-pgo=auto", "-ldflags", "-s -w -buildid= -X turnpike/internal/cli.version="+r.version, "-o", to, ".")
	// Instruction sets that a developer has chosen must not end up in a release.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

func (r release) path(name string) string { return filepath.Join(r.out, name) }

// checksums lists the artifacts in the format of sha256sum.
func (r release) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, entry := range entries {
		f, err := os.Open(r.path(entry.Name()))
		if err != nil {
			return err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		f.Close()
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%x  %s\n", sum.Sum(nil), entry.Name())
	}
	return os.WriteFile(r.path("SHA256SUMS"), []byte(list.String()), 0o644)
}
