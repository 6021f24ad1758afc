package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path"
)

// file is an entry of an archive or of the image.
type file struct {
	name    string
	mode    int64
	owner   int // user and group
	content []byte
	dir     bool
}

func readFile(from, name string, mode int64) (file, error) {
	content, err := os.ReadFile(from)
	return file{name: name, mode: mode, content: content}, err
}

func (r release) archive(t target, binary string) error {
	name := "turnpike_" + r.version + "_" + t.os + "_" + t.arch
	program := "turnpike"
	if t.os == "windows" {
		program += ".exe"
	}
	var files []file
	for _, f := range []struct {
		from, name string
		mode       int64
	}{{binary, program, 0o755}, {"LICENSE", "LICENSE", 0o644}, {"README.md", "README.md", 0o644}, {"CHANGELOG.md", "CHANGELOG.md", 0o644}} {
		got, err := readFile(f.from, path.Join(name, f.name), f.mode)
		if err != nil {
			return err
		}
		files = append(files, got)
	}
	if t.os == "windows" {
		return r.writeZip(r.path(name+".zip"), files)
	}
	var plain bytes.Buffer
	if err := r.writeTar(&plain, files); err != nil {
		return err
	}
	compressed, err := compress(plain.Bytes())
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(name+".tar.gz"), compressed, 0o644)
}

func compress(content []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

func (r release) writeTar(to io.Writer, files []file) error {
	w := tar.NewWriter(to)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Uid: f.owner, Gid: f.owner, Size: int64(len(f.content)), ModTime: r.time, Format: tar.FormatPAX}
		if f.dir {
			h.Typeflag, h.Name = tar.TypeDir, f.name+"/"
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	return w.Close()
}

func (r release) writeZip(to string, files []file) error {
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	w := zip.NewWriter(out)
	for _, f := range files {
		entry, err := w.CreateHeader(&zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: r.time})
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return out.Close()
}
