package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/agents/toolservers"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/web"
)

// mcpPath is the MCP endpoint. Below it, each tool server has an endpoint with its label.
const mcpPath = "/mcp"

// mcpProvider is the provider of tool calls in the log and in the usage.
const mcpProvider = "mcp"

const (
	sessionHeader    = "Mcp-Session-Id"
	methodListTools  = "tools/list"
	methodCallTool   = "tools/call"
	methodInitialize = "initialize"
	methodCancelled  = "notifications/cancelled"
)

// mcpCall is a message of an MCP client. Each request has one message, and there are no sessions, so
// that any node can handle it.
type mcpCall struct {
	*Call
	label   string // of the server in the path; empty for all
	message mcpMessage
	writer  *mcpWriter

	calling   sync.WaitGroup
	announced float64      // how often the client was told that its call waits
	failure   *fault.Error // why the tool call failed; nil otherwise
}

// mcpMessage is what Turnpike reads of a message. The SDK reads the rest.
type mcpMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		RequestID json.RawMessage `json:"requestId"` // of the call that a client cancels
	} `json:"params"`
}

func serveMCP(c *Call) error {
	body, err := c.readJSON(c.Limits.Body)
	if err != nil {
		return err
	}
	m := &mcpCall{Call: c, label: c.R.PathValue("label"), writer: &mcpWriter{c: c}}
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		return fault.New(fault.InvalidJSON, "JSON-RPC batches are not supported. Send each message in a separate request.")
	}
	// A message that can't be read gets the SDK's error.
	_ = json.Unmarshal(body, &m.message)
	if m.label != "" && !m.own() {
		if err := m.checkLabel(); err != nil {
			return err
		}
	}
	switch m.message.Method {
	case methodCancelled:
		if err := c.cancelToolCall(m.message.Params.RequestID); err != nil {
			return err
		}
	case methodInitialize:
		// The ID of a session only tells the calls of one client from those of another.
		c.W.Header().Set(sessionHeader, rand.Text())
	}
	server := m.newServer()
	r := c.R.Clone(c.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{
		Stateless: true,
		// Only tool calls can take long enough to send anything before the response.
		JSONResponse:        m.message.Method != methodCallTool,
		MaxRequestBodyBytes: -1, // readJSON has limited it
		// A page that uses DNS rebinding has no key, and behind a proxy the host is never local.
		DisableLocalhostProtection:   true,
		PropagateRequestCancellation: true,
	}).ServeHTTP(m.writer, r)
	m.calling.Wait()
	return m.writer.finish(m.failure)
}

// own reports whether the path names Turnpike's own tools.
func (m *mcpCall) own() bool { return m.label == toolservers.OwnLabel }

// checkLabel checks that the path names a server that the key can see.
func (m *mcpCall) checkLabel() error {
	ctx, cancel := web.WithStorageTimeout(m.Context())
	defer cancel()
	_, err := m.s.ToolServers.Labeled(ctx, m.s.DB, m.Principal.Visibility(), m.label)
	return err
}

const mcpInstructions = "Tools of the servers that a Turnpike workspace has registered. Some calls wait until a person approves them."

func (m *mcpCall) newServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "turnpike", Title: "Turnpike", Version: m.s.Version}, &mcp.ServerOptions{
		Instructions: mcpInstructions,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			m.calling.Add(1)
			defer m.calling.Done()
			switch method {
			case methodListTools:
				return m.protocol(m.listTools(m.Context()))
			case methodCallTool:
				params, ok := r.GetParams().(*mcp.CallToolParamsRaw)
				if !ok {
					return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "missing params"}
				}
				session, _ := r.GetSession().(*mcp.ServerSession)
				return m.protocol(m.callTool(ctx, session, params))
			}
			return next(ctx, method, r)
		}
	})
	return server
}

// protocol converts the error of a message that has no result.
func (m *mcpCall) protocol(result mcp.Result, err error) (mcp.Result, error) {
	if err == nil {
		return result, nil
	}
	f := m.Fault(err)
	m.failure = f
	code := int64(jsonrpc.CodeInternalError)
	if fault.FamilyOf(f.Code).Status < http.StatusInternalServerError {
		code = jsonrpc.CodeInvalidParams
	}
	return nil, &jsonrpc.Error{Code: code, Message: f.Message}
}

