package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/accounts"
	"turnpike/internal/app"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/nodes"
	"turnpike/internal/webhooks"
)

const (
	// triggerBatch is the number of events per transaction, so that a server on the
	// embedded database isn't blocked for long.
	triggerBatch = 100
	maxTriggered = 100_000
)

type triggerFlags struct {
	workspace   *string
	environment string
	project     string
	count       int
	list        bool
}

func newTrigger(e *env) *cobra.Command {
	var t triggerFlags
	cmd := &cobra.Command{
		Use:   "trigger EVENT",
		Short: "Publish a sample event to test your endpoints",
		Long: `Publishes a sample event with invented content, marked with "sample":true. Every
endpoint of the workspace and environment that subscribes to the event receives
it, signed and retried like any other. Samples never pause an endpoint.

The command works on the database, whether or not a server runs. A server sends
the event.`,
		Example: `  turnpike trigger --list
  turnpike trigger image.batch.completed
  turnpike trigger agent.run.failed --env live --workspace acme --project shop
  turnpike trigger key.auto_revoked --count 500`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: eventNames(),
	}
	f := cmd.Flags()
	t.workspace = workspaceFlag(cmd)
	f.StringVar(&t.environment, "env", string(accounts.Test), "environment of the endpoints: live or test")
	f.StringVar(&t.project, "project", "", "project of the event (default: none)")
	f.IntVar(&t.count, "count", 1, "number of events to publish")
	f.BoolVar(&t.list, "list", false, "print the event types and publish nothing")
	e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, args []string) error { return e.trigger(ctx, s, args[0], t) })
	publish := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case t.list && e.asJSON:
			return e.printJSON(eventNames())
		case t.list:
			fmt.Fprintln(e.out, strings.Join(eventNames(), "\n"))
			return nil
		}
		if err := t.check(args); err != nil {
			return wrongUsage(cmd, errors.New(message(err)))
		}
		return publish(cmd, args)
	}
	return cmd
}

func eventNames() []string { return words(events.Types) }

func (t *triggerFlags) check(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("missing event type; allowed types: %s", strings.Join(eventNames(), ", "))
	}
	if _, err := events.ParseType("event", args[0]); err != nil {
		return err
	}
	if t.count < 1 || t.count > maxTriggered {
		return fmt.Errorf("--count must be from 1 to %d", maxTriggered)
	}
	_, err := accounts.ParseEnvironment(t.environment)
	return err
}

type subscribedEndpoint struct {
	ID     string          `json:"id"`
	Kind   webhooks.Kind   `json:"kind"`
	URL    *string         `json:"url"`
	Status webhooks.Status `json:"status"`
}

func (e *env) trigger(ctx context.Context, s *app.Store, name string, t triggerFlags) error {
	w, err := accounts.FindWorkspace(ctx, s.DB, *t.workspace)
	if err != nil {
		return err
	}
	published := make([]json.RawMessage, 0, t.count)
	var endpoints []subscribedEndpoint
	for len(published) < t.count {
		list, subscribed, err := t.publish(ctx, s.DB, w.ID, events.Type(name), min(triggerBatch, t.count-len(published)))
		if err != nil {
			return err
		}
		for _, event := range list {
			published = append(published, event.Body)
			if !e.asJSON {
				fmt.Fprintln(e.out, event.ID) // now: it is published even if the next batch fails
			}
		}
		endpoints = subscribed
	}
	if e.asJSON {
		return e.printJSON(map[string]any{"events": published, "endpoints": endpoints})
	}
	return e.printSubscribers(ctx, s.DB, endpoints, fmt.Sprintf("%s in %s (%s)", name, w.Name, t.environment))
}

// publish stores n events and an entry of the admin log in one transaction. It
// returns the endpoints that subscribe to them.
func (t *triggerFlags) publish(ctx context.Context, d *db.DB, workspaceID string, typ events.Type, n int) (list []*events.Event, subscribed []subscribedEndpoint, err error) {
	publisher := events.NewPublisher(time.Now)
	from := events.Origin{Tenant: accounts.Tenant{WorkspaceID: workspaceID, Environment: accounts.Environment(t.environment)}, Project: t.project}
	err = d.Write(ctx, func(tx *db.Tx) error {
		list, subscribed = nil, []subscribedEndpoint{} // the transaction may be retried
		if t.project != "" {
			p := &accounts.Project{Tenant: from.Tenant, ID: t.project}
			if _, err := accounts.EnsureProject(ctx, tx, accounts.ProjectUse{By: audit.Operator, Project: p, Param: "project"}, time.Now()); err != nil {
				return err
			}
		}
		for range n {
			event, err := publisher.PublishSample(ctx, tx, from, typ)
			if err != nil {
				return err
			}
			list = append(list, event)
		}
		endpoints, err := webhooks.Subscribers(ctx, tx, from, typ)
		if err != nil {
			return err
		}
		for _, e := range endpoints {
			o := subscribedEndpoint{ID: e.ID, Kind: e.Kind, Status: e.Status}
			if e.URL != "" {
				o.URL = &e.URL
			}
			subscribed = append(subscribed, o)
		}
		return audit.Operator.Log(ctx, tx, audit.Action{Tenant: from.Tenant, Project: t.project,
			Action: "event.triggered", Target: list[0].ID}, map[string]any{"type": typ, "count": n, "project": t.project}, time.Now())
	})
	return list, subscribed, err
}

func (e *env) printSubscribers(ctx context.Context, d *db.DB, endpoints []subscribedEndpoint, what string) error {
	if len(endpoints) == 0 {
		fmt.Fprintf(e.err, `Published %s, but no endpoint subscribes to it. Create one with
POST /v1/webhooks, or receive it here with: turnpike listen --forward-to localhost:3000/hooks
`, what)
		return nil
	}
	var held int64
	for _, endpoint := range endpoints {
		if endpoint.Status != webhooks.Active {
			held++
		}
	}
	fmt.Fprintf(e.err, "Published %s to %s.\n", what, counted(int64(len(endpoints)), "endpoint", "endpoints"))
	if held > 0 {
		fmt.Fprintf(e.err, "%s paused or disconnected; the event is held until then.\n", counted(held, "endpoint is", "endpoints are"))
	}
	running, err := nodes.Count(ctx, d, d.Now())
	if err == nil && running == 0 {
		fmt.Fprintln(e.err, "No server is running. To send the event, start one: turnpike serve")
	}
	return err
}
