package agents

import (
	"cmp"
	"context"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
)

// toolMode returns how the run calls its tools from now on. A change of the
// workspace's setting can switch a run from real to simulated but never back: the
// tools of simulated MCP servers may not exist.
func (s *Service) toolMode(ctx context.Context, r *Run) (accounts.ToolMode, error) {
	if r.Config.ToolMode == accounts.ToolsSimulated {
		return accounts.ToolsSimulated, nil
	}
	return s.environmentToolMode(ctx, s.db, r)
}

// environmentToolMode returns the mode of a run that is created now in the same
// workspace and environment.
func (s *Service) environmentToolMode(ctx context.Context, q db.Querier, r *Run) (accounts.ToolMode, error) {
	if r.Environment == accounts.Live {
		return accounts.ToolsReal, nil
	}
	w, err := accounts.GetWorkspace(ctx, q, r.WorkspaceID)
	if err != nil {
		return "", err
	}
	if cmp.Or(w.TestTools, s.testTools) == accounts.ToolsReal {
		return accounts.ToolsReal, nil
	}
	return accounts.ToolsSimulated, nil
}

// simulatedResult returns the output that the run's conversation sets for its
// simulated calls, or nil.
func (s *Service) simulatedResult(ctx context.Context, r *Run) (*string, error) {
	messages, err := s.conversation(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if result, found := s.toolResult(messages); found {
		return &result, nil
	}
	return nil, nil
}
