package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the format
)

const packaging = "deploy/package/"

// releaseVersion matches versions such as 0.1.0, and no commit hash that starts with a digit.
var releaseVersion = regexp.MustCompile(`^[0-9]+\.[0-9]`)

// packageVersion is a version that package managers can compare. A commit
// without a tag comes before every release.
func (r release) packageVersion() string {
	if releaseVersion.MatchString(r.version) {
		return r.version
	}
	return "0.0.0~git" + r.time.Format("20060102150405") + "." + strings.ReplaceAll(r.version, "-", ".")
}

// packages writes the Debian and the RPM package of an architecture.
func (r release) packages(arch, binary string) error {
	work, err := os.MkdirTemp("", "turnpike-package")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	changelog := filepath.Join(work, "changelog.gz")
	compressed, err := compress(fmt.Appendf(nil, "turnpike (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md in the source.\n\n -- %s  %s\n",
		r.packageVersion(), r.maintainer, r.time.Format(time.RFC1123Z)))
	if err != nil {
		return err
	}
	if err := os.WriteFile(changelog, compressed, 0o644); err != nil {
		return err
	}
	manual, err := os.ReadFile(packaging + "turnpike.1")
	if err != nil {
		return err
	}
	if compressed, err = compress(manual); err != nil {
		return err
	}
	manualPage := filepath.Join(work, "turnpike.1.gz")
	if err := os.WriteFile(manualPage, compressed, 0o644); err != nil {
		return err
	}
	for _, format := range []string{"deb", "rpm"} {
		contents := files.Contents{
			r.content(binary, "/usr/bin/turnpike", 0o755),
			r.content(packaging+"turnpike.service", "/usr/lib/systemd/system/turnpike.service", 0o644),
			r.content(packaging+"sysusers.conf", "/usr/lib/sysusers.d/turnpike.conf", 0o644),
			{Source: packaging + "env", Destination: "/etc/turnpike/env", Type: files.TypeConfigNoReplace, FileInfo: &files.ContentFileInfo{Mode: 0o600, MTime: r.time}},
			r.content(manualPage, "/usr/share/man/man1/turnpike.1.gz", 0o644),
		}
		if format == "deb" {
			contents = append(contents,
				r.content(changelog, "/usr/share/doc/turnpike/changelog.gz", 0o644),
				r.content(packaging+"copyright", "/usr/share/doc/turnpike/copyright", 0o644),
				r.content(packaging+"lintian-overrides", "/usr/share/lintian/overrides/turnpike", 0o644))
		} else {
			contents = append(contents, r.content("LICENSE", "/usr/share/licenses/turnpike/LICENSE", 0o644))
		}
		if err := r.packageFile(format, arch, contents); err != nil {
			return err
		}
	}
	return nil
}

func (r release) content(from, to string, mode os.FileMode) *files.Content {
	return &files.Content{Source: from, Destination: to, FileInfo: &files.ContentFileInfo{Mode: mode, MTime: r.time}}
}

func (r release) packageFile(format, arch string, contents files.Contents) error {
	info := &nfpm.Info{
		Name: "turnpike", Arch: arch, Platform: "linux", Version: r.packageVersion(), VersionSchema: "none",
		Section: "net", Priority: "optional", Maintainer: r.maintainer, License: "Apache-2.0", MTime: r.time,
		Description: "self-hosted AI API platform\nTurnpike runs in front of model providers and adds keys with scopes and\nbudgets, an OpenAI-compatible gateway, webhooks, agent runs and a log of\nevery request. It stores everything in SQLite or PostgreSQL.",
		Overridables: nfpm.Overridables{
			Contents: contents,
			Scripts: nfpm.Scripts{PostInstall: packaging + format + "/postinst", PreRemove: packaging + format + "/prerm",
				PostRemove: packaging + format + "/postrm"},
			RPM: nfpm.RPM{BuildHost: "localhost", Summary: "Self-hosted AI API platform", Compression: "gzip:9"},
			Deb: nfpm.Deb{Compression: "xz"},
		},
	}
	if format == "deb" {
		info.License = "" // in Debian, it is in the copyright file
		info.Depends = []string{"systemd | systemd-sysusers"}
		info.Recommends = []string{"ca-certificates", "tzdata"}
		info.Suggests = []string{"espeak-ng", "ffmpeg"}
	} else {
		info.Depends = []string{"systemd"}
		info.Recommends = []string{"ca-certificates", "tzdata"}
	}
	info = nfpm.WithDefaults(info)
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	out, err := os.Create(r.path(packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	defer out.Close()
	if err := packager.Package(info, out); err != nil {
		return fmt.Errorf("%s: %w", format, err)
	}
	return out.Close()
}
