package mail

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"text/template"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/operators"
)

const (
	batch = 50
	// pollEvery is how soon due retries and emails of dead nodes are found. New
	// emails wake their own node immediately.
	pollEvery = 15 * time.Second
	// lease is how long a claimed email is hidden from other nodes. A batch takes
	// at most half of it, which leaves the other half for the last email: connecting
	// and sending take at most six timeouts.
	lease = 20 * timeout
	// maxAge is how long an email is retried. It is less than the five days of
	// most mail servers, because our emails are about recent events.
	maxAge = 3 * 24 * time.Hour

	maxError = 500
)

// retryDelays are the delays between attempts. The last one repeats.
var retryDelays = []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour}

// Outbox stores emails and sends them.
type Outbox struct {
	db        *db.DB
	ring      *keyring.Ring
	smtp      atomic.Pointer[SMTP] // nil if emails are only logged
	templates *template.Template
	now       func() time.Time
	wake      chan struct{}
	attempts  *prometheus.CounterVec
}

// New creates an outbox. Run sends its emails, or logs them if smtp is nil. The public URL
// is the base of links, without a trailing slash.
func New(d *db.DB, ring *keyring.Ring, smtp *SMTP, publicURL string, now func() time.Time) *Outbox {
	o := &Outbox{db: d, ring: ring, templates: parseTemplates(publicURL), now: now, wake: make(chan struct{}, 1), attempts: newAttempts()}
	o.smtp.Store(smtp)
	return o
}

// SetServer replaces the mail server. An email in progress keeps the old one.
func (o *Outbox) SetServer(smtp *SMTP) { o.smtp.Store(smtp) }

// Message is an email to send. The type of Data selects the template.
type Message struct {
	WorkspaceID string
	To          string
	// Once makes the message unique: a second one of the same kind with the same
	// Once to the same address is not stored. Empty allows repeats.
	Once string
	Data Data
}

func (m Message) onceHash() any {
	if m.Once == "" {
		return nil
	}
	// Hashed, because an index limits the length of its values.
	sum := sha256.Sum256([]byte(strings.Join([]string{m.WorkspaceID, m.Data.kind(), m.To, m.Once}, "\x00")))
	return hex.EncodeToString(sum[:])
}

// Enqueue renders and stores messages in the transaction of their cause. An invalid
// address is not an error here, because it must not fail the cause.
func (o *Outbox) Enqueue(ctx context.Context, tx *db.Tx, messages ...Message) error {
	now := o.now().UnixMicro()
	for _, m := range messages {
		subject, text, err := render(o.templates, m.Data)
		if err != nil {
			return err
		}
		id := ids.New(ids.Mail)
		_, err = tx.Exec(ctx, `INSERT INTO mails (id, workspace_id, kind, recipient, subject, sealed_body, once, status, created_at, due_at, attempts)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, 0) ON CONFLICT (once) DO NOTHING`,
			id, m.WorkspaceID, m.Data.kind(), m.To, subject, o.ring.Seal([]byte(text), sealContext(id)), m.onceHash(), string(Waiting), now)
		if err != nil {
			return fmt.Errorf("enqueue email: %w", err)
		}
	}
	tx.OnCommit(func() {
		select {
		case o.wake <- struct{}{}:
		default: // already awake
		}
	})
	return nil
}

// EnqueueOperators is Enqueue for the people who run the server.
func (o *Outbox) EnqueueOperators(ctx context.Context, tx *db.Tx, once string, data Data) error {
	people, err := operators.List(ctx, tx)
	if err != nil {
		return err
	}
	var messages []Message
	for _, p := range people {
		messages = append(messages, Message{To: p.Email, Once: once, Data: data})
	}
	return o.Enqueue(ctx, tx, messages...)
}

// EnqueueAdmins is Enqueue for a workspace's owners and admins. data gets the
// workspace's name.
func (o *Outbox) EnqueueAdmins(ctx context.Context, tx *db.Tx, workspaceID, once string, data func(workspace string) Data) error {
	w, err := accounts.GetWorkspace(ctx, tx, workspaceID)
	if err != nil {
		return err
	}
	people, err := accounts.ListUsers(ctx, tx, workspaceID)
	if err != nil {
		return err
	}
	var messages []Message
	for _, p := range people {
		if p.Role == accounts.Owner || p.Role == accounts.Admin {
			messages = append(messages, Message{WorkspaceID: workspaceID, To: p.Email, Once: once, Data: data(w.Name)})
		}
	}
	return o.Enqueue(ctx, tx, messages...)
}

