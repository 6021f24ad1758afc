package mail

import (
	"context"
	"fmt"

	"turnpike/internal/db"
)

// withoutText deletes the text of a mail that is finished. Older versions wrote
// it to body, which they cannot read as NULL.
const withoutText = "sealed_body = NULL, body = ''"

// sealPlace binds a sealed text to its mail.
func sealPlace(id string) string { return "mail " + id }

func (o *Outbox) seal(id, text string) string { return o.ring.Seal([]byte(text), sealPlace(id)) }

// scanClaimed reads a mail with its text, which is in plain if a node of an
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

// send opens a mail's text and hands the mail over.
func (o *Outbox) send(s *session, m *Mail) error {
	text, err := o.ring.Open(m.sealed, sealPlace(m.ID))
	if err != nil {
		return fmt.Errorf("%w: the text of the mail: %w", errRefused, err)
	}
	return s.send(m, string(text))
}

// SealStored seals the waiting mails that an older version stored in plain, and
// deletes the text of those it finished after the schema changed.
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
		return fmt.Errorf("seal stored mails: %w", err)
	}
	return nil
}

// sealBatch seals up to a batch of plain mails and returns how many it found.
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
