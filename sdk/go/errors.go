package turnpike

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"turnpike/sdk/go/api"
)

// Error is an error response of the server.
type Error struct {
	Status    int    // the HTTP status
	Code      string // for programs, such as budget_exceeded; empty if the response isn't Turnpike's
	Type      string // the category of the code
	Message   string // for people
	Param     string // the field, header or query parameter that the error is about, or empty
	RequestID string // quote it when you ask for help
	DocURL    string // where the code is explained
}

func (e *Error) Error() string {
	if e.RequestID == "" {
		return "turnpike: " + e.Message
	}
	return fmt.Sprintf("turnpike: %s (%s)", e.Message, e.RequestID)
}

// maxErrorBody limits what readError reads of a response that may not be Turnpike's.
const maxErrorBody = 1 << 20

// readError reads and closes the body of an error response.
func readError(res *http.Response) *Error {
	defer res.Body.Close()
	e := &Error{Status: res.StatusCode, RequestID: res.Header.Get("X-Request-Id")}
	var body api.Error
	text, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	if err != nil || json.Unmarshal(text, &body) != nil || body.Error.Message == "" {
		e.Message = fmt.Sprintf("the server responded with status %d, which isn't an error of Turnpike; check the base URL", res.StatusCode)
		return e
	}
	return e.fill(body)
}

func (e *Error) fill(body api.Error) *Error {
	e.Code, e.Type, e.Message, e.DocURL = body.Error.Code, body.Error.Type, body.Error.Message, body.Error.DocURL
	if body.Error.Param != nil {
		e.Param = *body.Error.Param
	}
	if body.Error.RequestID != "" {
		e.RequestID = body.Error.RequestID
	}
	return e
}
