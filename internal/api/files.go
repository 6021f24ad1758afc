package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"turnpike/internal/apifiles"
	"turnpike/internal/budget"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/ids"
	"turnpike/internal/leaks"
	"turnpike/internal/media"
	"turnpike/internal/web"
)

// fileObject has OpenAI's format.
type fileObject struct {
	ID        string           `json:"id"`
	Object    string           `json:"object"`
	Bytes     int64            `json:"bytes"`
	CreatedAt int64            `json:"created_at"`
	ExpiresAt int64            `json:"expires_at"`
	Filename  string           `json:"filename"`
	Purpose   apifiles.Purpose `json:"purpose"`
	Status    string           `json:"status"`
}

func renderFile(f *apifiles.File) fileObject {
	return fileObject{f.ID, "file", f.Bytes, f.CreatedAt.Unix(), f.ExpiresAt.Unix(), f.Filename, f.Purpose, "processed"}
}

// upload is a file that was received and isn't stored yet.
type upload struct {
	id       string
	content  *apifiles.Content // nil if the form has no file
	filename string
	values   map[string]string
}

func (u *upload) discard() {
	if u.content != nil {
		u.content.Discard()
	}
}

// createFile stores the file of a form. Nothing of an upload that stops halfway is kept.
func createFile(c *Call) error {
	u, err := c.receiveFile()
	if err != nil {
		return err
	}
	defer u.discard()
	f, err := c.newFile(u)
	if err != nil {
		return err
	}
	identity, err := json.Marshal([]any{u.values, u.filename, u.content.Sum}, json.Deterministic(true))
	if err != nil {
		return err
	}
	return c.perform(identity, action{
		before: func() error {
			if err := c.s.APIFiles.CheckRoom(c.Context(), f); err != nil {
				return err
			}
			var err error
			if f.SHA256, err = c.s.APIFiles.Keep(c.Context(), f.Tenant, u.content); err != nil {
				return media.StorageError(err)
			}
			return nil
		},
		do: func(ctx context.Context, tx *db.Tx) (any, error) {
			if err := c.createProjectIn(ctx, tx); err != nil {
				return nil, err
			}
			return renderFile(f), c.s.APIFiles.InsertUpload(ctx, tx, f)
		},
		after: func(err error) {
			if err != nil && !errors.Is(err, db.ErrInDoubt) {
				c.dropContent(f)
			}
		},
	})
}

// dropContent deletes the content of a file whose row could not be stored.
func (c *Call) dropContent(f *apifiles.File) {
	ctx, cancel := web.WithStorageTimeout(context.WithoutCancel(c.Context()))
	defer cancel()
	if err := c.s.APIFiles.DropContent(ctx, f.Tenant, f.ID); err != nil {
		slog.Warn("failed to delete a file that was not uploaded; it is deleted when it expires", "file", f.ID, "error", err)
	}
}

const (
	// maxFormOverhead is how much of a form may be something else than the file.
	maxFormOverhead = 64 << 10
	maxFormField    = 4 << 10
	maxFilename     = 255
)

// receiveFile reads a form with one file, which goes to the disk as it arrives.
func (c *Call) receiveFile() (_ *upload, err error) {
	_, params, parseErr := mime.ParseMediaType(c.R.Header.Get("Content-Type"))
	if parseErr != nil || !c.isForm() || params["boundary"] == "" {
		return nil, fault.Param(fault.UnsupportedMediaType, "Content-Type", "Send the file in a form with the fields file and purpose: Content-Type: multipart/form-data; boundary=…")
	}
	limit := c.s.APIFiles.MaxFile.Load()
	if c.R.ContentLength > limit+maxFormOverhead {
		return nil, fileTooLarge(limit)
	}
	start := time.Now()
	body := &failingReader{from: budget.Stream(c.source(limit + maxFormOverhead))}
	scan := &keyScanner{from: body}
	parts := multipart.NewReader(bufio.NewReaderSize(scan, chunkSize), params["boundary"])
	u := &upload{id: apifiles.NewID(), values: map[string]string{}}
	defer func() {
		if err != nil {
			u.discard()
		}
	}()
	for n := 0; ; n++ {
		part, err := parts.NextRawPart()
		if err == nil && n == maxParts {
			return nil, fault.New(fault.InvalidParameter, "The form has more than %d parts.", maxParts)
		}
		if err == io.EOF {
			break
		}
		if err == nil {
			err = c.addPart(u, part, limit)
		}
		if err != nil {
			return nil, c.formFault(err, body.err, limit)
		}
	}
	if _, err := io.Copy(io.Discard, body); err != nil { // what follows the form
		return nil, c.formFault(err, body.err, limit)
	}
	c.body = scan.found
	return u, c.bodyArrived(start)
}

