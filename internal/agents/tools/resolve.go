package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"turnpike/internal/db"
	"turnpike/internal/fault"
)

const (
	listTimeout  = 10 * time.Second // per server
	listPages    = 100
	listParallel = 8 // servers
)

// Resolve lists the tools that the model can call: function and http tools from
// their specs, those of MCP servers by asking each server. It returns a *Failure if
// a server fails or its tools cannot be used.
func (x *Executor) Resolve(ctx context.Context, specs []Spec, secrets Secrets) ([]Tool, error) {
	lists := make([][]Tool, len(specs))
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var servers sync.WaitGroup
	slots := make(chan struct{}, listParallel)
	for i, spec := range specs {
		if spec.Type != MCP {
			lists[i] = []Tool{describedTool(spec, i)}
			continue
		}
		servers.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			list, err := x.listMCP(ctx, spec, secrets[spec.ServerLabel])
			for j := range list {
				list[j].Spec = i
			}
			lists[i] = list
			if err != nil {
				stop(err) // the first error is returned, and cancels the others
			}
		})
	}
	servers.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return combine(lists)
}

// describedTool returns a function or http tool, which its Spec describes fully.
func describedTool(spec Spec, index int) Tool {
	return Tool{Name: spec.Name, Kind: spec.Type, Description: spec.Description, Parameters: spec.Parameters,
		Idempotent: spec.Idempotent, NeedsApproval: spec.Approval.needed(spec.Name, false), Spec: index}
}

func combine(lists [][]Tool) ([]Tool, error) {
	tools := slices.Concat(lists...)
	if len(tools) > maxTools {
		return nil, &Failure{Message: fmt.Sprintf("there are %d tools, more than %d; select some with allowed_tools", len(tools), maxTools), Final: true}
	}
	seen := make(map[string]bool, len(tools))
	for _, t := range tools {
		if seen[t.Name] {
			return nil, &Failure{Message: fmt.Sprintf("two tools are named %s; rename one or change a server_label", t.Name), Final: true}
		}
		seen[t.Name] = true
	}
	return tools, nil
}

func (x *Executor) listMCP(ctx context.Context, spec Spec, headers map[string]string) ([]Tool, error) {
	list, err := x.listRemote(ctx, spec, headers)
	if err != nil {
		return nil, err
	}
	tools := make([]Tool, len(list))
	for i, remote := range list {
		if tools[i], err = mcpTool(spec, remote, headers); err != nil {
			return nil, serverFailure(spec, true, "%s", err)
		}
	}
	return tools, nil
}

func serverFailure(spec Spec, final bool, format string, args ...any) *Failure {
	return &Failure{Message: fmt.Sprintf("the MCP server %s: ", spec.ServerLabel) + fmt.Sprintf(format, args...), Final: final}
}

// listRemote returns the tools of an MCP server that the spec allows. It returns a *Failure if it can't.
func (x *Executor) listRemote(ctx context.Context, spec Spec, headers map[string]string) ([]*mcp.Tool, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	session, w, err := x.connect(ctx, spec, headers, nil)
	if err != nil {
		f := serverFailure(spec, w.permanent(), "%s", w.explain(ctx, err))
		f.Unauthorized = w.unauthorized()
		return nil, f
	}
	defer x.endSession(session)
	var tools []*mcp.Tool
	cursor := ""
	for range listPages {
		page, err := session.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
		if err != nil {
			return nil, serverFailure(spec, w.permanent(), "%s", w.explain(ctx, err))
		}
		for _, remote := range page.Tools {
			if len(spec.AllowedTools) > 0 && !slices.Contains(spec.AllowedTools, remote.Name) {
				continue
			}
			if len(tools) == maxTools {
				return nil, serverFailure(spec, true, "it has more than %d tools; select some with allowed_tools", maxTools)
			}
			if remote.Name == "" || len(remote.Name) > maxRemoteName || redact(db.Storable(remote.Name), headers) != remote.Name {
				return nil, serverFailure(spec, true, "it has a tool without a usable name; select others with allowed_tools")
			}
			tools = append(tools, remote)
		}
		if page.NextCursor == "" {
			return tools, checkAllowedExist(spec, tools)
		}
		cursor = page.NextCursor
	}
	return nil, serverFailure(spec, true, "its list of tools has more than %d pages", listPages)
}

// checkAllowedExist fails if the server lacks a tool of allowed_tools. Otherwise
// the run would find out later, and pay for it.
func checkAllowedExist(spec Spec, tools []*mcp.Tool) error {
	for _, name := range spec.AllowedTools {
		if !slices.ContainsFunc(tools, func(t *mcp.Tool) bool { return t.Name == name }) {
			return &Failure{Message: fmt.Sprintf("the MCP server %s has no tool %s, which allowed_tools names", spec.ServerLabel, truncate(db.Storable(name), maxName)), Final: true}
		}
	}
	return nil
}

// mcpTool converts a tool of a server. One that cannot be used fails the whole
// list, and the message says how to exclude it.
func mcpTool(spec Spec, remote *mcp.Tool, headers map[string]string) (Tool, error) {
	name := truncate(db.Storable(remote.Name), maxName)
	parameters := noParameters
	if remote.InputSchema != nil {
		raw, err := json.Marshal(remote.InputSchema)
		if err != nil {
			return Tool{}, fmt.Errorf("the input schema of its tool %s cannot be read; select others with allowed_tools", name)
		}
		if len(raw) <= maxSchema {
			raw = []byte(redact(string(raw), headers))
		}
		if err := checkParameters("inputSchema", raw); err != nil {
			f, _ := fault.As(err)
			return Tool{}, fmt.Errorf("its tool %s cannot be used: %s; select others with allowed_tools", name, f.Message)
		}
		parameters = raw
	}
	return Tool{Name: mcpToolName(spec.ServerLabel, remote.Name), Kind: MCP, Description: excerpt(remote.Description, headers, maxDescription),
		Parameters: parameters, NeedsApproval: spec.Approval.Needed(remote), Remote: remote.Name}, nil
}
