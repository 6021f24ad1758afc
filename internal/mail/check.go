package mail

import (
	"context"
	"errors"
	"time"

	"turnpike/internal/ids"
)

// sendNowTimeout is how long SendNow waits for the mail server.
const sendNowTimeout = 15 * time.Second

// ErrNoServer means that no mail server is configured.
var ErrNoServer = errors.New("no mail server is configured (smtp.url)")

// Sends reports whether there is a mail server. Without one, emails are only logged.
func (o *Outbox) Sends() bool { return o.smtp != nil }

// SendNow sends one email and waits for the result. The email is neither retried
// nor stored.
func (o *Outbox) SendNow(ctx context.Context, to string, data Data) error {
	if o.smtp == nil {
		return ErrNoServer
	}
	subject, text, err := render(o.templates, data)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sendNowTimeout)
	defer cancel()
	s := o.smtp.session()
	defer s.quit()
	if err := s.connect(ctx); err != nil {
		return describeTimeout(ctx, err)
	}
	raw := s.raw
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	return describeTimeout(ctx, s.send(&Mail{ID: ids.New(ids.Mail), To: to, Subject: subject, CreatedAt: o.now()}, text))
}

// describeTimeout replaces the error of a call that timed out.
func describeTimeout(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("it did not respond within " + sendNowTimeout.String())
	}
	return errors.New(oneLine(err.Error(), maxError))
}
