package api

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"turnpike/internal/access"
	"turnpike/internal/audit"
	"turnpike/internal/budget"
	"turnpike/internal/contentlog"
	"turnpike/internal/db"
	"turnpike/internal/docsite"
	"turnpike/internal/fault"
	"turnpike/internal/keyring"
	"turnpike/internal/operators"
	"turnpike/internal/web"
)

// Call is one API request and its response.
type Call struct {
	web.Exchange
	*Settings
	s     *Server
	route Route
	kind  requestKind

	budget    *budget.Budget
	cancel    context.CancelCauseFunc
	Principal *access.Principal
	operator  *operators.Credential // of the admin API
	Project   string

	newProject     bool              // the project doesn't exist yet
	record         *audit.Record     // nil until the key is known to be valid
	successHeaders []header          // sent unless the response turns into an error
	body           []byte            // until it is scanned for keys
	stored         *db.Pending       // the response is sent when it is stored; nil if it isn't
	content        *contentlog.Draft // for the content log; nil if it isn't logged
	watched        bool              // it ends when its credential does
	deferred       []func()          // work to do after the response is sent

	declaredRoutes []DeclaredRoute // that lists of models can name before the transaction creates them
}

// Caller returns who manages keys, for the admin log and for their limits.
func (c *Call) Caller() access.Caller { return access.Caller{Principal: c.Principal, Actor: c.Actor()} }

// Actor returns who acts, for the admin log.
func (c *Call) Actor() audit.Actor {
	by := audit.Actor{Name: c.Principal.ID(), RequestID: c.ID}
	if c.IP.IsValid() { // commands on the server have none
		by.IP = c.IP.String()
	}
	return by
}

func (c *Call) entry() audit.Entry {
	p := c.Principal
	e := audit.Entry{RequestID: c.ID, Tenant: p.Tenant, Project: p.Project, KeyID: p.KeyID, KeyHint: p.KeyHint,
		IP: c.IP.String(), Method: web.Sanitize(c.R.Method, web.MaxLoggedText), Path: web.Sanitize(c.R.URL.Path, web.MaxLoggedText),
		UserAgent: web.Sanitize(c.R.UserAgent(), web.MaxLoggedText), CreatedAt: c.Start}
	if p.Token != nil {
		e.TokenID, e.TokenMetadata = p.Token.ID, p.Token.Metadata
	}
	return e
}

// settle completes the log entry. f is the error that the client gets, or nil.
func (c *Call) settle(status int, f *fault.Error) {
	c.Status, c.Code = status, ""
	if f != nil {
		c.Code = string(f.Code)
	}
	if c.record != nil {
		c.record.Settle(c.settlement(status, f))
	}
}

func (c *Call) settlement(status int, f *fault.Error) func(*audit.Entry) {
	return func(e *audit.Entry) {
		if e.Status = status; f != nil {
			e.Fail(f)
		}
		e.Latency = c.s.Now().Sub(c.Start)
	}
}

func (c *Call) send(status int, contentType string, body []byte) {
	c.content.SetResponse(contentType, body)
	c.logContent()
	c.settle(status, nil)
	c.sendLogged(status, contentType, body)
}

// sendLogged sends no byte before the request is in the log, and the response is stored if it is to be.
func (c *Call) sendLogged(status int, contentType string, body []byte) {
	if err := cmp.Or(waitUntilStored(c.stored), c.waitUntilLogged()); err != nil {
		c.failUnlogged(err)
		return
	}
	c.write(status, contentType, body)
}

func (c *Call) waitUntilLogged() error {
	if c.record == nil {
		return nil
	}
	timeout := web.StorageTimeout
	if c.Code == string(fault.StorageUnavailable) {
		timeout /= 10 // the request has already waited for the database
	}
	return c.record.Durable(timeout)
}

// failUnlogged responds when the log can't be written. If the entry is written
// after all, it has the status that was sent.
func (c *Call) failUnlogged(err error) {
	c.Cause = err
	f := web.StorageFault(err)
	c.Status, c.Code = fault.FamilyOf(f.Code).Status, string(f.Code)
	c.record.Refuse(c.settlement(c.Status, f))
	c.W.Header().Del("Idempotent-Replayed") // of a response that isn't sent
	c.W.Header().Del("X-Should-Retry")
	c.write(c.Status, jsonType, c.render(f))
}

const jsonType = "application/json"

func (c *Call) write(status int, contentType string, body []byte) {
	h := c.W.Header()
	if status < http.StatusBadRequest {
		c.setSuccessHeaders(h)
	}
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	c.setWriteDeadline()
	c.WriteHeader(status)
	_ = c.writeChunks(body) // the client may have disconnected
}

