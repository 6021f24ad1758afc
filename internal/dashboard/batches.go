package dashboard

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/apifiles"
	"turnpike/internal/audit"
	"turnpike/internal/batches"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/ids"
	"turnpike/internal/logsearch"
	"turnpike/internal/web"
)

// batchTab is the batches of one API.
type batchTab struct {
	Path   string // after jobs/
	Name   string
	Title  string // of a page
	None   string // the endpoint that creates one, for an empty list
	prefix string // of IDs
	files  []batchFile
}

// batchFile is a file of a batch.
type batchFile struct {
	Name  string // in the path
	Label string
	id    func(b *batches.Batch) string
}

func inputFile(b *batches.Batch) string  { return b.InputFileID }
func outputFile(b *batches.Batch) string { return b.OutputFileID }
func errorFile(b *batches.Batch) string  { return b.ErrorFileID }

var batchTabs = []batchTab{
	{"batches", "Batches", "Batch", "POST /v1/batches", ids.Batch,
		[]batchFile{{"input", "Input", inputFile}, {"output", "Output", outputFile}, {"errors", "Errors", errorFile}}},
	{"message-batches", "Message batches", "Message batch", "POST /v1/messages/batches", ids.MessageBatch, []batchFile{{"results", "Results", outputFile}}},
}

func (tab batchTab) routes() []Route {
	path, id := "jobs/"+tab.Path, web.PathID{Prefix: tab.prefix, Kind: "batch"}
	list := []Route{
		{Path: path, Scope: access.BatchesRead, page: tab.listPage},
		{Path: path + "/{id}", id: id, Scope: access.BatchesRead, page: tab.batchPage},
		{Path: path + "/{id}/cancel", id: id, Scope: access.BatchesCreate, action: tab.cancel, formPage: tab.batchPage},
		{Path: path + "/{id}/delete", id: id, Scope: access.BatchesCreate, action: tab.remove, formPage: tab.batchPage},
	}
	for _, f := range tab.files {
		list = append(list, Route{Path: path + "/{id}/" + f.Name, id: id, Scope: access.FilesRead, Download: true, page: f.download})
	}
	return list
}

type batchRow struct {
	*batches.Batch
	KeyName string
}

func (req *request) batchRows(list ...*batches.Batch) ([]batchRow, error) {
	names, err := req.keyNames(web.Map(list, func(b *batches.Batch) string { return b.KeyID }))
	return web.Map(list, func(b *batches.Batch) batchRow { return batchRow{b, cmp.Or(names[b.KeyID], b.KeyID)} }), err
}

// Progress returns how many percent of the requests have ended.
func (r batchRow) Progress() int64 {
	if r.Total == 0 {
		return 0
	}
	return 100 * (r.Total - r.Pending()) / r.Total
}

// DidNotRun returns how many requests ended without a call.
func (r batchRow) DidNotRun() int64 { return r.Cancelled + r.Expired }

// Took returns how long the batch took, or 0 until it ends.
func (r batchRow) Took() time.Duration {
	return between(&r.CreatedAt, r.EndedAt)
}

// Cancels reports whether the batch can be canceled.
func (r batchRow) Cancels() bool {
	return r.Status == batches.Validating || r.Status == batches.InProgress
}

type batchesData struct {
	Search  *searchBox
	Tab     batchTab
	Tabs    []tabLink
	Batches []batchRow
	Looked  *scanned // nil if the search is complete
	Next    pager
}

func (tab batchTab) listPage(req *request) (*view, error) {
	f := batches.Filter{Prefix: tab.prefix}
	box, err := req.searchWork(workFields{example: "status:failed project:shop last:7d", search: &f.WorkSearch}, logsearch.Field{Name: "status", Label: "Status",
		Help: string(batches.Failed), Values: logsearch.Strings(batches.Statuses), Only: true, Set: logsearch.OneOf(&f.Status, batches.Statuses)})
	if err != nil || box == nil {
		return nil, err
	}
	page, found := req.page(tab.prefix), &db.Found[*batches.Batch]{}
	if !box.Unmatched() {
		if found, err = req.s.Batches.List(req.Context(), req.s.DB, req.principal, f, page); err != nil {
			return nil, err
		}
		t := box.span(req.now())
		f.Since, f.Until = within(t, f.Until)
		counts, err := req.s.Batches.Count(req.Context(), req.s.DB, req.principal, f, t)
		if err != nil {
			return nil, err
		}
		box.draw(t, counts, "batches")
	}
	d := batchesData{Search: box, Tab: tab, Tabs: tabLinks(), Next: req.pager(page, found.More, func() string { return found.Cursor })}
	d.Looked = scanLimit(found, d.Next)
	if d.Batches, err = req.batchRows(found.Rows...); err != nil {
		return nil, err
	}
	return &view{template: "batches", title: tab.Name, data: d, live: found.Looked == 0}, nil
}

