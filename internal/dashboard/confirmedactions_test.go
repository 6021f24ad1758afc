package dashboard

import (
	"net/http"
	"testing"
)

func TestConfirmationNamesEveryAction(t *testing.T) {
	t.Parallel()
	named := map[string]bool{}
	for _, rt := range Routes() {
		if !rt.Confirm || rt.Method != http.MethodPost {
			continue
		}
		name := actionPath(rt.Method + " " + rt.Path)
		if named[name] = true; confirmedActions[name] == "" {
			t.Errorf("the confirmation doesn't say what %s does", rt.Path)
		}
	}
	for name := range confirmedActions {
		if !named[name] {
			t.Errorf("no action has the path %s", name)
		}
	}
}