// runDeferred sends a response of known length and then does the work that the
// client need not wait for. Other responses and those of HTTP/2 end with the
// handler, so a flush would only split them.
func (c *Call) runDeferred() {
	if len(c.deferred) == 0 {
		return
	}
	defer func() {
		if v := recover(); v != nil { // the response is already complete
			c.LogPanic(v)
		}
	}()
	if c.R.ProtoMajor == 1 && c.W.Header().Get("Content-Length") != "" {
		_ = http.NewResponseController(c.W).Flush()
	}
	for _, do := range c.deferred {
		do()
	}
}

type header struct{ name, value string }

func (c *Call) setSuccessHeaders(h http.Header) {
	for _, s := range c.successHeaders {
		h.Set(s.name, s.value)
	}
}

func (c *Call) sendJSON(v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.send(http.StatusOK, jsonType, body)
	return nil
}

func (c *Call) fail(err error) {
	f := c.Fault(err)
	status := fault.FamilyOf(f.Code).Status
	c.dropThrottled(err)
	body := c.render(f)
	c.content.SetResponse(jsonType, body)
	c.logContent()
	c.settle(status, f)
	c.sendLogged(status, jsonType, body)
}

// failPanicked responds to a request whose handler panicked, unless the response
// has started.
func (c *Call) failPanicked(err error) {
	if c.Started {
		c.settle(http.StatusInternalServerError, c.Fault(err))
		return
	}
	c.fail(err)
}

type errorBody struct {
	Error errorObject `json:"error"`
}

type errorObject struct {
	Code      fault.Code `json:"code"`
	Type      string     `json:"type"`
	Message   string     `json:"message"`
	Param     *string    `json:"param"`
	RequestID string     `json:"request_id"`
	DocURL    string     `json:"doc_url"`
	Details   any        `json:"details,omitzero"`
}

// fault returns the error that a stored response has.
func (o errorObject) fault() *fault.Error {
	f := &fault.Error{Code: o.Code, Message: o.Message}
	if o.Param != nil {
		f.Param = *o.Param
	}
	return f
}

// render sets the error's headers and returns its body.
func (c *Call) render(f *fault.Error) []byte {
	h := c.W.Header()
	if f.Final() {
		h.Set("X-Should-Retry", "false")
	}
	if f.Code == fault.Authentication {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if f.RetryAfter > 0 {
		web.SetRetryAfter(h, f.RetryAfter)
		h.Set("Retry-After-Ms", strconv.FormatInt((f.RetryAfter+time.Millisecond-1).Milliseconds(), 10))
	}
	return c.errorJSON(f)
}

func (c *Call) errorJSON(f *fault.Error) []byte { return ErrorJSONFor(c.R, f, c.ID, c.s.PublicURL) }

// ErrorJSONFor returns the body of an error response in the format of the request's API.
func ErrorJSONFor(r *http.Request, f *fault.Error, requestID, publicURL string) []byte {
	return ErrorJSON(usesAnthropicFormat(r), f, requestID, publicURL)
}

// ErrorJSON returns the body of an error response in Anthropic's or OpenAI's format.
func ErrorJSON(anthropic bool, f *fault.Error, requestID, publicURL string) []byte {
	if anthropic {
		return anthropicErrorJSON(f, requestID, publicURL)
	}
	return openAIErrorJSON(f, requestID, publicURL)
}

// openAIErrorJSON returns the body of an error response in OpenAI's format.
func openAIErrorJSON(f *fault.Error, requestID, publicURL string) []byte {
	o := errorObject{Code: f.Code, Type: fault.FamilyOf(f.Code).Type, Message: keyring.Mask(f.Message), RequestID: requestID, Details: f.Details,
		DocURL: publicURL + docsite.ErrorsPage + "#" + string(f.Code)}
	if f.Param != "" {
		param := keyring.Mask(f.Param)
		o.Param = &param
	}
	body, err := json.Marshal(errorBody{o})
	if err != nil { // the details can't be encoded, or a text isn't UTF-8
		o.Details, o.Param, o.Message = nil, nil, "The request failed, and the reason cannot be shown."
		body, _ = json.Marshal(errorBody{o})
	}
	return body
}

// logAccess writes the request's line in the process log.
func (c *Call) logAccess() {
	if c.Principal == nil {
		c.Log("request", c.s.Now())
		return
	}
	c.Log("request", c.s.Now(), slog.String("key", c.Principal.KeyID))
}