// storedFile is a file of a batch that still exists.
type storedFile struct {
	batchFile
	*apifiles.File
}

type batchData struct {
	Tab   batchTab
	Batch batchRow
	Files []storedFile
}

func (tab batchTab) batchPage(req *request) (*view, error) {
	b, err := req.s.Batches.Get(req.Context(), req.s.DB, req.principal, req.id())
	if err != nil {
		return nil, err
	}
	rows, err := req.batchRows(b)
	if err != nil {
		return nil, err
	}
	d := batchData{Tab: tab, Batch: rows[0]}
	for _, f := range tab.files {
		found, err := f.find(req, b)
		switch {
		case fault.Is(err, fault.NotFound): // not created yet, deleted, or expired
		case err != nil:
			return nil, err
		default:
			d.Files = append(d.Files, storedFile{f, found})
		}
	}
	return &view{template: "batch", title: tab.Title, data: d, live: !b.Status.Ended()}, nil
}

func (f batchFile) find(req *request, b *batches.Batch) (*apifiles.File, error) {
	return req.s.APIFiles.Get(req.Context(), req.s.DB, req.principal.Visibility(), f.id(b))
}

// download sends a file of a batch.
func (f batchFile) download(req *request) (*view, error) {
	b, err := req.s.Batches.Get(req.Context(), req.s.DB, req.principal, req.id())
	if err != nil {
		return nil, err
	}
	found, err := f.find(req, b)
	if err != nil {
		return nil, err
	}
	content, err := req.s.APIFiles.Open(req.Context(), found, 0)
	if errors.Is(err, files.ErrGone) {
		return nil, fault.New(fault.NotFound, "The file was deleted or has expired.").Because(err)
	}
	if err != nil {
		return nil, fault.New(fault.StorageUnavailable, "The file cannot be read at the moment. Retry shortly.").Because(err)
	}
	defer content.Close()
	h := req.W.Header()
	h.Set("Content-Type", "application/jsonl")
	h.Set("Content-Disposition", `attachment; filename="`+b.ID+"_"+f.Name+`.jsonl"`)
	req.WriteHeader(http.StatusOK)
	for part := make([]byte, 64<<10); ; {
		n, err := content.Read(part)
		if n > 0 && req.stream(part[:n]) != nil {
			panic(http.ErrAbortHandler) // the browser disconnected
		}
		if err == io.EOF {
			return nil, nil
		}
		if err != nil {
			return nil, req.failDownload(err)
		}
	}
}

func (tab batchTab) cancel(req *request) (*view, error) {
	return req.save(req.to("jobs/"+tab.Path+"/"+req.id()), "Canceling the batch. Requests in progress still finish.", func(tx *db.Tx) error {
		b, err := req.s.Batches.Cancel(req.Context(), tx, req.principal, req.id())
		if err != nil {
			return err
		}
		return req.logBatch(tx, b, "batch.cancelled")
	})
}

// remove deletes a batch that has ended, and its results.
func (tab batchTab) remove(req *request) (*view, error) {
	return req.save(req.to("jobs/"+tab.Path), "Deleted the batch and its results.", func(tx *db.Tx) error {
		b, err := req.s.Batches.Get(req.Context(), tx, req.principal, req.id())
		if err != nil {
			return err
		}
		if err := req.s.Batches.Delete(req.Context(), tx, req.principal, req.id()); err != nil {
			return err
		}
		return req.logBatch(tx, b, "batch.deleted")
	})
}

// logBatch writes to the admin log, because people's actions aren't in the request log.
func (req *request) logBatch(tx *db.Tx, b *batches.Batch, action string) error {
	return req.actor().Log(req.Context(), tx, audit.Action{Tenant: b.Tenant, Project: b.Project, Action: action, Target: b.ID}, nil, req.now())
}
