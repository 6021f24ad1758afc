package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/api"
	"turnpike/internal/app"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/gateway"
	"turnpike/internal/modelroutes"
)

// keyControls are the flags for what a key may use and who hears about it.
type keyControls struct {
	cmd             *cobra.Command
	models          []string
	providers       []string
	limits          string
	raise           string
	raiseFor        time.Duration
	alertThresholds []string
	alertEmail      string
	contentDays     string
	contentOptOut   bool
	tools           []string
	externalID      string
	metadata        []string
	gateway         *gateway.Gateway // knows the models; nil if no flag names one
}

func addKeyControls(cmd *cobra.Command) *keyControls {
	k := &keyControls{cmd: cmd}
	f := cmd.Flags()
	f.StringSliceVar(&k.models, "allowed-models", nil, "models that the key may use: names, claude-* or route/NAME; empty for all")
	f.StringSliceVar(&k.providers, "allowed-providers", nil, "providers that may serve it; empty for all")
	f.StringSliceVar(&k.tools, "allowed-tools", nil, "tools of MCP servers that the key may call, as in docs__search; empty for all")
	f.StringVar(&k.externalID, "external-id", "", "ID of the key in another system; empty for none")
	f.StringSliceVar(&k.metadata, "metadata", nil, "metadata as NAME=VALUE pairs, which replace all; empty for none")
	f.StringVar(&k.limits, "limits", "", "limits as a JSON array as in the API, or @FILE; [] removes them")
	f.StringVar(&k.raise, "temporary-raise", "", "budget in credits instead of the monthly one for a while; 0 ends it")
	f.DurationVar(&k.raiseFor, "raise-for", 0, "how long the temporary raise lasts, such as 48h")
	f.StringSliceVar(&k.alertThresholds, "alert-thresholds", nil, "percentages of the budget that alert people; empty for the workspace's")
	f.StringVar(&k.alertEmail, "alert-email", "", "address that also gets the alerts; empty for none")
	f.StringVar(&k.contentDays, "content-log-days", "", "days to keep the content of requests, up to 90; 0 for never, empty for the project's")
	f.BoolVar(&k.contentOptOut, "content-log-opt-out", false, "let requests keep their content out of the log with the header Service-Content-Log: off")
	return k
}

// load reads the models and providers if a flag names some.
func (c *keyControls) load(ctx context.Context, e *env, s *app.Store) (err error) {
	changed := c.cmd.Flags().Changed
	if changed("limits") || changed("allowed-models") || changed("allowed-providers") {
		c.gateway, err = app.LoadGateway(ctx, s, e.loaded.Config)
	}
	return err
}

// apply sets the fields whose flags were given, after load. Models and providers must exist, and routes for the
// key's project.
func (c *keyControls) apply(ctx context.Context, tx *db.Tx, e *env, k *access.Key) error {
	changed := c.cmd.Flags().Changed
	var named catalog.Allowed
	if changed("allowed-models") {
		k.Allowed.Models = emptyIsNil(c.models)
		named.Models = k.Allowed.Models
	}
	if changed("allowed-providers") {
		k.Allowed.Providers = emptyIsNil(c.providers)
		named.Providers = k.Allowed.Providers
	}
	limitsBefore := k.Limits
	if changed("limits") {
		text, err := e.readAnswer(c.limits)
		if err != nil {
			return err
		}
		var limits []accounts.Limit
		if err := json.Unmarshal([]byte(text), &limits); err != nil {
			return fmt.Errorf(`--limits: not a JSON array such as [{"budget": 100, "window": "day"}]: %w`, err)
		}
		k.Limits = limits
	}
	if err := c.applyRaise(k); err != nil {
		return err
	}
	if changed("alert-thresholds") {
		thresholds, err := parseThresholds("alert-thresholds", c.alertThresholds)
		if err != nil {
			return err
		}
		k.AlertThresholds = thresholds
	}
	if changed("allowed-tools") {
		k.AllowedTools = emptyIsNil(c.tools)
	}
	if changed("external-id") {
		k.ExternalID = c.externalID
	}
	if changed("metadata") {
		k.Metadata = map[string]string{}
		for _, pair := range c.metadata {
			name, value, found := strings.Cut(pair, "=")
			if !found {
				return fmt.Errorf("--metadata: %q is not a NAME=VALUE pair", pair)
			}
			k.Metadata[name] = value
		}
	}
	if changed("alert-email") {
		k.AlertEmail = c.alertEmail
	}
	if changed("content-log-days") {
		k.ContentDays = nil
		if c.contentDays != "" {
			days, err := strconv.ParseInt(c.contentDays, 10, 64)
			if err != nil {
				return fmt.Errorf("--content-log-days: %q is not a whole number", c.contentDays)
			}
			k.ContentDays = &days
		}
	}
	if changed("content-log-opt-out") {
		k.ContentOptOut = c.contentOptOut
	}
	if c.gateway == nil {
		return nil
	}
	if err := cmp.Or(named.Check(), c.gateway.CheckAllowed(named, func() ([]string, error) { return modelroutes.Names(ctx, tx, k.Tenant, k.Project) })); err != nil {
		return err
	}
	return c.gateway.CheckLimits(limitsBefore, k.Limits)
}

