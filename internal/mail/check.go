package mail

import (
	"context"
	"errors"
	"time"

	"turnpike/internal/ids"
)

// checkPatience is how long a person waits to learn whether mail works.
const checkPatience = 15 * time.Second

// ErrNoServer is why nothing is sent where no mail server is set.
var ErrNoServer = errors.New("no mail server is set (smtp.url)")

// Sends reports whether there is a mail server; else mails are only logged.
func (o *Outbox) Sends() bool { return o.smtp != nil }

// SendNow gives one mail to the server while the caller waits, and returns what
// the server said against it. It is not tried again, and not kept.
func (o *Outbox) SendNow(ctx context.Context, to string, data Data) error {
	if o.smtp == nil {
		return ErrNoServer
	}
	subject, text, err := render(o.templates, data)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	s := o.smtp.session()
	defer s.close()
	if err := s.connect(ctx); err != nil {
		return late(ctx, err)
	}
	raw := s.raw
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	return late(ctx, s.send(&Mail{ID: ids.New(ids.Mail), To: to, Subject: subject, CreatedAt: o.now()}, text))
}

// late says that time was up, where the error would only name what broke then.
func late(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("it did not answer in " + checkPatience.String())
	}
	return errors.New(oneLine(err.Error(), maxError))
}
