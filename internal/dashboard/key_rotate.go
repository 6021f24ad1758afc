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
)

type graceChoice struct {
	Seconds int64
	Name    string
	Usual   bool // the workspace's default
}

// graceChoices returns common grace periods and the workspace's default.
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
			out[i].Name = "none, the old secret stops working immediately"
		}
	}
	return out
}

type rotateData struct {
	Key   keyRow
	Grace []graceChoice
}

func rotateKeyPage(req *request, k *access.Key) (*view, error) {
	rows, err := req.keyRows(k)
	if err != nil {
		return nil, err
	}
	return &view{template: "key_rotate", title: "Rotate " + k.Name, data: rotateData{Key: rows[0], Grace: graceChoices(req.workspace.RotationGrace)}}, nil
}

func rotateKey(req *request) (*view, error) {
	r := access.Rotation{Grace: req.workspace.RotationGrace, Force: req.form("force") != ""}
	if s := req.form("grace"); s != "" {
		seconds, err := strconv.ParseInt(s, 10, 64)
		if err != nil || seconds < 0 || seconds > int64(accounts.MaxRotationGrace/time.Second) {
			return nil, fault.Invalid("grace", "Choose a grace period of at most 7 days.")
		}
		r.Grace = time.Duration(seconds) * time.Second
	}
	var value string
	k, err := req.changeKey(func(tx *db.Tx, k *access.Key) (err error) {
		if k.Previous != nil && !r.Force {
			return fault.Param(fault.InvalidState, "force", "The previous secret still works. Select that it may stop working, or end its grace period first.")
		}
		if r.Grace == 0 {
			if err := req.checkTypedName(k.Name); err != nil {
				return err
			}
		}
		value, err = req.s.Keys.Rotate(req.Context(), tx, req.caller(), k, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	notice := "Secret rotated. The old one works for another " + countdown(r.Grace) + "."
	if r.Grace == 0 {
		notice = "Secret rotated. The old one no longer works."
	}
	return req.redirect(req.to("keys/"+k.ID), flash{Notice: notice, Secret: value, Of: k.ID})
}

func (req *request) changeKey(do func(tx *db.Tx, k *access.Key) error) (*access.Key, error) {
	return writeValue(req, func(tx *db.Tx) (*access.Key, error) {
		k, err := req.s.Keys.GetLocked(req.Context(), tx, req.principal.Visibility(), req.id())
		if err != nil {
			return nil, err
		}
		return k, do(tx, k)
	})
}

func endGrace(req *request) (*view, error) {
	k, err := req.changeKey(func(tx *db.Tx, k *access.Key) error {
		if err := req.checkTypedName(k.Name); err != nil {
			return err
		}
		return req.s.Keys.EndGrace(req.Context(), tx, req.caller(), k)
	})
	if err != nil {
		return nil, err
	}
	return req.redirect(req.to("keys/"+k.ID), flash{Notice: "Grace period ended. The old secret no longer works."})
}

func revokeKey(req *request) (*view, error) {
	notice := "Revoked the key and its scoped tokens."
	k, err := req.changeKey(func(tx *db.Tx, k *access.Key) error {
		if err := req.checkTypedName(k.Name); err != nil {
			return err
		}
		if req.form("descendants") == "" {
			return req.s.Keys.Revoke(req.Context(), tx, req.caller(), k)
		}
		revoked, err := req.s.Keys.RevokeWithDescendants(req.Context(), tx, req.caller(), k)
		notice = fmt.Sprintf("Revoked the key, its scoped tokens and the keys that it created (%d).", len(revoked))
		return err
	})
	if err != nil {
		return nil, err
	}
	return req.redirect(req.to("keys/"+k.ID), flash{Notice: notice})
}