// parseThresholds reads percentages. None means those of the level above.
func parseThresholds(flag string, texts []string) (list accounts.AlertThresholds, err error) {
	for _, text := range texts {
		percent, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("--%s: %q is not a whole number", flag, text)
		}
		list = append(list, percent)
	}
	return list, nil
}

func emptyIsNil(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
}

func (c *keyControls) applyRaise(k *access.Key) error {
	changed := c.cmd.Flags().Changed
	switch {
	case !changed("temporary-raise") && !changed("raise-for"):
		return nil
	case c.raise == "0" && !changed("raise-for"):
		k.Raise = nil
		return nil
	case c.raise == "" || c.raiseFor <= 0:
		return wrongUsage(c.cmd, errors.New("pass --temporary-raise CREDITS together with --raise-for DURATION"))
	}
	budget, err := credits.Parse(c.raise)
	if err != nil {
		return fmt.Errorf("--temporary-raise: %w", err)
	}
	k.Raise = &accounts.Raise{Budget: budget, Until: time.Now().Add(c.raiseFor)}
	return nil
}

func (e *env) keysUpdate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "update KEY_ID",
		Short: "Change the name, budget and limits of a key",
		Long:  "Changes what is given, and keeps the rest. Running servers apply it immediately.",
		Example: `  turnpike keys update key_01h455vb4pex5vsknk084sn02q --allowed-models 'claude-*,route/fast'
  turnpike keys update key_01h455vb4pex5vsknk084sn02q --limits '[{"models": ["gpt-*"], "budget": 100, "window": "day"}]'
  turnpike keys update key_01h455vb4pex5vsknk084sn02q --temporary-raise 2000 --raise-for 48h`,
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	name := f.String("name", "", "name of the key")
	scopes := f.StringSlice("scopes", nil, "scopes, comma-separated")
	budget := f.String("budget", "", "monthly budget in credits; empty for none")
	rate := f.Int64("rate-limit", 0, "requests per minute; 0 for the server's")
	controls := addKeyControls(cmd)
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, args []string) error {
		if err := controls.load(ctx, e, s); err != nil {
			return err
		}
		keys := access.NewKeys(s.Ring, time.Now)
		var after *access.Key
		err := s.DB.Write(ctx, func(tx *db.Tx) (err error) {
			after, err = keys.Change(ctx, tx, args[0], access.Change[access.Key]{By: operator, Apply: func(k *access.Key) (err error) {
				if f.Changed("name") {
					k.Name = *name
				}
				if f.Changed("scopes") {
					k.Scopes = *scopes
				}
				if f.Changed("budget") {
					if k.MonthlyBudget, err = parseBudget(*budget); err != nil {
						return err
					}
				}
				if f.Changed("rate-limit") {
					k.RateLimit = nil
					if *rate != 0 {
						k.RateLimit = rate
					}
				}
				return controls.apply(ctx, tx, e, k)
			}})
			return err
		})
		if err != nil {
			return err
		}
		shown, err := api.KeyObjects(ctx, s.DB, time.Now(), after)
		if err != nil {
			return err
		}
		return e.report(shown[0], "Changed %s (%s).\n", after.ID, after.Hint())
	})
}

// parseBudget reads a number of credits. Empty is none.
func parseBudget(text string) (*credits.Micro, error) {
	if text == "" {
		return nil, nil
	}
	amount, err := credits.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("--budget: %w", err)
	}
	return &amount, nil
}
