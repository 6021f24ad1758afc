package mail

import (
	"context"
	"fmt"

	"turnpike/internal/db"
)

// withoutText deletes the text of a finished email. Older versions stored it in body
// and cannot read NULL there.
const withoutText = "sealed_body = NULL, body = ''"

// sealContext binds a sealed text to its email.
func sealContext(id string) string { return "mail " + id }

func (o *Outbox) seal(id, text string) string { return o.ring.Seal([]byte(text), sealContext(id)) }

// scanClaimed reads an email with its text. The text is not sealed if a node of an
// older version stored it after this one started.
func (o *Outbox) scanClaimed(r db.Row) (*Mail, error) {
	var sealed, plain *string
	m, err := scan(r, &sealed, &plain)
	if err != nil {
		return nil, err
	}
	if m.sealed = db.Text(sealed); sealed == nil {
		m.sealed = o.seal(m.ID, db.Text(plain))
	}
	return m, nil
}

// send decrypts an email's text and sends it.
func (o *Outbox) send(s *session, m *Mail) error {
	text, err := o.ring.Open(m.sealed, sealContext(m.ID))
	if err != nil {
		return fmt.Errorf("%w: decrypt the text: %w", errRejected, err)
	}
	return s.send(m, string(text))
}

// SealStored seals waiting emails of an older version, and deletes the text of those
// that it finished after the migration.
func (o *Outbox) SealStored(ctx context.Context) error {
	err := o.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE mails SET "+withoutText+" WHERE due_at IS NULL AND (body <> '' OR sealed_body IS NOT NULL)")
		return err
	})
	for more := true; more && err == nil; {
		err = o.db.Write(ctx, func(tx *db.Tx) error {
			n, err := o.sealBatch(ctx, tx)
			more = n == batch
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("seal stored emails: %w", err)
	}
	return nil
}

// sealBatch seals a batch of unsealed emails and returns how many it found.
func (o *Outbox) sealBatch(ctx context.Context, tx *db.Tx) (int, error) {
	type plainMail struct{ id, text string }
	rows, err := tx.Query(ctx, "SELECT id, body FROM mails WHERE body <> '' AND due_at IS NOT NULL ORDER BY id LIMIT $1"+tx.Lock("mails"), int64(batch))
	plain, err := db.All(rows, err, func(r db.Row) (m plainMail, err error) {
		err = r.Scan(&m.id, &m.text)
		return m, err
	})
	if err != nil {
		return 0, err
	}
	for _, m := range plain {
		if _, err := tx.Exec(ctx, "UPDATE mails SET sealed_body = $2, body = NULL WHERE id = $1", m.id, o.seal(m.id, m.text)); err != nil {
			return 0, err
		}
	}
	return len(plain), nil
}
