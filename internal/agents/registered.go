package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"turnpike/internal/access"
	"turnpike/internal/agents/tools"
	"turnpike/internal/agents/toolservers"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/visibility"
)

// lookUpServers completes the specs of a new run that name a registered server.
func (s *Service) lookUpServers(ctx context.Context, tx *db.Tx, r *Run, p *access.Principal) error {
	for i := range r.Specs {
		spec := &r.Specs[i]
		if !spec.Registered {
			continue
		}
		at := fmt.Sprintf("tools[%d]", i)
		if err := p.Require(access.MCPToolsCall); err != nil { // as at /mcp
			return err
		}
		server, err := s.Servers.Labeled(ctx, tx, p.Visibility(), spec.ServerLabel)
		if fault.Is(err, fault.NotFound) {
			return fault.Param(fault.MissingParameter, at+".server_url", "%s.server_url is required, because no tool server has the label %q.", at, spec.ServerLabel)
		}
		if err != nil {
			return err
		}
		spec.ServerID, spec.ServerURL = server.ID, server.URL
		spec.TimeoutSeconds = int(cmp.Or(int64(spec.TimeoutSeconds), server.TimeoutSeconds))
		spec.Rules, spec.ToolRules = server.Rules, maps.Clone(server.ToolRules)
		if spec.Approval.Rule() != "always" {
			spec.Approval = server.Approval
		} else { // the run wants a decision about every call
			spec.Rules.Conditions = nil
			for name, rules := range spec.ToolRules {
				rules.Conditions = nil
				spec.ToolRules[name] = rules
			}
		}
		for _, name := range spec.AllowedTools {
			if !server.Offers(name) {
				return fault.Invalid(at+".allowed_tools", "The tool server %s does not offer the tool %q.", spec.ServerLabel, name)
			}
		}
		if len(spec.AllowedTools) == 0 {
			spec.AllowedTools = server.AllowedTools
		}
	}
	return nil
}

// missingScope returns the scope that a run's key no longer has, or an empty one.
func (r *Run) missingScope(p *access.Principal) access.Scope {
	switch {
	case !p.Grant.Allows(access.AgentRunsCreate):
		return access.AgentRunsCreate
	case !p.Grant.Allows(access.MCPToolsCall) && slices.ContainsFunc(r.Specs, func(s tools.Spec) bool { return s.ServerID != "" }):
		return access.MCPToolsCall
	}
	return ""
}

// registeredServers are the registered servers of a run as they are in this turn, by the index of their spec.
type registeredServers map[int]registeredServer

type registeredServer struct {
	*toolservers.Server // nil if it was deleted
	label               string
	principal           *access.Principal
	failure             *tools.Failure // of its OAuth server
}

// useServers reads the run's registered servers, whose address, headers and rules can change while the run is
// in progress.
func (s *Service) useServers(ctx context.Context, r *Run, p *access.Principal) error {
	for i := range r.Specs {
		spec := &r.Specs[i]
		if spec.ServerID == "" {
			continue
		}
		server, err := s.Servers.Get(ctx, s.DB, visibility.Filter{Tenant: r.Tenant}, spec.ServerID)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		if r.servers == nil {
			r.servers = registeredServers{}
		}
		found := registeredServer{label: spec.ServerLabel, principal: p}
		if err == nil {
			found.Server, spec.ServerURL = server, server.URL
		}
		r.servers[i] = found
	}
	return nil
}

// renewRejected returns the error of a list of tools. If a server rejected a token that can be renewed, the next
// turn gets another one.
func (s *Service) renewRejected(ctx context.Context, r *Run, secrets tools.Secrets, err error) error {
	failure, ok := errors.AsType[*tools.Failure](err)
	if !ok || !failure.Unauthorized {
		return err
	}
	for _, server := range r.servers {
		renewable, problem := s.Servers.TokenRejected(ctx, server.Server, secrets[server.label]["Authorization"])
		if problem != nil {
			return problem
		}
		if renewable {
			failure.Final = false
		}
	}
	return failure
}

// check fails if a server was deleted or its OAuth server gives no token.
func (servers registeredServers) check() error {
	for _, server := range servers {
		if server.failure != nil {
			return server.failure
		}
		if server.Server == nil {
			return &tools.Failure{Message: fmt.Sprintf("the tool server %s was deleted", server.label), Final: true}
		}
	}
	return nil
}

// problem returns why a tool of a registered server can't be called, or an empty string.
func (servers registeredServers) problem(t tools.Tool) string {
	server, registered := servers[t.Spec]
	switch {
	case !registered:
		return ""
	case server.Server == nil:
		return "The tool server was deleted."
	case server.failure != nil:
		return "The call failed: " + server.failure.Message
	case !server.Offers(t.Remote):
		return "The tool server no longer offers this tool."
	case !server.principal.AllowsTool(tools.ListedName(server.Label, t.Remote)):
		return "The key of the run may not call this tool."
	}
	return ""
}

// callable leaves out the tools that the run can't call.
func (r *Run) callable(list []tools.Tool) []tools.Tool {
	return slices.DeleteFunc(list, func(t tools.Tool) bool { return r.servers.problem(t) != "" })
}
