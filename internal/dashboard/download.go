package dashboard

import (
	"cmp"
	"net/http"
	"time"
)

// sendCSV sends a part of a file, after the headers if it is the first.
func (req *request) sendCSV(name string, part []byte) {
	if !req.Started {
		h := req.W.Header()
		h.Set("Content-Type", "text/csv; charset=utf-8")
		h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
		req.WriteHeader(http.StatusOK)
	}
	if req.stream(part) != nil {
		panic(http.ErrAbortHandler) // the browser disconnected
	}
}

// stream sends a part of a long response.
func (req *request) stream(part []byte) error {
	control := http.NewResponseController(req.W)
	_ = control.SetWriteDeadline(time.Now().Add(sendTimeout))
	_, err := req.W.Write(part)
	err = cmp.Or(err, control.Flush())
	_ = control.SetWriteDeadline(time.Time{}) // HTTP/2 ends a silent stream at its deadline
	return err
}

// failDownload returns an error, or breaks the connection if the file has begun: an
// incomplete file must not look complete.
func (req *request) failDownload(err error) error {
	if req.Started {
		req.Fault(err)
		panic(http.ErrAbortHandler)
	}
	return err
}
