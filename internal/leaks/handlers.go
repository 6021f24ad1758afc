package leaks

import (
	"context"
	"fmt"
	"log/slog"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/keyring"
	"turnpike/internal/mail"
	"turnpike/internal/people"
	"turnpike/internal/webhooks"
)

// handler handles leaks of a kind of secret.
type handler struct {
	// knows reports whether the secret is stored. It doesn't write or lock, because
	// unknown secrets must not wait for the database writer.
	knows func(ctx context.Context, q db.Querier, secret string) (bool, error)
	end   func(ctx context.Context, tx *db.Tx, r Report) (Outcome, error)
}

// handlersByKind has a handler for each kind. A test compares it with the registry.
func (s *Service) handlersByKind() map[keyring.Kind]handler {
	key := handler{s.Keys.KnowsSecret, s.endKey}
	token := handler{s.People.KnowsToken, s.endToken}
	return map[keyring.Kind]handler{
		keyring.LiveKey: key, keyring.TestKey: key, keyring.ScopedToken: key,
		keyring.AdminKey:     {s.Operators.KnowsSecret, s.endAdminKey},
		keyring.SessionToken: token, keyring.LinkToken: token,
		keyring.WebhookSecret: {s.Webhooks.KnowsSecret, s.reportWebhookSecret},
	}
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// email returns an email about the report.
func (s *Service) email(r Report) mail.SecretLeaked {
	return mail.SecretLeaked{Found: r.found(), URL: cleanURL(r.URL), Location: r.cleanLocation(), DetectedAt: s.Now()}
}

// endAdminKey revokes a key of the admin API, whatever the workspace decides whose
// request contained it: the key isn't the workspace's.
func (s *Service) endAdminKey(ctx context.Context, tx *db.Tx, r Report) (Outcome, error) {
	c, err := s.Operators.RevokeExposed(ctx, tx, r.actor(), r.Secret)
	if err != nil || c == nil {
		return Already, err
	}
	hint := keyring.SecretHint(r.Secret)
	slog.Warn("revoked a leaked admin key", "id", c.ID, "name", c.Name, "source", string(r.Source))
	m := s.email(r)
	m.Subject = "Leaked admin key revoked: " + hint
	m.Summary = "A key of your server's admin API was found in a place where others can see it. Turnpike revoked it."
	m.Facts = []string{fmt.Sprintf("Admin key: %s (%s, %s)", hint, c.Name, c.ID)}
	m.Steps = []string{"Create a new one on the server for the programs that used it: turnpike admin-keys create",
		"Check the providers, routes and prices of the server. Someone else may have changed them."}
	m.Because = "You receive this email because you are an operator of the server."
	return Ended, s.Outbox.EnqueueOperators(ctx, tx, "leaked "+c.ID, m)
}

// endToken ends a session, or revokes a one-time link.
func (s *Service) endToken(ctx context.Context, tx *db.Tx, r Report) (Outcome, error) {
	e, err := s.People.EndExposed(ctx, tx, r.actor(), r.Secret)
	if err != nil || e == nil {
		return Already, err
	}
	slog.Warn("ended a leaked "+e.What, "source", string(r.Source))
	return Ended, s.notifyOfToken(ctx, tx, s.email(r), e, keyring.SecretHint(r.Secret))
}

func (s *Service) notifyOfToken(ctx context.Context, tx *db.Tx, m mail.SecretLeaked, e *people.Exposed, hint string) error {
	m.Subject = fmt.Sprintf("Leaked %s ended: %s", e.What, hint)
	m.Summary = fmt.Sprintf("The token of a %s was found in a place where others can see it. It doesn't work anymore.", e.What)
	m.Steps = []string{"Check the activity in the dashboard. Someone else may have used it.", "Sign in again, or request a new link."}
	if e.Person != nil {
		m.Because = "You receive this email because it was yours."
		return s.Outbox.Enqueue(ctx, tx, mail.Message{WorkspaceID: e.WorkspaceID, To: e.Person.Email, Once: "leaked " + hint, Data: m})
	}
	m.Because = "You receive this email because you are an owner or admin of the workspace."
	return s.Outbox.EnqueueAdmins(ctx, tx, e.WorkspaceID, "leaked "+hint, func(string) mail.Data { return m })
}

// reportWebhookSecret notifies a workspace once of each leaked webhook secret. Someone
// must rotate it, because the receiver has it.
func (s *Service) reportWebhookSecret(ctx context.Context, tx *db.Tx, r Report) (Outcome, error) {
	e, err := s.Webhooks.FindExposed(ctx, tx, r.Secret)
	if err != nil || e == nil {
		return Unknown, err
	}
	reported, err := db.Value[bool](tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM leak_reports WHERE key_id = $1 AND hint = $2)", e.ID, e.Hint))
	if err != nil || reported {
		return Already, err
	}
	m := s.email(r)
	data := events.LeakedSecret{EndpointID: e.ID, URL: e.URL, Description: e.Description, SecretHint: e.Hint, Previous: e.Previous,
		Source: string(r.Source), LeakURL: optional(m.URL), Location: optional(m.Location), DetectedAt: m.DetectedAt.Unix()}
	if _, err := s.Publisher.Publish(ctx, tx, events.Origin{Tenant: e.Tenant, Project: e.Project}, data); err != nil {
		return "", err
	}
	if err := s.storeNote(ctx, tx, r, &Note{Tenant: e.Tenant, KeyID: e.ID, Hint: e.Hint, Outcome: NeedsRotation}); err != nil {
		return "", err
	}
	return NeedsRotation, s.Outbox.EnqueueAdmins(ctx, tx, e.WorkspaceID, "leaked "+e.ID+" "+e.Hint, func(workspace string) mail.Data {
		m.Subject = fmt.Sprintf("Leaked webhook secret: %s in %s (%s)", e.Hint, workspace, e.Environment)
		m.Summary = "The secret of a webhook endpoint was found in a place where others can see it. They can sign requests to your endpoint. " +
			"Turnpike still signs with the secret, because your endpoint would reject deliveries otherwise. Rotate it."
		m.Facts = []string{fmt.Sprintf("Endpoint: %s (%s)", e.ID, e.URL), "Secret: " + e.Hint}
		m.Steps = rotation(e)
		m.Because = "You receive this email because you are an owner or admin of the workspace."
		return m
	})
}

// rotation returns the steps that make a leaked secret useless.
func rotation(e *webhooks.Exposed) []string {
	if e.Previous {
		return []string{"Give the new secret to your endpoint.", fmt.Sprintf("End the grace period of the old one: POST /v1/webhooks/%s/end_grace", e.ID)}
	}
	return []string{fmt.Sprintf("Rotate the secret, and give the new one to your endpoint: POST /v1/webhooks/%s/rotate_secret", e.ID)}
}
