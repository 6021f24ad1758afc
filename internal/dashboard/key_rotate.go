package dashboard

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
)

// graceChoice is a grace period that can be chosen.
type graceChoice struct {
	Seconds int64
	Name    string
	Usual   bool // the workspace's own
}

// graceChoices are the usual ones, and the workspace's default.
func graceChoices(usual time.Duration) []graceChoice {
	list := []time.Duration{0, time.Hour, 24 * time.Hour, 3 * 24 * time.Hour, accounts.MaxRotationGrace}
	if !slices.Contains(list, usual) {
		list = append(list, usual)
		slices.Sort(list)
	}
	out := make([]graceChoice, len(list))
	for i, d := range list {
		out[i] = graceChoice{int64(d / time.Second), countdown(d), d == usual}
		if d == 0 {
			out[i].Name = "none, the old secret stops at once"
		}
	}
	return out
}

type rotateData struct {
	Now   time.Time
	Key   keyRow
	Grace []graceChoice
}

func rotateKeyPage(v *visit) (*view, error) {
	k, err := v.keyToChange()
	if err != nil {
		return nil, err
	}
	rows, err := v.keyRows(k)
	if err != nil {
		return nil, err
	}
	return &view{template: "key_rotate", title: "Rotate " + k.Name, data: rotateData{Now: v.now(), Key: rows[0], Grace: graceChoices(v.workspace.RotationGrace)}}, nil
}

func rotateKey(v *visit) (*view, error) {
	r := access.Rotation{Grace: v.workspace.RotationGrace, Force: v.form("force") != ""}
	if s := v.form("grace"); s != "" {
		seconds, err := strconv.ParseInt(s, 10, 64)
		if err != nil || seconds < 0 || seconds > int64(accounts.MaxRotationGrace/time.Second) {
			return nil, fault.Invalid("grace", "choose for how long the old secret still works, up to 7 days")
		}
		r.Grace = time.Duration(seconds) * time.Second
	}
	var value string
	k, err := v.changeKey(func(tx *db.Tx, k *access.Key) (err error) {
		if k.Previous != nil && !r.Force {
			return fault.Param(fault.InvalidState, "force", "the secret before this one still works; tick that it may stop, or end its grace first")
		}
		value, err = v.s.Keys.Rotate(v.ctx(), tx, v.caller(), k, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	notice := "The key has a new secret. The old one works for another " + countdown(r.Grace) + "."
	if r.Grace == 0 {
		notice = "The key has a new secret. The old one has stopped working."
	}
	v.redirect(v.to("keys/"+k.ID), flash{Notice: notice, Secret: value, Of: k.ID})
	return nil, nil
}

// changeKey does something to the key that the path names.
func (v *visit) changeKey(do func(tx *db.Tx, k *access.Key) error) (k *access.Key, err error) {
	id, err := v.pathID(ids.Key, "key")
	if err != nil {
		return nil, err
	}
	err = v.write(func(tx *db.Tx) error {
		if k, err = v.s.Keys.GetLocked(v.ctx(), tx, v.principal.Visibility(), id); err != nil {
			return err
		}
		return do(tx, k)
	})
	return k, err
}

func endGrace(v *visit) (*view, error) {
	k, err := v.changeKey(func(tx *db.Tx, k *access.Key) error { return v.s.Keys.EndGrace(v.ctx(), tx, v.caller(), k) })
	if err != nil {
		return nil, err
	}
	v.redirect(v.to("keys/"+k.ID), flash{Notice: "The old secret has stopped working."})
	return nil, nil
}

func revokeKey(v *visit) (*view, error) {
	notice := "Revoked the key and its scoped tokens."
	k, err := v.changeKey(func(tx *db.Tx, k *access.Key) error {
		if v.form("descendants") == "" {
			return v.s.Keys.Revoke(v.ctx(), tx, v.caller(), k)
		}
		revoked, err := v.s.Keys.RevokeWithDescendants(v.ctx(), tx, v.caller(), k)
		notice = fmt.Sprintf("Revoked the key, its scoped tokens and the keys that it created (%d).", len(revoked))
		return err
	})
	if err != nil {
		return nil, err
	}
	v.redirect(v.to("keys/"+k.ID), flash{Notice: notice})
	return nil, nil
}
