// Package tools holds the tools that a run's model can call: functions that the
// client executes, and HTTP endpoints and MCP servers that this package calls.
//
// All input is untrusted: descriptions come from customers, responses from
// servers, arguments from a model. So all sizes and times are limited, every request
// goes through the guarded client, and nothing is executed on this machine.
//
// Approval: "always" and "never" apply to a tool, or to all tools of an MCP server. The object form
// names MCP tools, and tools in neither list need approval. Hints of a server can only add
// approvals: with a plain "never", a tool with destructiveHint: true needs approval unless the
// customer lists it under never. Hints that would remove approvals (readOnlyHint, idempotentHint,
// destructiveHint: false) are ignored, and MCP tools are never idempotent.
//
// A call is sent once: each http tool call opens a connection, because net/http
// repeats requests with an Idempotency-Key when a reused connection breaks.
package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"turnpike/internal/safehttp"
)

// Kind says who executes a tool.
type Kind string

// The kinds of tools.
const (
	Function Kind = "function" // the client
	HTTP     Kind = "http"     // this server, with one request
	MCP      Kind = "mcp"      // an MCP server
)

const (
	maxSpecs       = 64        // entries in the tools of a run
	maxTools       = 128       // including those of MCP servers
	maxDescription = 8 << 10   // bytes
	maxOutput      = 256 << 10 // bytes of a response that the model sees
	maxPage        = 16 << 10  // bytes of an HTML page that it sees
)

// MaxTimeout and DefaultTimeout are limits of a call in seconds.
const (
	MaxTimeout     = 300
	DefaultTimeout = 30
)

// Spec is the validated description of a tool, or of an MCP server with its tools.
// Its headers are kept apart, in Secrets.
type Spec struct {
	Type        Kind            `json:"type"`
	Name        string          `json:"name,omitempty"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Approval    Approval        `json:"require_approval"`
	Rules       ApprovalRules   `json:"approval_rules,omitzero"`

	// For http.
	Method     string `json:"method,omitempty"`
	URL        string `json:"url,omitempty"`
	Idempotent bool   `json:"idempotent,omitempty"`

	// For mcp.
	ServerLabel  string   `json:"server_label,omitempty"`
	ServerURL    string   `json:"server_url,omitempty"`
	AllowedTools []string `json:"allowed_tools,omitempty"` // empty allows all
	Registered   bool     `json:"registered,omitempty"`    // the workspace's registry has the server
	ServerID     string   `json:"server_id,omitempty"`     // of a registered server
	// ToolRules replace Rules for some tools of a registered server, by the tool's own name.
	ToolRules map[string]ApprovalRules `json:"tool_rules,omitzero"`

	// For http and mcp.
	TimeoutSeconds int `json:"timeout_seconds,omitempty"`
}

func (s *Spec) id() string {
	if s.Type == MCP {
		return s.ServerLabel
	}
	return s.Name
}

// Destination returns the URL of the spec, or an empty string for a function.
func (s *Spec) Destination() string {
	if s.Type == MCP {
		return s.ServerURL
	}
	return s.URL
}

// Secrets holds the headers of all tools, by tool name or server label.
type Secrets map[string]map[string]string

// Tool is one function that the model can call.
type Tool struct {
	Name          string          `json:"name"` // as the model calls it
	Kind          Kind            `json:"kind"`
	Description   string          `json:"description,omitempty"`
	Parameters    json.RawMessage `json:"parameters"`
	Idempotent    bool            `json:"idempotent,omitempty"`
	NeedsApproval bool            `json:"needs_approval,omitempty"`
	Spec          int             `json:"spec"`             // index of its Spec
	Remote        string          `json:"remote,omitempty"` // its name at its MCP server
}

// Output is the result of a tool call, as the model sees it.
type Output struct {
	Text    string
	IsError bool
}

// Failure is a call without a response. Its message is for people and for the
// model, and never contains a header or a URL's query.
type Failure struct {
	Message string
	// Unknown means that the call may have had an effect: the request was sent
	// when the call timed out or the connection broke.
	Unknown bool
	// Final means that a retry cannot succeed.
	Final bool
	// Unauthorized means that the server rejected the credentials before the call.
	Unauthorized bool
	Cause        error // may contain the URL, so it must not be logged
}

func (f *Failure) Error() string { return f.Message }
func (f *Failure) Unwrap() error { return f.Cause }

// Executor calls tools.
type Executor struct {
	guard   *safehttp.Guard
	agent   string
	version string
	single  http.RoundTripper // for http tools: one connection per call
	pooled  http.RoundTripper // for MCP sessions, which take several requests

	requests *Reservation // counts the requests of the transports; may be nil
}

// NewExecutor creates an executor whose requests go through the guard.
func NewExecutor(guard *safehttp.Guard, version string) *Executor {
	return &Executor{
		guard:   guard,
		agent:   "Turnpike/" + version + " (agents)",
		version: version,
		single:  retryExhausted{guard.Client(safehttp.ClientOptions{MaxIdlePerHost: -1}).Transport},
		pooled:  retryExhausted{guard.Client(safehttp.ClientOptions{MaxResponseBytes: sessionBytes}).Transport},
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
	// Progress gets the progress notifications of an MCP server. It may be nil.
	Progress func(*mcp.ProgressNotificationParams)
}

func (c *Invocation) headers() map[string]string { return c.Secrets[c.Spec.id()] }

// Run executes a tool once. Every response of the tool is an Output, also an
// error. A call without a response is a *Failure.
func (x *Executor) Run(ctx context.Context, c Invocation) (Output, error) {
	switch c.Tool.Kind {
	case HTTP:
		return withTimeout(ctx, c, x.runHTTP)
	case MCP:
		return withTimeout(ctx, c, x.runMCP)
	}
	return Output{}, fmt.Errorf("the server does not execute tools of kind %q", c.Tool.Kind)
}

// withTimeout makes a call within the tool's timeout.
func withTimeout[T any](ctx context.Context, c Invocation, call func(context.Context, Invocation) (T, error)) (out T, err error) {
	if err := ctx.Err(); err != nil {
		return out, &Failure{Message: safehttp.Explain(err), Cause: err}
	}
	timeout := time.Duration(c.Spec.TimeoutSeconds) * time.Second
	if timeout <= 0 {
		timeout = DefaultTimeout * time.Second
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err = call(limited, c)
	var failure *Failure
	if errors.As(err, &failure) && ctx.Err() == nil && limited.Err() != nil {
		failure.Message = fmt.Sprintf("no response within %d s", int(timeout.Seconds()))
	}
	return out, err
}
