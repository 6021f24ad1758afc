package api

import (
	"context"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/notifications"
)

type notificationsObject struct {
	Object        string                 `json:"object"`
	Webhook       *incomingWebhookObject `json:"webhook"`
	OmitArguments bool                   `json:"omit_arguments"`
}

// incomingWebhookObject has no URL, which is a secret.
type incomingWebhookObject struct {
	URLHint    string               `json:"url_hint"`
	Format     notifications.Format `json:"format"`
	LastSentAt *int64               `json:"last_sent_at"`
	LastError  *string              `json:"last_error"`
}

func newNotificationsObject(s *notifications.Settings) *notificationsObject {
	o := &notificationsObject{Object: "notification_settings", OmitArguments: s.OmitArguments}
	if s.URL != "" {
		o.Webhook = &incomingWebhookObject{URLHint: s.Hint, Format: s.Format, LastSentAt: unix(s.LastSentAt), LastError: orNil(s.LastError)}
	}
	return o
}

// checkNotificationAccess rejects pinned and test keys, because notifications
// belong to the whole workspace.
func (c *Call) checkNotificationAccess() error {
	if p := c.Principal.Project; p != "" {
		return fault.New(fault.ProjectNotAllowed, "This key is pinned to project %q, and notifications belong to the whole workspace. Use a key that is not pinned.", p)
	}
	if c.Principal.Environment == accounts.Live {
		return nil
	}
	return fault.New(fault.InvalidState, "Notifications belong to the whole workspace. Use a live key.")
}

func getNotifications(ctx context.Context, c *Call) (any, error) {
	if err := c.checkNotificationAccess(); err != nil {
		return nil, err
	}
	set, err := c.s.Notifications.ReadSettings(ctx, c.s.DB, c.Principal.WorkspaceID)
	return show(set, err, newNotificationsObject)
}

type updateNotificationsRequest struct {
	Webhook       jsonbody.Optional[incomingWebhook] `json:"webhook"`
	OmitArguments jsonbody.Optional[bool]            `json:"omit_arguments"`
}

type incomingWebhook struct {
	URL    string               `json:"url"`
	Format notifications.Format `json:"format"`
}

func updateNotifications(ctx context.Context, c *Call, tx *db.Tx, in updateNotificationsRequest) (any, error) {
	if err := c.checkNotificationAccess(); err != nil {
		return nil, err
	}
	changed, err := c.s.Notifications.Update(ctx, tx, c.Principal.WorkspaceID, notifications.Change{By: c.Actor(), Apply: func(s *notifications.Settings) error {
		set(&s.OmitArguments, in.OmitArguments)
		if !in.Webhook.Set {
			return nil
		}
		if in.Webhook.Null {
			s.URL, s.Format = "", notifications.Slack
			return nil
		}
		if in.Webhook.Value.URL != "" {
			s.URL = in.Webhook.Value.URL
		}
		if in.Webhook.Value.Format != "" {
			s.Format = in.Webhook.Value.Format
		}
		if s.URL == "" {
			return fault.Missing("webhook.url", "webhook.url is required. Create an incoming webhook in your chat tool and send its URL.")
		}
		return nil
	}})
	return show(changed, err, newNotificationsObject)
}

// testNotifications sends a test message to the incoming webhook.
func testNotifications(c *Call) error {
	body, err := c.readJSON(c.Limits.Body)
	if err != nil {
		return err
	}
	if err := jsonbody.DecodeStrict(body, &struct{}{}); err != nil {
		return err
	}
	return c.perform(body, action{
		before: func() error {
			if err := c.checkNotificationAccess(); err != nil {
				return err
			}
			w, err := accounts.GetWorkspace(c.Context(), c.s.DB, c.Principal.WorkspaceID)
			if err != nil {
				return err
			}
			return c.s.Notifications.SendTest(c.Context(), w, c.Actor().Name)
		},
		do: func(ctx context.Context, tx *db.Tx) (any, error) {
			set, err := c.s.Notifications.ReadSettings(ctx, tx, c.Principal.WorkspaceID)
			return show(set, err, newNotificationsObject)
		},
	})
}
