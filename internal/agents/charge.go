package agents

import (
	"context"
	"errors"
	"net/http"

	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/ids"
)

// toolProvider is the provider of priced tool calls in the log, as at the MCP endpoint.
const toolProvider = "mcp"

// price returns what a call costs that is made now. A call that is repeated after a crash is charged once.
func (r *Run) price(c *Call) credits.Micro {
	t, found := toolOf(r, c.Tool)
	if !found {
		return 0
	}
	server, registered := r.servers[t.Spec]
	if !registered || server.Server == nil {
		return 0
	}
	return max(0, server.Price(t.Remote)-c.Credits)
}

// assignCharges gives the calls with a price the ID of their log entry, and their share of the run's budget.
// The checkpoint stores the ID: if this node dies, another one looks up the cost in the log.
func assignCharges(r *Run, list []*admittedCall) {
	spent := r.Credits
	for _, c := range list {
		if c.price = r.price(c.Call); c.price == 0 {
			continue
		}
		c.RequestID = ids.New(ids.Request)
		if r.Budget == nil {
			continue
		}
		c.allowance = &gateway.Allowance{Limit: *r.Budget, Spent: spent}
		if c.price <= *r.Budget-spent {
			spent += c.price // the calls of a step are made concurrently
		}
	}
}

// charged makes a call that has a price: within the budgets and in the request log. It returns an error without
// an output if the call was not made.
func (s *Service) charged(ctx context.Context, x execution, c *admittedCall, call func() (tools.Output, error)) (tools.Output, error) {
	r, start := x.run, s.Now()
	t, _ := toolOf(r, c.Tool)
	server := r.servers[t.Spec]
	record := s.Log.Open(audit.Entry{RequestID: c.RequestID, Tenant: r.Tenant, KeyID: server.principal.KeyID, KeyHint: server.principal.KeyHint, IP: r.Config.IP, Method: http.MethodPost,
		Path: "/v1/agents/runs/" + r.ID, Project: r.Project, UserAgent: "Turnpike agent run", Model: tools.ListedName(server.Label, t.Remote), Provider: toolProvider, CreatedAt: start})
	settle := func(err error, cost credits.Micro) {
		if _, ok := fault.As(err); !ok && err != nil {
			err = fault.New(fault.Upstream, "The tool failed.")
		}
		record.Settle(func(e *audit.Entry) {
			e.End(err, s.Now().Sub(start))
			if r.Environment == accounts.Test {
				e.SimulatedCredits = cost
			} else {
				e.Credits = cost
			}
		})
	}
	err := s.reserveTool(ctx, gateway.Call{Principal: server.principal, Project: r.Project, Record: record, Header: http.Header{}, Allowance: c.allowance}, c.price)
	if err != nil {
		settle(err, 0)
		return tools.Output{}, err
	}
	// The tool may have an effect, so the call is in the log first.
	if err := record.Durable(recordTimeout); err != nil {
		settle(fault.New(fault.StorageUnavailable, "The request log can't be written.").Because(err), 0)
		c.Status, c.StartedAt, c.RequestID = callReady, nil, "" // it was not made, so the next turn makes it
		return tools.Output{}, errUnlogged
	}
	out, err := call()
	failure, failed := errors.AsType[*tools.Failure](err)
	cost := c.price
	if failed && !failure.Unknown || err == nil && out.IsError { // it had no effect
		cost = 0
	}
	settle(err, cost)
	return out, errors.Join(err, s.awaitSettled(ctx, c, record))
}

// awaitSettled waits until the charge is in the log, and notes it. A node that stops leaves it to the next turn.
func (s *Service) awaitSettled(ctx context.Context, c *admittedCall, record *audit.Record) error {
	for record.Settled(recordTimeout) != nil {
		if ctx.Err() != nil || !record.Writing() {
			s.trackUnlogged(c.RequestID, record)
			return errUnlogged
		}
	}
	c.charge = usageOf(record.Entry()).Credits
	return nil
}

// finishCharge adds the cost of a finished call to the call, and returns it for the run.
func (c *admittedCall) finishCharge() credits.Micro {
	c.Credits += c.charge
	c.RequestID = ""
	return c.charge
}

// recoverCharges charges the calls that a node left in the state started. Until their cost is in the log, the run
// waits.
func (s *Service) recoverCharges(ctx context.Context, o *outcome, calls []*Call) (wait bool, err error) {
	for _, c := range calls {
		if c.Status != callStarted || c.RequestID == "" {
			continue
		}
		u, wait, err := s.chargeFromLog(ctx, o, c.RequestID)
		if err != nil || wait {
			return wait, err
		}
		c.Credits += u.Credits
		c.RequestID = ""
	}
	return false, nil
}
