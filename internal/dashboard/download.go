package dashboard

import (
	"cmp"
	"errors"
	"net/http"
	"time"
)

// errDisconnected means that the browser disconnected before the end of a file.
var errDisconnected = errors.New("the browser disconnected")

// sendCSV sends a part of a file, after the headers if it is the first.
func (req *request) sendCSV(name string, part []byte) error {
	if !req.Started {
		h := req.W.Header()
		h.Set("Content-Type", "text/csv; charset=utf-8")
		h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
		req.WriteHeader(http.StatusOK)
	}
	if req.stream(part) != nil {
		return errDisconnected
	}
	return nil
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

// endDownload ends a file. An incomplete file must not look complete.
func (req *request) endDownload(err error) error {
	switch {
	case err == nil || errors.Is(err, errDisconnected):
		return nil
	case !req.Started:
		return err
	}
	req.Fault(err)
	panic(http.ErrAbortHandler)
}