// Run sends due emails until ctx ends. It finishes the email in progress.
func (o *Outbox) Run(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if err := o.SendDue(ctx); err != nil && ctx.Err() == nil {
			slog.Warn("failed to send due emails; retrying", "error", err)
		}
		select {
		case <-o.wake:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// SendDue sends all due emails. An email that cannot be sent stores its error, and
// SendDue does not return it.
func (o *Outbox) SendDue(ctx context.Context) error {
	for ctx.Err() == nil {
		mails, err := o.claim(ctx)
		if err != nil || len(mails) == 0 {
			return err
		}
		if server := o.smtp.Load(); server == nil {
			err = o.report(o.store(ctx, mails, func(m *Mail) { m.Status, m.DueAt = Logged, nil }))
		} else {
			err = o.sendAll(ctx, server, mails)
		}
		if errors.Is(err, errUnreachable) {
			return nil // the next round starts with other emails
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// claim leases a batch of due emails. They are due again when the lease ends.
func (o *Outbox) claim(ctx context.Context) (mails []*Mail, err error) {
	now := o.now()
	err = o.db.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(ctx, `WITH due AS (SELECT id FROM mails WHERE due_at <= $1 ORDER BY due_at LIMIT $3`+tx.Claim("mails")+`)
			UPDATE mails SET due_at = $2 WHERE id IN (SELECT id FROM due) RETURNING `+columns+`, sealed_body`,
			now.UnixMicro(), now.Add(lease).UnixMicro(), int64(batch))
		mails, err = db.All(rows, err, func(r db.Row) (*Mail, error) {
			m := new(Mail)
			return m, db.Scan(r, append(m.fields(), &m.sealed)...)
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim emails: %w", err)
	}
	slices.SortFunc(mails, func(a, b *Mail) int { return cmp.Compare(a.ID, b.ID) })
	return mails, nil
}

// sendAll sends a batch, over one connection if possible.
func (o *Outbox) sendAll(ctx context.Context, server *SMTP, mails []*Mail) error {
	stop := o.now().Add(lease / 2)
	s := server.session()
	defer s.quit()
	for i, m := range mails {
		if ctx.Err() != nil || o.now().After(stop) {
			return o.release(ctx, mails[i:])
		}
		if err := s.connect(ctx); err != nil {
			if ctx.Err() != nil {
				return o.release(ctx, mails[i:])
			}
			if err := o.recordAttempt(ctx, mails[i:], err); err != nil {
				return err
			}
			return errUnreachable // instead of dialing again for each email
		}
		// If this node dies before the commit, the email is sent again with the same
		// Message-ID when the lease ends.
		if err := o.recordAttempt(ctx, mails[i:i+1], o.send(s, m)); err != nil {
			return err
		}
	}
	return nil
}

// sealContext binds a sealed text to its email.
func sealContext(id string) string { return "mail " + id }

// send decrypts an email's text and sends it.
func (o *Outbox) send(s *session, m *Mail) error {
	text, err := o.ring.Open(m.sealed, sealContext(m.ID))
	if err != nil {
		return fmt.Errorf("%w: decrypt the text: %w", errRejected, err)
	}
	return s.send(m, string(text))
}

// recordAttempt stores the result of an attempt. failure is nil if the emails were
// sent.
func (o *Outbox) recordAttempt(ctx context.Context, mails []*Mail, failure error) error {
	now := o.now()
	return o.report(o.store(ctx, mails, func(m *Mail) {
		m.Attempts++
		next := now.Add(retryDelays[min(int(m.Attempts), len(retryDelays))-1])
		switch {
		case failure == nil:
			m.Status, m.DueAt, m.LastError, m.SentAt = Sent, nil, "", &now
		case errors.Is(failure, errRejected), next.After(m.CreatedAt.Add(maxAge)):
			m.Status, m.DueAt, m.LastError = Failed, nil, oneLine(failure.Error(), maxError)
		default:
			m.DueAt, m.LastError = &next, oneLine(failure.Error(), maxError)
		}
	}))
}

// release ends the lease of emails.
func (o *Outbox) release(ctx context.Context, mails []*Mail) error {
	now := o.now()
	_, err := o.store(ctx, mails, func(m *Mail) { m.DueAt = &now })
	return err
}

// store updates claimed emails and returns them, even if ctx has ended. It does not
// change an email whose lease has ended.
func (o *Outbox) store(ctx context.Context, claimed []*Mail, change func(*Mail)) (changed []*Mail, err error) {
	ctx = context.WithoutCancel(ctx)
	err = o.db.Write(ctx, func(tx *db.Tx) error {
		changed = nil
		for _, before := range claimed {
			m := *before
			change(&m)
			query := "UPDATE mails SET status = $3, due_at = $4, attempts = $5, last_error = $6, sent_at = $7"
			if m.DueAt == nil {
				query += ", sealed_body = NULL" // it may contain a secret link
			}
			_, err := tx.Exec(ctx, query+" WHERE id = $1 AND due_at = $2",
				m.ID, db.Micros(before.DueAt), string(m.Status), db.Micros(m.DueAt), m.Attempts, db.OrNull(m.LastError), db.Micros(m.SentAt))
			if err != nil {
				return fmt.Errorf("update emails: %w", err)
			}
			changed = append(changed, &m)
		}
		return nil
	})
	return changed, err
}

// report counts and logs each attempt, without the text, which may contain a secret link.
func (o *Outbox) report(mails []*Mail, err error) error {
	if err != nil {
		return err
	}
	for _, m := range mails {
		o.attempts.WithLabelValues(attemptResult(m.Status)).Inc()
		log := slog.With("mail", m.ID, "kind", m.Kind, "workspace", m.WorkspaceID, "to", m.To, "subject", m.Subject)
		switch m.Status {
		case Logged:
			log.Info("email not sent: no mail server is configured (smtp.url)")
		case Sent:
			log.Debug("email sent", "attempt", m.Attempts)
		case Failed:
			log.Error("email failed permanently", "attempt", m.Attempts, "error", m.LastError)
		case Waiting:
			log.Warn("email not sent; retrying", "attempt", m.Attempts, "next", *m.DueAt, "error", m.LastError)
		}
	}
	return nil
}

// sendNowTimeout is how long SendNow waits for the mail server.
const sendNowTimeout = 15 * time.Second

// ErrNoServer means that no mail server is configured.
var ErrNoServer = errors.New("no mail server is configured (smtp.url)")

// Sends reports whether there is a mail server. Without one, emails are only logged.
func (o *Outbox) Sends() bool { return o.smtp.Load() != nil }

// SendNow sends one email and waits for the result. The email is neither retried
// nor stored.
func (o *Outbox) SendNow(ctx context.Context, to string, data Data) error {
	server := o.smtp.Load()
	if server == nil {
		return ErrNoServer
	}
	subject, text, err := render(o.templates, data)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sendNowTimeout)
	defer cancel()
	s := server.session()
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
