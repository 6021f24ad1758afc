package dashboard

import (
	"archive/zip"
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"

	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/media"
)

const (
	// archiveParts is how many requests of a batch are read at a time.
	archiveParts = 100
	// archiveBuffer is how much of an archive is sent at a time.
	archiveBuffer = 64 << 10
)

// downloadImages sends all images of a batch as a ZIP archive. It reads one image at a
// time, so that memory doesn't grow with the batch.
func (tab jobTab) downloadImages(req *request) (*view, error) {
	j, err := req.s.Media.Get(req.Context(), req.s.DB, req.principal, tab.Kind, req.id())
	if err != nil {
		return nil, err
	}
	a := &imageArchive{req: req, job: j}
	page := media.PartsPage{After: -1, Limit: archiveParts}
	for more := true; more; {
		var parts []*media.Part
		if parts, more, err = req.s.Media.Parts(req.Context(), req.s.DB, j, page); err != nil {
			return nil, req.failDownload(err)
		}
		for _, p := range parts {
			page.After = p.Position
			for _, f := range p.Files {
				if err := a.add(f); err != nil {
					return nil, req.failDownload(err)
				}
			}
		}
	}
	if a.zip == nil {
		return nil, fault.New(fault.NotFound, "The batch has no images. They are not generated yet, failed, or have expired.")
	}
	if err := a.finish(); err != nil {
		return nil, req.failDownload(err)
	}
	return nil, nil
}

// imageArchive is an archive that is sent while it is written.
type imageArchive struct {
	req     *request
	job     *media.Job
	out     *bufio.Writer
	zip     *zip.Writer // nil before the first image
	missing []string    // names of images that have expired
}

// Write sends a part of the archive.
func (a *imageArchive) Write(part []byte) (int, error) {
	if a.req.stream(part) != nil {
		panic(http.ErrAbortHandler) // the browser disconnected
	}
	return len(part), nil
}

// add sends an image, and notes one that has expired.
func (a *imageArchive) add(f media.NamedFile) error {
	content, err := a.req.s.Files.Read(a.req.Context(), a.job.Tenant, f.SHA256)
	if errors.Is(err, files.ErrGone) {
		a.missing = append(a.missing, f.Name)
		return nil
	}
	if err != nil {
		return fault.New(fault.StorageUnavailable, "The images cannot be read at the moment. Retry shortly.").Because(err)
	}
	defer content.Close()
	if a.zip == nil {
		a.start()
	}
	w, err := a.create(f.Name)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, content)
	return err
}

func (a *imageArchive) start() {
	h := a.req.W.Header()
	h.Set("Content-Type", "application/zip")
	h.Set("Content-Disposition", `attachment; filename="`+a.job.ID+`.zip"`)
	a.req.WriteHeader(http.StatusOK)
	a.out = bufio.NewWriterSize(a, archiveBuffer)
	a.zip = zip.NewWriter(a.out)
}

// create begins a file, which isn't compressed: images are already.
func (a *imageArchive) create(name string) (io.Writer, error) {
	return a.zip.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store, Modified: a.job.CreatedAt.UTC()})
}

// finish adds a list of the missing images, if any, and ends the archive.
func (a *imageArchive) finish() error {
	if len(a.missing) > 0 {
		w, err := a.create("missing.txt")
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, "These images were deleted or have expired:\n"+strings.Join(a.missing, "\n")+"\n"); err != nil {
			return err
		}
	}
	if err := a.zip.Close(); err != nil {
		return err
	}
	return a.out.Flush()
}
