package toolservers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/limits"
	"turnpike/internal/visibility"
)

const (
	// listAge is how old a list of tools may be before a client that asks for it gets a new one.
	listAge = 5 * time.Minute
	// retryAge is how old it must be before an unknown tool or a failed server is looked up again.
	retryAge = 10 * time.Second
	// listParallel is how many servers are asked at a time.
	listParallel = 8
)

// Target is a tool of a server.
type Target struct {
	Server *Server
	Tool   *mcp.Tool // as the server describes it
	Mode   accounts.ToolMode
}

// Name returns the name under which clients see the tool in the list of all servers.
func (t *Target) Name() string { return tools.ListedName(t.Server.Label, t.Tool.Name) }

// NeedsApproval reports whether a person must approve calls of the tool, or those that the rules select.
func (t *Target) NeedsApproval() bool { return t.Server.Approval.Needed(t.Tool) }

// mode returns how tools are called in an environment.
func (m *Service) mode(ctx context.Context, t accounts.Tenant) (accounts.ToolMode, error) {
	return accounts.ToolModeOf(ctx, m.DB, t, m.TestTools())
}

// Available returns the tools of all visible servers, or of the one with the label if it isn't empty.
// Servers that fail keep the tools that they had.
func (m *Service) Available(ctx context.Context, vis visibility.Filter, label string) ([]*Target, error) {
	mode, err := m.mode(ctx, vis.Tenant)
	if err != nil {
		return nil, err
	}
	var servers []*Server
	if label != "" {
		s, err := m.Labeled(ctx, m.DB, vis, label)
		if err != nil {
			return nil, err
		}
		servers = append(servers, s)
	} else {
		found, err := m.List(ctx, m.DB, vis, db.Page{Limit: maxServers, Asc: true})
		if err != nil {
			return nil, err
		}
		servers = found.Rows
	}
	if mode == accounts.ToolsReal {
		m.refreshOld(ctx, servers)
	}
	var out []*Target
	for _, s := range servers {
		list, err := m.targets(s, mode)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// Known returns the tools of a server without asking it, and how they are called.
func (m *Service) Known(ctx context.Context, s *Server) ([]*Target, accounts.ToolMode, error) {
	mode, err := m.mode(ctx, s.Tenant)
	if err != nil {
		return nil, "", err
	}
	list, err := m.targets(s, mode)
	return list, mode, err
}

func (m *Service) targets(s *Server, mode accounts.ToolMode) ([]*Target, error) {
	read := s.Tools
	if mode == accounts.ToolsSimulated {
		read = func() ([]*mcp.Tool, error) { return tools.SimulatedTools(s.spec()) }
	}
	list, err := read()
	if err != nil {
		return nil, err
	}
	out := make([]*Target, len(list))
	for i, t := range list {
		out[i] = &Target{Server: s, Tool: t, Mode: mode}
	}
	return out, nil
}

// refreshOld reads the tools of servers whose list is old.
func (m *Service) refreshOld(ctx context.Context, servers []*Server) {
	var working sync.WaitGroup
	slots := make(chan struct{}, listParallel)
	for _, s := range servers {
		if !m.isOld(s, listAge) {
			continue
		}
		working.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := m.Refresh(ctx, s); err != nil && ctx.Err() == nil {
				slog.Warn("failed to list the tools of a server; clients see its previous tools", "server", s.ID, "error", err)
			}
		})
	}
	working.Wait()
}

// isOld reports whether the server's list is older than the age, or failed some time ago.
func (m *Service) isOld(s *Server, age time.Duration) bool {
	if s.Problem != "" {
		age = retryAge
	}
	return s.ListedAt == nil || m.Now().Sub(*s.ListedAt) >= age
}

// Refresh reads the server's tools and stores them. If the server fails, it stores the problem and keeps the
// tools.
func (m *Service) Refresh(ctx context.Context, s *Server) error {
	mode, err := m.mode(ctx, s.Tenant)
	if err != nil {
		return err
	}
	if mode == accounts.ToolsSimulated {
		return fault.New(fault.InvalidState, "Tools are simulated in the test environment, so the server is not asked. Register it in the live environment, or set the workspace's test tools to real.")
	}
	requests, err := m.Requests().Reserve(s.Tenant, s.URL)
	if err != nil {
		return requestFault(err)
	}
	defer requests.Release()
	list, err := WithToken(ctx, m, s, func(headers map[string]string) ([]*mcp.Tool, error) {
		return m.executor.Counted(requests).List(ctx, s.spec(), headers)
	})
	if ctx.Err() != nil {
		return ctx.Err() // the client left
	}
	failure, failed := errors.AsType[*tools.Failure](err)
	if err != nil && !failed {
		return err
	}
	now := m.Now()
	s.ListedAt, s.Problem = &now, ""
	if failed {
		s.Problem = failure.Message
	} else if s.listed, err = json.Marshal(list); err != nil {
		return err
	}
	return m.DB.Write(ctx, func(tx *db.Tx) error {
		// A server that was changed meanwhile has no list, and another URL or other headers.
		_, err := tx.Exec(ctx, "UPDATE tool_servers SET tools = $2, listed_at = $3, problem = $4 WHERE id = $1 AND url = $5 AND COALESCE(headers, '') = $6",
			s.ID, db.OrNull(string(s.listed)), now.UnixMicro(), db.OrNull(s.Problem), s.URL, s.headers)
		return db.Wrap(err, "store tools")
	})
}