// newToolList returns a list that only this key's client may cache. Claude Code rejects lists without a cache scope.
func newToolList() *mcp.ListToolsResult {
	return &mcp.ListToolsResult{Cacheable: mcp.Cacheable{CacheScope: "private"}, Tools: []*mcp.Tool{}}
}

func (m *mcpCall) listTools(ctx context.Context) (mcp.Result, error) {
	if m.own() {
		return m.listOwnTools(), nil
	}
	list, err := m.s.ToolServers.Available(ctx, m.Principal.Visibility(), m.label)
	if err != nil {
		return nil, err
	}
	out := newToolList()
	for _, t := range list {
		if !m.Principal.AllowsTool(t.Name()) {
			continue
		}
		tool := *t.Tool
		if m.label == "" {
			tool.Name = t.Name()
		}
		out.Tools = append(out.Tools, &tool)
	}
	return out, nil
}

// callTool calls a tool. Everything that goes wrong with a tool that exists is a result, so that the model
// sees it.
func (m *mcpCall) callTool(sdk context.Context, session *mcp.ServerSession, params *mcp.CallToolParamsRaw) (mcp.Result, error) {
	// The SDK's context outlives the client, and its values would change requests to other servers.
	ctx, stop := context.WithCancel(m.Context())
	defer stop()
	defer m.s.toolCalls.add(m.callKey(m.message.ID), stop)()
	if m.own() {
		return m.callOwnTool(ctx, params)
	}
	target, err := m.s.ToolServers.Find(ctx, m.Principal.Visibility(), m.label, params.Name)
	if err == nil && !m.Principal.AllowsTool(target.Name()) {
		err = fault.New(fault.NotFound, "Unknown tool %q. List the tools again.", web.Sanitize(params.Name, web.MaxLoggedText))
	}
	if err != nil {
		return nil, err
	}
	m.record.Note(func(e *audit.Entry) { e.Model, e.Provider = target.Name(), mcpProvider })
	arguments := params.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	if err := jsonbody.DecodeLenient(arguments, new(map[string]any)); err != nil {
		return nil, fault.Invalid("arguments", "arguments must be a JSON object without duplicate names.")
	}
	call := toolservers.Call{Target: target, Arguments: arguments, RequestID: m.Call.ID}
	if token := params.GetProgressToken(); token != nil {
		call.Progress = func(p *mcp.ProgressNotificationParams) {
			m.writer.stream()
			p.ProgressToken = token
			_ = session.NotifyProgress(sdk, p) // the client may have left
		}
	}
	announce := func(a *toolservers.Approval) { m.announce(sdk, session, params, a) }
	result, err := m.approveAndRun(ctx, call, announce)
	if unapproved, ok := errors.AsType[*toolservers.UnapprovedError](err); ok {
		m.failure = fault.New(fault.Code("approval_"+string(unapproved.Status)), "%s", unapproved.Error())
		return tools.ErrorResult(unapproved.Error()), nil
	}
	if err != nil {
		f := m.Fault(err)
		m.failure = f
		return tools.ErrorResult(f.Message), nil
	}
	return result, nil
}

// approveAndRun waits for an approval if the call needs one, and executes it. A call that has waited is
// authorized again.
func (m *mcpCall) approveAndRun(ctx context.Context, call toolservers.Call, announce func(*toolservers.Approval)) (*mcp.CallToolResult, error) {
	if !call.NeedsApproval() {
		return m.runTool(ctx, call)
	}
	release, err := m.s.Agents.AcquireWatcher(m.Principal)
	if err != nil {
		return nil, err
	}
	defer release()
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	stopping := fault.New(fault.Overloaded, "The server is stopping. Make the same call again to continue waiting for its approval.")
	defer context.AfterFunc(m.s.watching, func() { stop(stopping) })()
	a, err := m.s.ToolServers.Await(waiting, toolservers.ApprovalRequest{Call: call, Project: m.Project, KeyID: m.Principal.KeyID, KeyHint: m.Principal.KeyHint}, announce)
	if err != nil {
		return nil, err
	}
	release()
	if a.Response != "" {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: a.Response}}}, nil
	}
	if a.Edited != "" {
		call.Arguments = json.RawMessage(a.Edited)
	}
	if err := m.reauthenticate(); err != nil {
		return nil, err
	}
	if !m.Principal.AllowsTool(call.Name()) {
		return nil, fault.New(fault.InsufficientScope, "This key may no longer call %s.", call.Name())
	}
	return m.runTool(ctx, call)
}

