package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"turnpike/internal/app"
)

func newImport(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: "import", Short: "Import the settings of another gateway", RunE: unknownCommand}
	cmd.AddCommand(e.importLiteLLM())
	return cmd
}

func (e *env) importLiteLLM() *cobra.Command {
	var config, database, workspace, mapFile, providers string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "litellm",
		Short: "Import models, teams, budgets and keys of LiteLLM",
		Long: `Translates the configuration and the database of a LiteLLM proxy.

--litellm-config reads its config.yaml and prints the providers and routes for Turnpike's
configuration file, or writes them to --providers.

--database reads its teams, budgets and keys from a JSON file with the tables
LiteLLM_TeamTable, LiteLLM_BudgetTable and LiteLLM_VerificationToken. Teams become
projects. Keys are created with new values, because LiteLLM stores only hashes. The
file --map lists the old and the new key of each, with mode 0600. Running
the import again doesn't create duplicate keys.

The command reports what it can't translate.`,
		Example: `  turnpike import litellm --litellm-config config.yaml --providers providers.yaml
  turnpike import litellm --database litellm.json --workspace default --map keys.json --dry-run
  turnpike import litellm --database litellm.json --workspace default --map keys.json`,
	}
	f := cmd.Flags()
	f.StringVar(&config, "litellm-config", "", "LiteLLM's config.yaml")
	f.StringVar(&database, "database", "", "the JSON file with LiteLLM's tables")
	f.StringVar(&workspace, "workspace", "default", "the workspace of the projects and keys, which is created if it doesn't exist")
	f.StringVar(&mapFile, "map", "", "the file for the old and new keys, which is created or extended")
	f.StringVar(&providers, "providers", "", "the file for providers and routes (default: standard output)")
	f.BoolVar(&dryRun, "dry-run", false, "print the changes without making them")
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, _ []string) error {
		if config == "" && database == "" {
			return wrongUsage(cmd, errors.New("nothing to import: pass --litellm-config FILE, --database FILE or both"))
		}
		if database != "" && mapFile == "" && !dryRun {
			return wrongUsage(cmd, errors.New("missing file for the new keys: pass --map FILE"))
		}
		if config != "" {
			if err := e.importModels(config, providers); err != nil {
				return err
			}
		}
		if database == "" {
			return nil
		}
		return e.importTeams(ctx, s, database, applyOptions{file: workspace, secrets: mapFile, dryRun: dryRun})
	})
}

// importModels translates LiteLLM's configuration.
func (e *env) importModels(path, to string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	translated, warnings, err := translateLiteLLM(text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	e.warnAll(warnings)
	if to == "" {
		_, err = e.out.Write(translated)
		return err
	}
	return writeSecretFile(to, translated)
}

func (e *env) warnAll(warnings []string) {
	for _, w := range warnings {
		fmt.Fprintf(e.err, "Not imported: %s\n", visible(w))
	}
}

// importTeams creates projects and keys like a file for turnpike apply.
func (e *env) importTeams(ctx context.Context, s *app.Store, path string, o applyOptions) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	tables, err := parseLiteLLMTables(text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	file := &applyFile{name: path, dir: "."}
	a, err := e.newApplier(ctx, s, file, o)
	if err != nil {
		return err
	}
	defer a.close()
	state, warnings, err := tables.translate(o.file, creditPrice(e.loaded.CreditUSD))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := file.parse(state); err != nil {
		return err
	}
	a.oldKeys = tables.oldKeys()
	if err := a.apply(ctx); err != nil {
		return err
	}
	e.warnAll(warnings)
	return a.printChanges()
}
