package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"turnpike/internal/app"
	"turnpike/internal/config"
	"turnpike/internal/keyring"
)

// newMasterKey has the master key that is to replace the one in the settings. No
// flag does: others on the machine can read those.
const newMasterKey = "TURNPIKE_NEW_MASTER_KEY"

func newRekey(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rekey",
		Short: "Change the master key",
		Long: `Changes the master key. API keys, webhook secrets, second factors and links to files
stay as they are. Servers that run go on; they need the new key at their next
start.

Without master_key in the settings a new one is made in the data folder. With it,
the new one is taken from TURNPIKE_NEW_MASTER_KEY, or from the file that
TURNPIKE_NEW_MASTER_KEY_FILE names. If this is interrupted, run it again with the
same value: the database may have it already.

Backups that were made before need the old key: keep it for as long as them.`,
		Example: `  turnpike rekey --data /var/lib/turnpike

  export TURNPIKE_NEW_MASTER_KEY=$(openssl rand -base64 32)
  turnpike rekey`,
	}
	e.jsonFlag(cmd)
	e.configured(cmd)
	hideServing(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := e.load(cmd); err != nil {
			return err
		}
		if err := needDatabase(e.loaded.Config); err != nil {
			return err
		}
		next, err := e.nextMasterKey()
		if err != nil {
			return usageError{cmd.CommandPath(), err}
		}
		done, err := app.ChangeMasterKey(cmd.Context(), e.loaded.Config, next)
		if err != nil {
			return err
		}
		return e.printRekeyed(done)
	}
	return cmd
}

// nextMasterKey is the new key for a server that has it in its settings, and nil
// for one that has it in its data folder.
func (e *env) nextMasterKey() ([]byte, error) {
	text, err := config.EnvSecret(newMasterKey)
	if err != nil {
		return nil, fmt.Errorf("the new master key %w", err)
	}
	switch {
	case e.loaded.MasterKey == "" && e.loaded.DatabaseURL != "":
		return nil, errors.New("the master key is missing: set TURNPIKE_MASTER_KEY to the one that the nodes have")
	case e.loaded.MasterKey == "" && text != "":
		return nil, fmt.Errorf("%s is for a master key that is in the settings; the one in %s is replaced by one that is made there, so leave it out", newMasterKey, e.loaded.Data)
	case e.loaded.MasterKey == "":
		return nil, nil
	case text == "":
		return nil, fmt.Errorf("the master key comes from the settings (%s); make a new one, keep it, and run this again: export %s=$(openssl rand -base64 32)", e.loaded.Origin["master_key"], newMasterKey)
	}
	next, err := keyring.ParseMaster(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", newMasterKey, err)
	}
	return next, nil
}

func (e *env) printRekeyed(done *app.Rekeyed) error {
	if e.asJSON {
		return e.printJSON(map[string]any{"file": done.File, "already": done.Already, "old_key_still_reads": done.WasRoot})
	}
	switch {
	case done.File != "":
		fmt.Fprintf(e.out, "The database has a new master key, which is in %s. Keep a copy of it apart from the database.\n", done.File)
	case done.Already:
		fmt.Fprintf(e.out, "The database has the new master key already. Give every node the value of %s as its master key.\n", newMasterKey)
	default:
		fmt.Fprintf(e.out, "The database has the new master key. Give every node the value of %s as its master key before it starts again.\n", newMasterKey)
	}
	fmt.Fprintln(e.out, "Backups from before need the old one.")
	if done.WasRoot {
		fmt.Fprintln(e.out, "\nAn earlier version made this database, with keys that come from the old master key: whoever has that, and a copy of the\ndatabase, can still read it. If it has leaked, docs/security.md says what to make anew.")
	}
	return nil
}
