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
	// triggerBatch bounds the events of one transaction, so that the server
	// gets its turn at the embedded database.
	triggerBatch = 100
	maxTriggered = 100_000
)

// trigger is what to publish, how often and to whom.
type trigger struct {
	workspace   string
	environment string
	project     string
	count       int
	list        bool
}

func newTrigger(e *env) *cobra.Command {
	var t trigger
	cmd := &cobra.Command{
		Use:   "trigger EVENT",
		Short: "Publish a sample event, to try out what receives it",
		Long: `Publishes a sample event: real in its form, made up in its content and marked
with "sample":true. Every endpoint in the workspace and environment that wants
the event gets it, signed and retried like any other. Samples never pause an
endpoint.

It works on the database, server running or not; a server sends the event.`,
		Example: `  turnpike trigger --list
  turnpike trigger image.batch.completed
  turnpike trigger agent.run.failed --env live --workspace acme --project shop
  turnpike trigger key.auto_revoked --count 500`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: eventNames(),
	}
	f := cmd.Flags()
	f.StringVar(&t.workspace, "workspace", "", "workspace, by id or name (default: the only one)")
	f.StringVar(&t.environment, "env", string(accounts.Test), "environment whose endpoints get it: live or test")
	f.StringVar(&t.project, "project", "", "project that the event belongs to (default: none)")
	f.IntVar(&t.count, "count", 1, "publish it this many times, each as an event of its own")
	f.BoolVar(&t.list, "list", false, "print the names of all events and publish none")
	e.operator(cmd, func(ctx context.Context, s *app.Store, args []string) error { return e.trigger(ctx, s, args[0], t) })
	publish := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if t.list {
			return e.printEventNames()
		}
		// Before the database is opened, which may make one.
		if err := t.check(args); err != nil {
			return usageError{cmd.CommandPath(), errors.New(message(err))}
		}
		return publish(cmd, args)
	}
	return cmd
}

func eventNames() []string {
	names := make([]string, len(events.Types))
	for i, t := range events.Types {
		names[i] = string(t)
	}
	return names
}

func (e *env) printEventNames() error {
	if e.asJSON {
		return e.printJSON(eventNames())
	}
	fmt.Fprintln(e.out, strings.Join(eventNames(), "\n"))
	return nil
}

func (t *trigger) check(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("say which event; there are: %s", strings.Join(eventNames(), ", "))
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

// triggered is what was published.
type triggered struct {
	Events    []json.RawMessage    `json:"events"`
	Endpoints []subscribedEndpoint `json:"endpoints"`
}

// subscribedEndpoint is one that gets the event.
type subscribedEndpoint struct {
	ID     string  `json:"id"`
	Kind   string  `json:"kind"`
	URL    *string `json:"url"`
	Status string  `json:"status"`
}

func (e *env) trigger(ctx context.Context, s *app.Store, name string, t trigger) error {
	w, err := accounts.FindWorkspace(ctx, s.DB, t.workspace)
	if err != nil {
		return err
	}
	out := triggered{Events: make([]json.RawMessage, 0, t.count)}
	for len(out.Events) < t.count {
		list, endpoints, err := t.publish(ctx, s.DB, w.ID, events.Type(name), min(triggerBatch, t.count-len(out.Events)))
		if err != nil {
			return err
		}
		for _, event := range list {
			out.Events = append(out.Events, event.Body)
			if !e.asJSON {
				fmt.Fprintln(e.out, event.ID) // at once: it is published, whatever comes after
			}
		}
		out.Endpoints = endpoints
	}
	if e.asJSON {
		return e.printJSON(out)
	}
	return e.sayWhoGets(ctx, s.DB, out.Endpoints, fmt.Sprintf("%s in %s (%s)", name, w.Name, t.environment))
}

// publish stores n events in one transaction with the operator's act, and
// tells who wants them.
func (t *trigger) publish(ctx context.Context, d *db.DB, workspaceID string, typ events.Type, n int) (list []*events.Event, wanting []subscribedEndpoint, err error) {
	publisher := events.NewPublisher(time.Now)
	from := events.Origin{WorkspaceID: workspaceID, Environment: t.environment, Project: t.project}
	err = d.Write(ctx, func(tx *db.Tx) error {
		list, wanting = nil, []subscribedEndpoint{} // it may be the second try
		if t.project != "" {
			p := &accounts.Project{WorkspaceID: workspaceID, Environment: accounts.Environment(t.environment), ID: t.project}
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
			o := subscribedEndpoint{ID: e.ID, Kind: string(e.Kind), Status: string(e.Status)}
			if e.URL != "" {
				o.URL = &e.URL
			}
			wanting = append(wanting, o)
		}
		return audit.LogAction(ctx, tx, audit.Operator, audit.Action{WorkspaceID: workspaceID, Environment: t.environment, Project: t.project,
			Action: "event.triggered", Target: list[0].ID}, map[string]any{"type": typ, "count": n, "project": t.project}, time.Now())
	})
	return list, wanting, err
}

// sayWhoGets tells what becomes of the events that were published.
func (e *env) sayWhoGets(ctx context.Context, d *db.DB, endpoints []subscribedEndpoint, what string) error {
	if len(endpoints) == 0 {
		fmt.Fprintf(e.err, `Published %s, but no endpoint wants it; make one with
POST /v1/webhooks, or get it here with: turnpike listen --forward-to localhost:3000/hooks
`, what)
		return nil
	}
	holding := 0
	for _, endpoint := range endpoints {
		if endpoint.Status != string(webhooks.Active) {
			holding++
		}
	}
	fmt.Fprintf(e.err, "Published %s: %s.\n", what, counted(int64(len(endpoints)), "endpoint wants it", "endpoints want it"))
	if holding > 0 {
		fmt.Fprintf(e.err, "%s paused or away; it is held there until that changes.\n", counted(int64(holding), "of them is", "of them are"))
	}
	running, err := nodes.Count(ctx, d, d.Now())
	if err == nil && running == 0 {
		fmt.Fprintln(e.err, "No server is running; it is sent when one is: turnpike serve")
	}
	return err
}

// counted is a number with the word for it.
func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + many
}