func fileTooLarge(limit int64) error {
	return fault.Param(fault.RequestTooLarge, "file", "The file is larger than the limit of %d bytes.", limit)
}

// formFault returns the error for a form that can't be read. broken is the error of its body.
func (c *Call) formFault(err, broken error, limit int64) error {
	var big *budget.TooLargeError
	switch _, known := fault.As(err); {
	case errors.As(broken, &big):
		c.W.Header().Set("Connection", "close")
		return fileTooLarge(limit)
	case broken != nil && broken != io.EOF:
		return c.bodyFault(broken, limit)
	case known:
		c.W.Header().Set("Connection", "close")
		return err
	case errors.Is(err, files.ErrFull):
		return media.StorageError(err)
	}
	return fault.New(fault.InvalidJSON, "The form is incomplete.").Because(err)
}

// addPart reads a part of the form.
func (c *Call) addPart(u *upload, part *multipart.Part, limit int64) error {
	name := part.FormName()
	if name == "file" {
		if u.content != nil {
			return fault.Invalid("file", "file can be given only once.")
		}
		filename := part.FileName()
		if filename == "" || len(filename) > maxFilename || !web.ValidText(filename) {
			return fault.Invalid("file", "file must have a filename of at most %d bytes.", maxFilename)
		}
		content, err := c.s.APIFiles.Spool(u.id, io.LimitReader(part, limit+1))
		if err != nil {
			return err
		}
		u.content, u.filename = content, filename
		if content.Bytes > limit {
			return fileTooLarge(limit)
		}
		return nil
	}
	value, err := io.ReadAll(io.LimitReader(part, maxFormField+1))
	if err != nil {
		return err
	}
	shown := web.Sanitize(name, 64)
	if !slices.Contains(fileFields, name) {
		return fault.Param(fault.UnknownParameter, shown, "Unknown field %q. Allowed fields: file, %s.", shown, strings.Join(fileFields, ", "))
	}
	if _, twice := u.values[name]; twice || len(value) > maxFormField || !web.ValidText(string(value)) {
		return fault.Invalid(shown, "%s must be a short string, and can be given only once.", shown)
	}
	u.values[name] = string(value)
	return nil
}

const (
	anchorField  = "expires_after[anchor]"
	secondsField = "expires_after[seconds]"
	// minFileLife and maxFileLife are OpenAI's range of expires_after.
	minFileLife = time.Hour
	maxFileLife = 30 * 24 * time.Hour
)

var fileFields = []string{"purpose", anchorField, secondsField}

// newFile checks the fields of an upload.
func (c *Call) newFile(u *upload) (*apifiles.File, error) {
	if u.content == nil {
		return nil, fault.Missing("file", "file is required: a file with a filename.")
	}
	purpose := apifiles.Purpose(u.values["purpose"])
	switch {
	case purpose == "":
		return nil, fault.Missing("purpose", "purpose is required: %q for the input of a batch, or %q.", apifiles.Batch, apifiles.UserData)
	case purpose != apifiles.Batch && purpose != apifiles.UserData:
		return nil, fault.Invalid("purpose", "purpose must be %q or %q.", apifiles.Batch, apifiles.UserData)
	}
	life := c.s.APIFiles.Retention()
	anchor, seconds := u.values[anchorField], u.values[secondsField]
	if anchor != "" || seconds != "" {
		n, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil {
			return nil, fault.Invalid(secondsField, "expires_after[seconds] must be an integer.")
		}
		wanted, err := expiresAfter(&fileExpiry{anchor, n}, "expires_after")
		if err != nil {
			return nil, err
		}
		life = min(life, wanted)
	}
	now := c.s.Now()
	return &apifiles.File{ID: u.id, Tenant: c.Principal.Tenant, Project: c.Project, Purpose: purpose, Filename: u.filename, Bytes: u.content.Bytes, CreatedAt: now, ExpiresAt: now.Add(life)}, nil
}