// announce tells the client that its call waits, so that it doesn't give up.
func (m *mcpCall) announce(sdk context.Context, session *mcp.ServerSession, params *mcp.CallToolParamsRaw, a *toolservers.Approval) {
	m.writer.stream()
	token := params.GetProgressToken()
	if token == nil {
		m.writer.comment("waiting for an approval")
		return
	}
	m.announced++
	_ = session.NotifyProgress(sdk, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: m.announced, // the client may have left
		Message: "Waiting until a person approves the call: " + m.s.PublicURL + "/dashboard/w/" + a.WorkspaceID + "/" + string(a.Environment) + "/approvals"})
}

// runTool executes a call within the limits and budgets, and notes its cost.
func (m *mcpCall) runTool(ctx context.Context, call toolservers.Call) (*mcp.CallToolResult, error) {
	prepared, err := m.s.ToolServers.Prepare(call)
	if err != nil {
		return nil, err
	}
	defer prepared.Release()
	if err := m.createProject(ctx); err != nil {
		return nil, err
	}
	price := call.Server.Price(call.Tool.Name)
	if err := m.s.Gateway.ReserveToolCall(ctx, m.modelCall(nil), price); err != nil {
		return nil, err
	}
	if call.Mode == accounts.ToolsReal {
		// The tool may have an effect, so the call is in the log first.
		if err := m.record.Durable(web.StorageTimeout); err != nil {
			return nil, err
		}
	}
	start := m.s.Now()
	result, err := prepared.Run(ctx)
	failure, failed := errors.AsType[*tools.Failure](err)
	if err != nil && !failed {
		return nil, err
	}
	m.record.Note(func(e *audit.Entry) {
		e.Upstream = m.s.Now().Sub(start)
		switch {
		case failed && !failure.Unknown, !failed && result.IsError: // it had no effect
		case m.Principal.Environment == accounts.Test:
			e.SimulatedCredits = price
		default:
			e.Credits = price
		}
	})
	if failed {
		return nil, toolFault(failure)
	}
	return result, nil
}

// toolFault converts a call without a response.
func toolFault(f *tools.Failure) error {
	text := strings.ToUpper(f.Message[:1]) + f.Message[1:] + "."
	if f.Unknown {
		text += " The call may have had an effect."
	}
	return fault.New(fault.Upstream, "%s", text)
}

// toolCalls are the tool calls in progress on this node, so that clients can cancel them.
type toolCalls struct {
	mu sync.Mutex
	by map[string]context.CancelFunc
}

// signalCancelTool cancels a call on the node that makes it. The payload is the call's key.
const signalCancelTool = "mcp.cancel"

// callKey identifies a call: by the key, the client's session and its ID for the call.
func (c *Call) callKey(id json.RawMessage) string {
	return c.Principal.ID() + " " + web.Sanitize(c.R.Header.Get(sessionHeader), web.MaxLoggedText) + " " + web.Sanitize(string(id), web.MaxLoggedText)
}

func (t *toolCalls) add(key string, cancel context.CancelFunc) (remove func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = map[string]context.CancelFunc{}
	}
	if t.by[key] != nil { // two calls of a client without sessions have the same ID
		return func() {}
	}
	t.by[key] = cancel
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.by, key)
	}
}

// cancel cancels a call if this node makes it.
func (t *toolCalls) cancel(key string) { t.stop(key) }

func (t *toolCalls) stop(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	cancel := t.by[key]
	if cancel != nil {
		cancel()
	}
	return cancel != nil
}

// cancelToolCall cancels a call of the client on any node. Without a session, it may be another client's call.
func (c *Call) cancelToolCall(id json.RawMessage) error {
	if c.R.Header.Get(sessionHeader) == "" || len(id) == 0 {
		return nil
	}
	key := c.callKey(id)
	if c.s.toolCalls.stop(key) {
		return nil
	}
	ctx, cancel := web.WithStorageTimeout(c.Context())
	defer cancel()
	return c.s.DB.Write(ctx, func(tx *db.Tx) error {
		tx.Signal(signalCancelTool, key)
		return nil
	})
}
