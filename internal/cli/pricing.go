package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/api"
	"turnpike/internal/app"
	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/catalog/table"
	"turnpike/internal/operators"
)

func newPricing(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: "pricing", Short: "Show the prices' version and set the markup", RunE: unknownCommand,
		Long: `Manages the markup on list prices. Running servers apply a change within a second.
If the configuration sets markup_percent, it can only be changed there.`}
	cmd.AddCommand(e.pricingShow(), e.pricingSet(), e.pricingReset())
	return cmd
}

func (e *env) pricingShow() *cobra.Command {
	cmd := &cobra.Command{Use: "show", Short: "Show the markup, the price version and the model table", Args: cobra.NoArgs}
	return e.withDefinitions(cmd, func(ctx context.Context, m *app.Definitions, _ []string) error {
		p, err := m.Prices(ctx)
		if err != nil {
			return err
		}
		return e.printPrices(p)
	})
}

func (e *env) printPrices(p *operators.Prices) error {
	return e.report(api.PricesObject(p), "Markup: %s%% (%s)\nPrice version: %s\nModel table: %s (%s)\n",
		p.MarkupPercent, p.Source, p.Version, p.TableAsOf.Format(time.DateOnly), p.TableSource)
}

func (e *env) pricingSet() *cobra.Command {
	cmd := &cobra.Command{Use: "set PERCENT", Short: "Set the markup on all list prices", Args: cobra.ExactArgs(1),
		Example: "  turnpike pricing set 12.5"}
	return e.withDefinitions(cmd, func(ctx context.Context, m *app.Definitions, args []string) error {
		return e.setMarkup(ctx, m, args[0])
	})
}

func (e *env) pricingReset() *cobra.Command {
	cmd := &cobra.Command{Use: "reset", Short: "Remove the markup from the database", Args: cobra.NoArgs}
	return e.withDefinitions(cmd, func(ctx context.Context, m *app.Definitions, _ []string) error {
		return e.setMarkup(ctx, m, nil)
	})
}

// setMarkup stores a markup. Nil removes it.
func (e *env) setMarkup(ctx context.Context, m *app.Definitions, percent any) error {
	document, err := json.Marshal(map[string]any{"markup_percent": percent})
	if err != nil {
		return err
	}
	p, err := m.SetPrices(ctx, audit.Operator, document)
	if err != nil {
		return err
	}
	return e.printPrices(p)
}

func newCatalog(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: "catalog", Short: "Update the table of models and list prices", RunE: unknownCommand}
	cmd.AddCommand(e.catalogUpdate(), e.catalogReset())
	return cmd
}

func (e *env) catalogUpdate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "update --from FILE|URL",
		Short: "Replace the model table with a newer, signed one",
		Long: `Verifies the minisign signature of a model table with catalog_public_key, shows which
prices change, and asks for confirmation. Running servers use the table within a
second. Requests in progress keep their price.

If the signature is wrong, or the table is malformed or not newer than the current
one, nothing changes.`,
		Example: `  turnpike catalog update --from https://example.com/models.json
  turnpike catalog update --from models.json --signature models.json.minisig --yes`,
		Args: cobra.NoArgs,
	}
	from := cmd.Flags().String("from", "", "file or HTTPS address of the table (required)")
	signature := cmd.Flags().String("signature", "", "file or HTTPS address of the signature (default: that of the table with .minisig)")
	yes := cmd.Flags().Bool("yes", false, "don't ask for confirmation")
	return e.withDefinitions(cmd, func(ctx context.Context, m *app.Definitions, _ []string) error {
		if *from == "" {
			return wrongUsage(cmd, errors.New("missing table: pass --from FILE or --from URL"))
		}
		if *signature == "" {
			*signature = *from + ".minisig"
		}
		content, err := readTable(ctx, *from)
		if err != nil {
			return err
		}
		sum, err := readTable(ctx, *signature)
		if err != nil {
			return fmt.Errorf("signature: %w", err)
		}
		u, err := m.CheckTable(ctx, content, sum)
		if err != nil {
			return err
		}
		out := e.out
		if e.asJSON {
			out = e.err
		}
		printTableChanges(out, u)
		if !*yes && !isTerminal(e.in) {
			return errors.New("nothing was changed; to apply this table, pass --yes")
		}
		if !*yes && !e.confirmed(ctx, "Apply this table? [y/N] ") {
			return errors.New("nothing was changed")
		}
		if err := m.ApplyTable(ctx, audit.Operator, u); err != nil {
			return err
		}
		return e.report(map[string]any{"object": "catalog.update", "from": u.From.Format(time.DateOnly), "to": u.To.Format(time.DateOnly), "changes": u.Changes},
			"Applied the table of %s.\n", u.To.Format(time.DateOnly))
	})
}

