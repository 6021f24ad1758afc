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
	"text/template"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
)

const (
	batch = 50
	// every is how soon a retry that is due is noticed, and what a node that
	// died has left. What is new wakes its own node at once.
	every = 15 * time.Second
	// lease is how long a claimed mail is out of others' sight, and, when a node
	// dies, how long it waits. A batch is worked for half of it, so that a mail
	// begun at the last moment has the other half: connecting and sending take
	// six timeouts at the very worst.
	lease = 20 * timeout
	// patience is how long a mail is tried. It is less than the usual five days
	// of mail servers, because what we have to say is about now.
	patience = 3 * 24 * time.Hour

	maxError = 500
)

// delays between attempts; the last repeats.
var delays = []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour}

// Options configures an outbox.
type Options struct {
	PublicURL string           // where links point to, without a slash at the end
	Now       func() time.Time // nil means the time of day
}

// Outbox writes mails and sends them.
type Outbox struct {
	db        *db.DB
	ring      *keyring.Ring
	smtp      *SMTP // nil: mails are logged
	templates *template.Template
	now       func() time.Time
	wake      chan struct{}
}

// New makes an outbox; Run sends what is in it. With a nil SMTP it logs mails
// instead of sending them.
func New(d *db.DB, ring *keyring.Ring, smtp *SMTP, o Options) *Outbox {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Outbox{db: d, ring: ring, smtp: smtp, templates: parseTemplates(o.PublicURL), now: o.Now, wake: make(chan struct{}, 1)}
}

// Message is what to send, and to whom. The type of Data chooses the template.
type Message struct {
	WorkspaceID string
	To          string
	// Once makes it unique: a second message of the same kind with the same Once
	// to the same address is not written. Empty means that it may repeat.
	Once string
	Data Data
}

func (m Message) onceHash() any {
	if m.Once == "" {
		return nil
	}
	// Hashed, because an index does not hold texts of any length.
	sum := sha256.Sum256([]byte(strings.Join([]string{m.WorkspaceID, m.Data.kind(), m.To, m.Once}, "\x00")))
	return hex.EncodeToString(sum[:])
}

// Enqueue renders and stores messages in the transaction of their cause, so
// that neither can be without the other. An address that cannot be mailed to is
// no error here: it must not keep the cause from happening.
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
			id, m.WorkspaceID, m.Data.kind(), m.To, subject, o.seal(id, text), m.onceHash(), string(Waiting), now)
		if err != nil {
			return fmt.Errorf("enqueue mail: %w", err)
		}
	}
	tx.OnCommit(func() {
		select {
		case o.wake <- struct{}{}:
		default: // a round is to come already
		}
	})
	return nil
}

