package scan

import (
	"archive/zip"
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"turnpike/internal/budget"
	"turnpike/internal/safehttp"
)

const (
	// maxLog is the size of the response with a log. An archive expands to at most maxUnzipped.
	maxLog      = 16 << 20
	maxUnzipped = 256 << 20
	// unsettled is how old a change of a file may be that the last scan missed.
	unsettled = time.Minute
)

// logClient returns a client that may reach any address, because the operator chose the URL. It follows no redirect.
func logClient(roots *x509.CertPool) *http.Client {
	guard := safehttp.New(safehttp.Policy{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}})
	return guard.Client(safehttp.ClientOptions{MaxResponseBytes: maxLog, RootCAs: roots})
}

// log scans a log: the response of a URL, or the files of a directory that have changed.
func (r *targetScan) log(ctx context.Context) error {
	if r.target.isURL() {
		return r.download(ctx)
	}
	return filepath.WalkDir(r.target.Log, func(path string, d fs.DirEntry, err error) error {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil || !d.Type().IsRegular() || info.ModTime().Before(r.state.ScannedAt.Add(-unsettled)) {
			return err
		}
		if err := r.file(path, info.Size()); err != nil {
			return err
		}
		return r.report(ctx)
	})
}

func (r *targetScan) file(path string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	name, err := filepath.Rel(r.target.Log, path)
	if err != nil || name == "." {
		name = filepath.Base(path)
	}
	return r.reader.Content(f, size, Finding{Path: name})
}

// download scans a response: text, or a ZIP archive of texts.
func (r *targetScan) download(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.target.Log, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "turnpike")
	token, err := r.target.Token()
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := logClient(r.RootCAs)
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the response of %s was %s", r.target.Name(), res.Status)
	}
	body := bufio.NewReader(res.Body)
	if magic, _ := body.Peek(4); string(magic) != "PK\x03\x04" {
		return r.reader.Content(body, 0, Finding{Path: "response"})
	}
	archive, err := budget.Of(ctx).ReadAll(budget.Source{From: body, Limit: maxLog})
	if err != nil {
		return err
	}
	return r.unzip(ctx, archive)
}

func (r *targetScan) unzip(ctx context.Context, archive []byte) error {
	files, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return err
	}
	left := int64(maxUnzipped)
	for _, f := range files.File {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		content, err := f.Open()
		if err != nil {
			return err
		}
		counted := &io.LimitedReader{R: content, N: left}
		err = r.reader.Content(counted, 0, Finding{Path: f.Name})
		content.Close()
		if left = counted.N; err == nil && left == 0 {
			err = fmt.Errorf("the archive expands to more than %d bytes", int64(maxUnzipped))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
