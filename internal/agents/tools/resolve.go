package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"turnpike/internal/fault"
)

const (
	listTimeout = 10 * time.Second // for one server
	listPages   = 100
	listAtOnce  = 8 // servers that are asked side by side
)

// Resolve lists the tools that the model can call: function and http tools as
// they are, those of MCP servers by asking each server. A server that cannot
// be asked is a *Failure, and so is one whose tools cannot be used.
func (x *Executor) Resolve(ctx context.Context, specs []Spec, secrets Secrets) ([]Tool, error) {
	lists := make([][]Tool, len(specs))
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var asking sync.WaitGroup
	slots := make(chan struct{}, listAtOnce)
	for i, spec := range specs {
		if spec.Type != MCP {
			lists[i] = []Tool{describedTool(spec, i)}
			continue
		}
		asking.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			list, err := x.listMCP(ctx, spec, secrets[spec.ServerLabel])
			for j := range list {
				list[j].Spec = i
			}
			lists[i] = list
			if err != nil {
				stop(err) // the first one is the reason; the others end with it
			}
		})
	}
	asking.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return combine(lists)
}

// describedTool is a function or http tool, which its Spec describes in full.
func describedTool(spec Spec, index int) Tool {
	return Tool{Name: spec.Name, Kind: spec.Type, Description: spec.Description, Parameters: spec.Parameters,
		Idempotent: spec.Idempotent, NeedsApproval: spec.Approval.needed(spec.Name, false), Spec: index}
}

// combine joins the tools of all specs. There must not be too many, and every
// name must be unique.
func combine(lists [][]Tool) ([]Tool, error) {
	tools := slices.Concat(lists...)
	if len(tools) > maxTools {
		return nil, &Failure{Message: fmt.Sprintf("there are %d tools, more than %d; choose some by allowed_tools", len(tools), maxTools), Final: true}
	}
	seen := make(map[string]bool, len(tools))
	for _, t := range tools {
		if seen[t.Name] {
			return nil, &Failure{Message: fmt.Sprintf("two tools are called %s; rename one or change a server_label", t.Name), Final: true}
		}
		seen[t.Name] = true
	}
	return tools, nil
}

// listMCP asks one server for its tools.
func (x *Executor) listMCP(ctx context.Context, spec Spec, headers map[string]string) ([]Tool, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	failed := func(final bool, format string, args ...any) ([]Tool, error) {
		return nil, &Failure{Message: fmt.Sprintf("the MCP server %s: ", spec.ServerLabel) + fmt.Sprintf(format, args...), Final: final}
	}
	session, w, err := x.connect(ctx, spec, headers)
	if err != nil {
		return failed(w.lasting(), "%s", w.explain(ctx, err))
	}
	defer x.leave(session)
	var (
		tools  []Tool
		cursor string
	)
	for range listPages {
		page, err := session.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
		if err != nil {
			return failed(w.lasting(), "%s", w.explain(ctx, err))
		}
		for _, remote := range page.Tools {
			if len(spec.AllowedTools) > 0 && !slices.Contains(spec.AllowedTools, remote.Name) {
				continue
			}
			if len(tools) == maxTools {
				return failed(true, "it has more than %d tools; choose some by allowed_tools", maxTools)
			}
			t, err := mcpTool(spec, remote, headers)
			if err != nil {
				return failed(true, "%s", err)
			}
			tools = append(tools, t)
		}
		if page.NextCursor == "" {
			return tools, missing(spec, tools)
		}
		cursor = page.NextCursor
	}
	return failed(true, "its list of tools has more than %d pages", listPages)
}

// missing complains about a tool that was asked for by name and is not there:
// a run without it would only find out later, and pay for it.
func missing(spec Spec, tools []Tool) error {
	for _, name := range spec.AllowedTools {
		if !slices.ContainsFunc(tools, func(t Tool) bool { return t.Remote == name }) {
			return &Failure{Message: fmt.Sprintf("the MCP server %s has no tool %s, which allowed_tools names", spec.ServerLabel, cut(clean(name), maxName)), Final: true}
		}
	}
	return nil
}

// mcpTool takes over a server's tool. One that cannot be used fails the whole
// list, and the message says how to do without it.
func mcpTool(spec Spec, remote *mcp.Tool, headers map[string]string) (Tool, error) {
	name := cut(clean(remote.Name), maxName)
	if remote.Name == "" || len(remote.Name) > maxRemoteName || hide(clean(remote.Name), headers) != remote.Name {
		return Tool{}, errors.New("it has a tool without a usable name; choose others by allowed_tools")
	}
	parameters := noParameters
	if remote.InputSchema != nil {
		raw, err := json.Marshal(remote.InputSchema)
		if err != nil {
			return Tool{}, fmt.Errorf("the input schema of its tool %s cannot be read; choose others by allowed_tools", name)
		}
		if len(raw) <= maxSchema {
			raw = []byte(hide(string(raw), headers))
		}
		if err := checkParameters("inputSchema", raw); err != nil {
			f, _ := fault.As(err)
			return Tool{}, fmt.Errorf("its tool %s cannot be used: %s; choose others by allowed_tools", name, f.Message)
		}
		parameters = raw
	}
	hints := remote.Annotations
	destructive := hints != nil && hints.DestructiveHint != nil && *hints.DestructiveHint
	return Tool{Name: exposed(spec.ServerLabel, remote.Name), Kind: MCP, Description: brief(remote.Description, headers, maxDescription),
		Parameters: parameters, NeedsApproval: spec.Approval.needed(remote.Name, destructive), Remote: remote.Name}, nil
}