// Run sends what is due until ctx ends. A mail at which it is then is finished.
func (o *Outbox) Run(ctx context.Context) {
	if err := o.SealStored(ctx); err != nil && ctx.Err() == nil {
		slog.Warn("failed to seal the mails that an older version stored; retrying at the next start", "error", err)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := o.SendDue(ctx); err != nil && ctx.Err() == nil {
			slog.Warn("could not work the mail outbox; it is tried again", "error", err)
		}
		select {
		case <-o.wake:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// SendDue sends everything that is due now. That a mail could not be sent is
// noted with the mail, and no error.
func (o *Outbox) SendDue(ctx context.Context) error {
	for ctx.Err() == nil {
		mails, err := o.claim(ctx)
		if err != nil || len(mails) == 0 {
			return err
		}
		if o.smtp == nil {
			err = o.logAll(ctx, mails)
		} else {
			err = o.sendAll(ctx, mails)
		}
		if errors.Is(err, errUnreachable) {
			return nil // the next round begins with other mails
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// claim takes a batch of due mails: they are due again when the lease ends,
// and until then nobody else sees them.
func (o *Outbox) claim(ctx context.Context) (mails []*Mail, err error) {
	now := o.now()
	err = o.db.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(ctx, `WITH due AS (SELECT id FROM mails WHERE due_at <= $1 ORDER BY due_at LIMIT $3`+tx.Claim("mails")+`)
			UPDATE mails SET due_at = $2 WHERE id IN (SELECT id FROM due) RETURNING `+columns+`, sealed_body, body`,
			now.UnixMicro(), now.Add(lease).UnixMicro(), int64(batch))
		mails, err = db.All(rows, err, o.scanClaimed)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim mails: %w", err)
	}
	slices.SortFunc(mails, func(a, b *Mail) int { return cmp.Compare(a.ID, b.ID) })
	return mails, nil
}

// sendAll sends a batch over one connection, as long as that lasts.
func (o *Outbox) sendAll(ctx context.Context, mails []*Mail) error {
	stop := o.now().Add(lease / 2)
	s := o.smtp.session()
	defer s.close()
	for i, m := range mails {
		if ctx.Err() != nil || o.now().After(stop) {
			return o.giveBack(ctx, mails[i:])
		}
		if err := s.connect(ctx); err != nil {
			if ctx.Err() != nil {
				return o.giveBack(ctx, mails[i:])
			}
			if err := o.settle(ctx, mails[i:], err); err != nil {
				return err
			}
			return errUnreachable // and it is not dialled again for each mail
		}
		// If we die between the server's yes and the commit that follows, the
		// mail is sent again when the lease ends, with the same Message-ID.
		if err := o.settle(ctx, mails[i:i+1], o.send(s, m)); err != nil {
			return err
		}
	}
	return nil
}

// settle notes what came of an attempt; a nil failure means that the mails
// were sent.
func (o *Outbox) settle(ctx context.Context, mails []*Mail, failure error) error {
	now := o.now()
	return logEach(o.store(ctx, mails, func(m *Mail) {
		m.Attempts++
		next := now.Add(delays[min(int(m.Attempts), len(delays))-1])
		switch {
		case failure == nil:
			m.Status, m.DueAt, m.LastError, m.SentAt = Sent, nil, "", &now
		case errors.Is(failure, errRefused), next.After(m.CreatedAt.Add(patience)):
			m.Status, m.DueAt, m.LastError = Failed, nil, oneLine(failure.Error(), maxError)
		default:
			m.DueAt, m.LastError = &next, oneLine(failure.Error(), maxError)
		}
	}))
}

// logAll is for an outbox without a server.
func (o *Outbox) logAll(ctx context.Context, mails []*Mail) error {
	return logEach(o.store(ctx, mails, func(m *Mail) { m.Status, m.DueAt = Logged, nil }))
}

// giveBack lets others, or the next round, have what was claimed.
func (o *Outbox) giveBack(ctx context.Context, mails []*Mail) error {
	now := o.now()
	_, err := o.store(ctx, mails, func(m *Mail) { m.DueAt = &now })
	return err
}

// store changes claimed mails and returns what became of them. It does so even
// when ctx has ended: what was sent was sent. A mail whose claim has ended
// meanwhile is left to whoever has it now.
func (o *Outbox) store(ctx context.Context, claimed []*Mail, change func(*Mail)) (changed []*Mail, err error) {
	ctx = context.WithoutCancel(ctx)
	err = o.db.Write(ctx, func(tx *db.Tx) error {
		changed = nil
		for _, before := range claimed {
			m := *before
			change(&m)
			query := "UPDATE mails SET status = $3, due_at = $4, attempts = $5, last_error = $6, sent_at = $7"
			if m.DueAt == nil {
				query += ", " + withoutText
			}
			_, err := tx.Exec(ctx, query+" WHERE id = $1 AND due_at = $2",
				m.ID, db.Micros(before.DueAt), string(m.Status), db.Micros(m.DueAt), m.Attempts, db.OrNull(m.LastError), db.Micros(m.SentAt))
			if err != nil {
				return fmt.Errorf("store what became of mails: %w", err)
			}
			changed = append(changed, &m)
		}
		return nil
	})
	return changed, err
}

// logEach writes one line for each attempt. The text is not in it: it may hold
// a secret link.
func logEach(mails []*Mail, err error) error {
	if err != nil {
		return err
	}
	for _, m := range mails {
		log := slog.With("mail", m.ID, "kind", m.Kind, "workspace", m.WorkspaceID, "to", m.To, "subject", m.Subject)
		switch m.Status {
		case Logged:
			log.Info("mail not sent, because no mail server is set (smtp.url)")
		case Sent:
			log.Debug("mail sent", "attempt", m.Attempts)
		case Failed:
			log.Error("mail failed for good", "attempt", m.Attempts, "error", m.LastError)
		case Waiting:
			log.Warn("mail not sent; it is tried again", "attempt", m.Attempts, "next", *m.DueAt, "error", m.LastError)
		}
	}
	return nil
}
