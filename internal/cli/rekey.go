package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"turnpike/internal/app"
	"turnpike/internal/config"
	"turnpike/internal/keyring"
)

// newMasterKey is the variable with the new master key. It has no flag, because
// other users of the machine could read it.
const newMasterKey = "TURNPIKE_NEW_MASTER_KEY"

func newRekey(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rekey",
		Short: "Change the master key",
		Long: `Changes the master key. API keys, webhook secrets, second factors and links to files
don't change. Running servers continue, and need the new key at their next start.

Without master_key in the settings, the command creates a new key in the data
directory. Otherwise it reads the new key from TURNPIKE_NEW_MASTER_KEY, or from the
file in TURNPIKE_NEW_MASTER_KEY_FILE. If the command is interrupted, run it again
with the same value: the database may have it already.

Older backups need the old key. Keep the old key for as long as you keep those backups.`,
		Example: `  turnpike rekey --data /var/lib/turnpike

  export TURNPIKE_NEW_MASTER_KEY=$(openssl rand -base64 32)
  turnpike rekey`,
	}
	return e.withConfig(cmd, func(cmd *cobra.Command, _ []string) error {
		if err := requireDatabase(e.loaded.Config); err != nil {
			return err
		}
		next, err := e.nextMasterKey()
		if err != nil {
			return wrongUsage(cmd, err)
		}
		done, err := app.ChangeMasterKey(cmd.Context(), e.loaded.Config, next)
		if err != nil {
			return err
		}
		return e.printRekeyed(done)
	})
}

// nextMasterKey returns the new key, or nil if the key is in the data directory.
func (e *env) nextMasterKey() ([]byte, error) {
	text, err := config.EnvSecret(newMasterKey)
	if err != nil {
		return nil, fmt.Errorf("the new master key %w", err)
	}
	switch {
	case e.loaded.MasterKey == "" && e.loaded.DatabaseURL != "":
		return nil, errors.New("the master key is missing: set TURNPIKE_MASTER_KEY to the current key of the nodes")
	case e.loaded.MasterKey == "" && text != "":
		return nil, fmt.Errorf("%s is only for a master key in the settings; unset it, and the command creates a key in %s", newMasterKey, e.loaded.Data)
	case e.loaded.MasterKey == "":
		return nil, nil
	case text == "":
		return nil, fmt.Errorf("the master key comes from the settings (%s); create a new one, store it, and run the command again: export %s=$(openssl rand -base64 32)", e.loaded.Origin["master_key"], newMasterKey)
	}
	next, err := keyring.ParseMaster(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", newMasterKey, err)
	}
	return next, nil
}

func (e *env) printRekeyed(done *app.Rekeyed) error {
	text := fmt.Sprintf("Changed the master key. Set the master key of every node to the value of %s before its next start.", newMasterKey)
	switch {
	case done.File != "":
		text = fmt.Sprintf("Changed the master key. The new one is in %s. Keep a copy of it, separate from the database.", done.File)
	case done.Already:
		text = fmt.Sprintf("The database already has the new master key. Set the master key of every node to the value of %s.", newMasterKey)
	}
	return e.report(map[string]any{"file": done.File, "already": done.Already}, "%s\nOlder backups need the old key.\n", text)
}
