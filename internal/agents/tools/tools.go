// Package tools is what a run's model can call: functions that the customer
// executes, HTTP endpoints and MCP servers that this package calls.
//
// Everything comes from strangers: the descriptions from customers, the
// answers from servers, the arguments from a model. So all sizes and times are
// bounded, every request goes through the guarded client, and nothing is ever
// executed on this machine.
//
// Approval. "always" and "never" are the customer's word for all of a tool, or
// all of an MCP server's tools. The object form names MCP tools; who is in
// neither list needs approval. A server's hints can only tighten that: with a
// plain "never", a tool whose server says destructiveHint: true needs approval
// all the same, until the customer names it under never. What would loosen
// something (readOnlyHint, idempotentHint, destructiveHint: false) is ignored:
// an MCP tool is never taken for idempotent.
//
// Once means once. An http tool gets a connection of its own, as net/http
// repeats requests with an Idempotency-Key when a reused one breaks.
package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"turnpike/internal/safehttp"
)

// Kind is who executes a tool.
type Kind string

// The kinds of tools.
const (
	Function Kind = "function" // the customer
	HTTP     Kind = "http"     // this server, by one request
	MCP      Kind = "mcp"      // an MCP server
)

const (
	maxGiven       = 64        // tools in a run's list
	maxTools       = 128       // after MCP servers were asked
	maxDescription = 8 << 10   // bytes of one
	maxOutput      = 256 << 10 // bytes of an answer that the model sees
	maxPage        = 16 << 10  // bytes of an HTML page that it sees
	maxTimeout     = 300       // seconds
	defaultTimeout = 30        // seconds
)

// Spec is a tool, or an MCP server with its tools, as a customer describes it,
// checked. Its headers are not in it: they are Secrets.
type Spec struct {
	Type        Kind            `json:"type"`
	Name        string          `json:"name,omitempty"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Approval    Approval        `json:"require_approval"`

	// Of http.
	Method     string `json:"method,omitempty"`
	URL        string `json:"url,omitempty"`
	Idempotent bool   `json:"idempotent,omitempty"`

	// Of mcp.
	ServerLabel  string   `json:"server_label,omitempty"`
	ServerURL    string   `json:"server_url,omitempty"`
	AllowedTools []string `json:"allowed_tools,omitempty"` // none is all

	// Of http and mcp.
	TimeoutSeconds int `json:"timeout_seconds,omitempty"`
}

// id is the name by which a spec's secrets are found.
func (s *Spec) id() string {
	if s.Type == MCP {
		return s.ServerLabel
	}
	return s.Name
}

// Destination is the URL that requests for the spec go to, empty for a function.
func (s *Spec) Destination() string {
	if s.Type == MCP {
		return s.ServerURL
	}
	return s.URL
}

// Secrets are the headers of all tools, by tool name or server label.
type Secrets map[string]map[string]string

// Tool is one function that the model can call.
type Tool struct {
	Name          string          `json:"name"` // as the model knows it
	Kind          Kind            `json:"kind"`
	Description   string          `json:"description,omitempty"`
	Parameters    json.RawMessage `json:"parameters"`
	Idempotent    bool            `json:"idempotent,omitempty"`
	NeedsApproval bool            `json:"needs_approval,omitempty"`
	Spec          int             `json:"spec"`             // index of its Spec
	Remote        string          `json:"remote,omitempty"` // its name at its MCP server
}

// Output is what a tool came to, as the model sees it.
type Output struct {
	Text    string
	IsError bool
}

// Failure is a call without an answer. Its text is for people and for the
// model; it never holds a header or a URL's query.
type Failure struct {
	Message string
	// Unknown means that the call may have had an effect: the request was on
	// its way when the time ran out or the connection broke.
	Unknown bool
	// Final means that asking again would change nothing.
	Final bool
	Cause error // may hold the URL: not for the log
}

func (f *Failure) Error() string { return f.Message }
func (f *Failure) Unwrap() error { return f.Cause }

// Executor calls tools.
type Executor struct {
	guard   *safehttp.Guard
	agent   string
	version string
	single  http.RoundTripper // of http tools: a connection for each call
	pooled  http.RoundTripper // of MCP sessions, which take several requests

	requests *Reservation // that counts what the transports send; nil for none
}

// NewExecutor makes an executor whose requests the guard checks.
func NewExecutor(guard *safehttp.Guard, version string) *Executor {
	return &Executor{
		guard:   guard,
		agent:   "Turnpike/" + version + " (agents)",
		version: version,
		single:  patient{guard.Client(safehttp.ClientOptions{MaxIdlePerHost: -1}).Transport},
		pooled:  patient{guard.Client(safehttp.ClientOptions{}).Transport},
	}
}

// Counted returns an executor whose requests count against the reservation.
func (x *Executor) Counted(r *Reservation) *Executor {
	counted := *x
	counted.single, counted.pooled, counted.requests = r.Transport(x.single), r.Transport(x.pooled), r
	return &counted
}

// Invocation is one call of an http or mcp tool.
type Invocation struct {
	Tool      Tool
	Spec      Spec // of the tool
	Secrets   Secrets
	Arguments json.RawMessage
	// IdempotencyKey is the same for all attempts of the call.
	IdempotencyKey string
}

func (c *Invocation) headers() map[string]string { return c.Secrets[c.Spec.id()] }

// Run executes a tool once. Every response of the tool is an Output, also an
// error. A call without a response is a *Failure.
func (x *Executor) Run(ctx context.Context, c Invocation) (Output, error) {
	if err := ctx.Err(); err != nil {
		return Output{}, &Failure{Message: safehttp.Explain(err), Cause: err}
	}
	timeout := time.Duration(c.Spec.TimeoutSeconds) * time.Second
	if timeout <= 0 {
		timeout = defaultTimeout * time.Second
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var (
		out Output
		err error
	)
	switch c.Tool.Kind {
	case HTTP:
		out, err = x.runHTTP(limited, c)
	case MCP:
		out, err = x.runMCP(limited, c)
	default:
		return Output{}, fmt.Errorf("the server does not execute tools of kind %q", c.Tool.Kind)
	}
	var failure *Failure
	if errors.As(err, &failure) && ctx.Err() == nil && limited.Err() != nil {
		failure.Message = fmt.Sprintf("no response within %d s", int(timeout.Seconds()))
	}
	return out, err
}