// WithToken does something with a server's headers. If the server rejects a token that can be renewed, it is done
// again with another: the server has done nothing.
func WithToken[T any](ctx context.Context, m *Service, s *Server, do func(headers map[string]string) (T, error)) (out T, err error) {
	for again := true; ; again = false {
		headers, err := m.Headers(ctx, s)
		if err != nil {
			return out, err
		}
		out, err = do(headers)
		failure, failed := errors.AsType[*tools.Failure](err)
		if !failed || !failure.Unauthorized || !again {
			return out, err
		}
		if renewable, problem := m.TokenRejected(ctx, s, headers["Authorization"]); problem != nil || !renewable {
			return out, cmp.Or(problem, err)
		}
	}
}

// Find returns the tool with a name as clients see it. If label isn't empty, the name is the tool's name at
// that server. The error for a tool that doesn't exist is not_found.
func (m *Service) Find(ctx context.Context, vis visibility.Filter, label, name string) (*Target, error) {
	matches := func(t *Target) bool { return t.Tool.Name == name }
	if label == "" {
		label, _, _ = strings.Cut(name, "__")
		matches = func(t *Target) bool { return t.Name() == name }
	}
	noTool := fault.New(fault.NotFound, "Unknown tool %q. List the tools again.", name)
	s, err := m.Labeled(ctx, m.DB, vis, label)
	if fault.Is(err, fault.NotFound) {
		return nil, noTool
	}
	if err != nil {
		return nil, err
	}
	mode, err := m.mode(ctx, vis.Tenant)
	if err != nil {
		return nil, err
	}
	for fresh := range 2 {
		if fresh == 1 {
			if mode == accounts.ToolsSimulated || !m.isOld(s, retryAge) {
				break
			}
			if err := m.Refresh(ctx, s); err != nil {
				return nil, err
			}
		}
		list, err := m.targets(s, mode)
		if err != nil {
			return nil, err
		}
		for _, t := range list {
			if matches(t) {
				return t, nil
			}
		}
	}
	if s.Problem != "" {
		return nil, fault.New(fault.Upstream, "The tools of %s can't be listed: %s.", s.Label, s.Problem)
	}
	return nil, noTool
}

// Call is one call of a tool.
type Call struct {
	*Target
	Arguments json.RawMessage
	// RequestID identifies the call to the server.
	RequestID string
	// Progress gets the server's progress notifications. It may be nil.
	Progress func(*mcp.ProgressNotificationParams)
}

// NeedsApproval reports whether a person must approve the call.
func (c Call) NeedsApproval() bool {
	rules := c.Server.RulesOf(c.Tool.Name)
	return c.Target.NeedsApproval() && rules.Apply(c.Arguments)
}

// Prepared is a call within the limits of requests. It must be run or released.
type Prepared struct {
	service  *Service
	call     Call
	requests *tools.Reservation
}

// Prepare reserves the requests of a call.
func (m *Service) Prepare(c Call) (*Prepared, error) {
	p := &Prepared{service: m, call: c}
	if c.Mode == accounts.ToolsSimulated {
		return p, nil
	}
	var err error
	if p.requests, err = m.Requests().Reserve(c.Server.Tenant, c.Server.URL); err != nil {
		return nil, requestFault(err)
	}
	return p, nil
}

func requestFault(err error) error {
	refused, ok := errors.AsType[*limits.Refusal](err)
	if !ok {
		return err
	}
	f := fault.New(fault.RateLimitExceeded, "Too many requests to tool servers. Retry in %s.", refused.RetryAfter.Round(time.Millisecond))
	f.RetryAfter = refused.RetryAfter
	return f.Because(err)
}

// Release ends the reservation.
func (p *Prepared) Release() { p.requests.Release() }

// Run calls the tool once. It returns a *tools.Failure if there is no response.
func (p *Prepared) Run(ctx context.Context) (*mcp.CallToolResult, error) {
	c := p.call
	if c.Mode == accounts.ToolsSimulated {
		out, err := tools.Simulate(c.Name(), string(c.Arguments), nil)
		if err != nil {
			return nil, fmt.Errorf("simulate tool: %w", err)
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: out.Text}}}, nil
	}
	return WithToken(ctx, p.service, c.Server, func(headers map[string]string) (*mcp.CallToolResult, error) {
		return p.service.executor.Counted(p.requests).Call(ctx, tools.Invocation{Tool: tools.Tool{Kind: tools.MCP, Remote: c.Tool.Name}, Spec: c.Server.spec(),
			Secrets: tools.Secrets{c.Server.Label: headers}, Arguments: c.Arguments, IdempotencyKey: c.RequestID, Progress: c.Progress})
	})
}
