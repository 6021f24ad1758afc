package dashboard_test

import (
	"net/url"
	"testing"

	"turnpike/internal/accounts"
)

func TestFormerMembersAreStillNamed(t *testing.T) {
	t.Parallel()
	withRunTest(t, func(t *testing.T, o *runTest) {
		leaver := member(t, o.s, o.workspace, accounts.Developer)
		key, _ := leaver.createKey(t, accounts.Test, url.Values{"name": {"theirs"}, "preset": {"calls"}})
		run := o.begin(t, `tool:pay{};text:Done.`, "awaiting_approval")
		path, hash := asked(t, leaver, run)
		leaver.post(t, path, url.Values{"decision": {"deny"}, "arguments_hash": {hash}}).redirectsTo(t, o.in(accounts.Test, "runs/"+run))
		o.exec(t, "DELETE FROM members WHERE user_id = $1", leaver.person.ID)

		o.get(t, key).shows(t, " by The developer")
		o.get(t, o.in(accounts.Test, "runs/"+run)).shows(t, "Denied by The developer")
		o.get(t, o.in(accounts.Test, "log"+query("actor:"+leaver.person.ID))).shows(t, "The developer", "key.created")
	})
}
