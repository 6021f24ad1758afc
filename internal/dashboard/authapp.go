package dashboard

import (
	"bytes"
	"encoding/base64"
	"html/template"
	"image/png"
	"strings"

	"github.com/boombuler/barcode/qr"

	"turnpike/internal/db"
)

// recoveryCodes is the owner of the flash that carries recovery codes.
const recoveryCodes = "recovery codes"

// issuer is the name of this server in authenticator apps. The host distinguishes
// servers.
func (req *request) issuer() string { return "Turnpike " + req.hostName() }

func startApp(req *request) (*view, error) {
	return req.save("/dashboard/account/app", "", func(tx *db.Tx) error {
		_, err := req.s.People.StartTOTP(req.Context(), tx, req.session, req.issuer())
		return err
	})
}

type appData struct {
	Secret string // in groups of four
	Code   template.URL
}

// appPage shows the secret until the person has entered the first code.
func appPage(req *request) (*view, error) {
	e, err := req.s.People.PendingTOTP(req.Context(), req.s.DB, req.session, req.issuer())
	if err != nil {
		return nil, err
	}
	code, err := qrCode(e.URL)
	if err != nil {
		return nil, err
	}
	return &view{template: "authapp", title: "Set up an authenticator app", data: appData{Secret: groupByFour(e.Secret), Code: code}}, nil
}

func groupByFour(s string) string {
	var out strings.Builder
	for i, c := range s {
		if i > 0 && i%4 == 0 {
			out.WriteByte(' ')
		}
		out.WriteRune(c)
	}
	return out.String()
}

// qrCode returns the URL of an image. The page adds the margin that readers need.
func qrCode(content string) (template.URL, error) {
	code, err := qr.Encode(content, qr.L, qr.Auto)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = png.Encode(&out, code)
	return template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(out.Bytes())), err //nolint:gosec // base64
}

func enableApp(req *request) (*view, error) {
	return req.showCodes("Authenticator app enabled. You need it at each sign-in, and you are signed out everywhere else.", func(tx *db.Tx) ([]string, error) {
		return req.s.People.EnableTOTP(req.Context(), tx, req.session, req.form("code"), req.browser())
	})
}

func disableApp(req *request) (*view, error) {
	return req.save("/dashboard/account", "Authenticator app disabled.", func(tx *db.Tx) error {
		return req.s.People.DisableTOTP(req.Context(), tx, req.session, req.browser())
	})
}

func renewCodes(req *request) (*view, error) {
	return req.showCodes("Recovery codes renewed. The old ones no longer work.", func(tx *db.Tx) ([]string, error) {
		return req.s.People.RenewRecoveryCodes(req.Context(), tx, req.session, req.browser())
	})
}

// showCodes creates recovery codes, which the account page shows once.
func (req *request) showCodes(notice string, create func(tx *db.Tx) ([]string, error)) (*view, error) {
	codes, err := writeValue(req, create)
	if err != nil {
		return nil, err
	}
	return req.redirect("/dashboard/account", flash{Notice: notice, Secret: strings.Join(codes, " "), Of: recoveryCodes})
}