// fileExpiry is when a file expires.
type fileExpiry struct {
	Anchor  string `json:"anchor"`
	Seconds int64  `json:"seconds"`
}

func expiresAfter(e *fileExpiry, param string) (time.Duration, error) {
	if e.Anchor != "created_at" {
		return 0, fault.Invalid(param+".anchor", "%s.anchor must be \"created_at\".", param)
	}
	life := fromSeconds(e.Seconds, maxFileLife)
	if life < minFileLife || life > maxFileLife {
		return 0, fault.Invalid(param+".seconds", "%s.seconds must be from %d to %d.", param, minFileLife/time.Second, maxFileLife/time.Second)
	}
	return life, nil
}

// failingReader remembers the error of a body, which the reader of a form hides.
type failingReader struct {
	from io.Reader
	err  error
}

func (r *failingReader) Read(p []byte) (n int, err error) {
	n, r.err = r.from.Read(p)
	return n, r.err
}

// keyScanner looks for leaked keys in what it reads.
type keyScanner struct {
	from  io.Reader
	tail  []byte // the end of the text so far, where a key may begin
	found []byte // the keys, separated by newlines
}

// maxKeyLength is more than any key has.
const maxKeyLength = 128

func (s *keyScanner) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	text := append(s.tail, p[:n]...)
	for _, secret := range leaks.Find(text) {
		if !bytes.Contains(s.found, []byte(secret)) {
			s.found = append(append(s.found, secret...), '\n')
		}
	}
	s.tail = slices.Clone(text[max(0, len(text)-maxKeyLength):])
	return n, err
}

func listFiles(ctx context.Context, c *Call) (any, error) {
	q := c.query(append(pageParams, "purpose")...)
	page := q.page(ids.File)
	purpose := choice(q, "purpose", apifiles.Purposes)
	if q.err != nil {
		return nil, q.err
	}
	found, err := c.s.APIFiles.List(ctx, c.s.DB, c.Principal.Visibility(), purpose, page)
	if err != nil {
		return nil, err
	}
	return foundList(found, web.Map(found.Rows, renderFile), func(f *apifiles.File) string { return f.ID }), nil
}

func (c *Call) file(ctx context.Context) (*apifiles.File, error) {
	return c.s.APIFiles.Get(ctx, c.s.DB, c.Principal.Visibility(), c.id())
}

func getFile(ctx context.Context, c *Call) (any, error) {
	f, err := c.file(ctx)
	return show(f, err, renderFile)
}

func deleteFile(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	if err := c.s.APIFiles.Delete(ctx, tx, c.Principal.Visibility(), c.id()); err != nil {
		return nil, err
	}
	return deletedObject{c.id(), "file", true}, nil
}

// getFileContent sends the file itself.
func getFileContent(c *Call) error {
	f, err := c.file(c.Context())
	if err != nil {
		return err
	}
	return c.sendFile(f, contentTypeOf(f), f.Filename)
}

func contentTypeOf(f *apifiles.File) string {
	if f.Purpose == apifiles.UserData {
		return "application/octet-stream"
	}
	return "application/jsonl"
}

// sendFile sends the content of a file.
func (c *Call) sendFile(f *apifiles.File, contentType, name string) error {
	content, err := c.s.APIFiles.Open(c.Context(), f, 0)
	if errors.Is(err, files.ErrGone) {
		return fault.New(fault.NotFound, "The file was deleted or has expired.").Because(err)
	}
	if err != nil {
		return fault.New(fault.StorageUnavailable, "The file cannot be read at the moment. Retry shortly.").Because(err)
	}
	defer content.Close()
	if err := c.waitUntilLogged(); err != nil {
		c.failUnlogged(err)
		return nil
	}
	h := c.W.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.FormatInt(f.Bytes, 10))
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	h.Set("X-Content-Type-Options", "nosniff")
	defer c.setWriteDeadline()
	out := download{c}
	out.WriteHeader(http.StatusOK)
	if _, err := io.CopyBuffer(struct{ io.Writer }{out}, content, make([]byte, chunkSize)); err != nil && c.Context().Err() == nil {
		slog.Warn("failed to send a file; the client got a part of it", "file", f.ID, "error", err)
	}
	return nil
}
