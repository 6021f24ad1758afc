package dashboard

import (
	"errors"
	"net/http"
	"time"
)

// errLeft is a browser that has gone before the end of a file.
var errLeft = errors.New("the browser left")

// sendCSV sends a part of a file, and with the first one that it is a file.
func (v *visit) sendCSV(name string, part []byte) error {
	if !v.wrote {
		h := v.w.Header()
		h.Set("Content-Type", "text/csv; charset=utf-8")
		h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
		v.WriteHeader(http.StatusOK)
	}
	_ = http.NewResponseController(v.w).SetWriteDeadline(time.Now().Add(sendLimit))
	_, err := v.w.Write(part)
	_ = http.NewResponseController(v.w).SetWriteDeadline(time.Time{}) // HTTP/2 ends a quiet stream at its deadline
	if err != nil {
		return errLeft
	}
	return nil
}

// sent ends a file. One that could not be read to its end must not look whole.
func (v *visit) sent(err error) error {
	switch {
	case err == nil || errors.Is(err, errLeft):
		return nil
	case !v.wrote:
		return err
	}
	v.faultOf(err)
	panic(http.ErrAbortHandler)
}
