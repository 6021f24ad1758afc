package dashboard_test

import (
	"net/http"
	"net/url"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

func TestFederationRulesAreManagedByForms(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		_, key := s.Key(t, w, accounts.Test)
		list := b.in(accounts.Test, "federation")
		form := url.Values{"name": {"ci"}, "issuer": {"https://issuer.example.com"}, "audience": {"turnpike"}, "subject": {"repo:acme/app"}, "key_id": {key}, "scopes": {"models:read"},
			"allowed_models": {"gpt-4o, claude-*"}, "grants": {"ref=main -> chat.completions:create model:gpt-4o-mini budget:50/day rpm:60 300s"}}
		for field, bad := range map[string]string{"allowed_models": "nonsense-*", "allowed_providers": "nobody", "grants": "ref=main -> model:nonsense-*"} {
			wrong := url.Values{}
			for name, values := range form {
				wrong[name] = values
			}
			wrong.Set(field, bad)
			b.post(t, list+"/new", wrong).rejects(t, http.StatusBadRequest, bad[len(bad)-5:])
		}
		form["budget"], form["window"], form["requests_per_minute"] = []string{"5"}, []string{"day"}, []string{"60"}
		b.post(t, list+"/new", form).rejects(t, http.StatusBadRequest, "user claim is required")
		form.Set("user_claim", "actor")
		page := b.follow(t, b.post(t, list+"/new", form)).shows(t, "Rule created.", "<code>actor</code>, 5 credits per day, 60 requests per minute", "gpt-4o, claude-*", "model:gpt-4o-mini budget:50/day rpm:60 300s")
		id := page.find(t, `<code>(fed_[^<]+)</code>`)
		for _, language := range []string{"curl", "python", "typescript", "go"} {
			page.find(t, `(?s)<pre id="token-`+language+`"[^>]*>[^<]*`+id)
		}
		edit := b.get(t, list+"/"+id+"/edit").shows(t, "gpt-4o, claude-*")
		form.Set("seen", edit.find(t, `name="seen" value="([^"]+)"`))
		form.Set("allowed_models", "none")
		b.follow(t, b.post(t, list+"/"+id+"/edit", form)).shows(t, "Rule saved.", "<dt>Models</dt><dd>none</dd>")
		form.Set("allowed_models", "")
		b.post(t, list+"/"+id+"/edit", form).rejects(t, http.StatusConflict, "Someone changed this")
		b.follow(t, b.post(t, list+"/"+id+"/delete", nil)).shows(t, "Rule deleted.")
	})
}