// maxTable is many times the size of the built-in table.
const maxTable = 16 << 20

// tableTimeout is how long a server may take to send a table.
const tableTimeout = 30 * time.Second

// readTable reads a file, or an address with HTTPS.
func readTable(ctx context.Context, from string) ([]byte, error) {
	var source io.ReadCloser
	switch {
	case strings.HasPrefix(from, "https://"):
		ctx, cancel := context.WithTimeout(ctx, tableTimeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
		if err != nil {
			return nil, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode != http.StatusOK {
			resp.Body.Close()
			return nil, fmt.Errorf("%s returned %s", from, resp.Status)
		}
		source = resp.Body
	case strings.Contains(from, "://"):
		return nil, fmt.Errorf("%s is neither a file nor an address with https://", from)
	default:
		f, err := os.Open(from)
		if err != nil {
			return nil, err
		}
		source = f
	}
	defer source.Close()
	data, err := io.ReadAll(io.LimitReader(source, maxTable+1))
	if err == nil && len(data) > maxTable {
		err = fmt.Errorf("%s is larger than 16 MiB", from)
	}
	return data, err
}

// printTableChanges prints a line for each model with another price.
func printTableChanges(w io.Writer, u *app.TableUpdate) {
	fmt.Fprintf(w, "Table of %s, in place of the one of %s. List prices in US dollars:\n", u.To.Format(time.DateOnly), u.From.Format(time.DateOnly))
	others := int64(0)
	for _, c := range u.Changes {
		if c.SamePrice() {
			others++
			continue
		}
		sign := "~"
		if c.Before == nil {
			sign = "+"
		} else if c.After == nil {
			sign = "-"
		}
		fmt.Fprintf(w, "  %s %s/%s %s\n", sign, c.Provider, c.Model, describeChange(c))
	}
	if others > 0 {
		fmt.Fprintf(w, "  %s with the same price and other properties\n", counted(others, "model", "models"))
	}
	if len(u.Changes) == 0 {
		fmt.Fprintln(w, "  no changes")
	}
}

// describeChange returns the prices of a model that differ, such as: input 3 → 2, output 15.
func describeChange(c catalog.Change) string {
	before, after := prices(c.Before), prices(c.After)
	var text bytes.Buffer
	for i, field := range after {
		was, is := before[i].usd, field.usd
		switch {
		case was == is:
			continue
		case text.Len() > 0:
			text.WriteString(", ")
		}
		switch {
		case c.Before == nil:
			fmt.Fprintf(&text, "%s %s", field.name, is)
		case c.After == nil:
			fmt.Fprintf(&text, "%s %s", field.name, was)
		default:
			fmt.Fprintf(&text, "%s %s → %s", field.name, orUnknown(was), orUnknown(is))
		}
	}
	return text.String()
}

func orUnknown(usd string) string {
	if usd == "" {
		return "unknown"
	}
	return usd
}

type listedPrice struct{ name, usd string }

// prices returns all prices of a model, in the same order for each.
func prices(usd *table.USD) []listedPrice {
	if usd == nil {
		usd = &table.USD{}
	}
	return []listedPrice{{"input", usd.Input}, {"output", usd.Output}, {"cached input", usd.CachedInput}, {"cache write", usd.CacheWrite},
		{"per image", usd.PerImage}, {"per second", usd.PerSecond}, {"per character", usd.PerCharacter}, {"per search", usd.PerSearch}}
}

func (e *env) catalogReset() *cobra.Command {
	cmd := &cobra.Command{Use: "reset", Short: "Go back to the built-in model table", Args: cobra.NoArgs}
	return e.withDefinitions(cmd, func(ctx context.Context, m *app.Definitions, _ []string) error {
		if err := m.ResetTable(ctx, audit.Operator); err != nil {
			return err
		}
		p, err := m.Prices(ctx)
		if err != nil {
			return err
		}
		return e.printPrices(p)
	})
}
