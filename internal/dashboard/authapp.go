package dashboard

import (
	"strconv"
	"strings"

	"github.com/boombuler/barcode/qr"

	"turnpike/internal/db"
)

// recoveryCodes is what the flash that carries them is of.
const recoveryCodes = "recovery codes"

// issuer is how an authenticator app calls this server. The host tells servers
// apart.
func (v *visit) issuer() string { return "Turnpike " + v.hostName() }

func startApp(v *visit) (*view, error) {
	err := v.write(func(tx *db.Tx) error {
		_, err := v.s.People.StartTOTP(v.ctx(), tx, v.session, v.issuer())
		return err
	})
	if err != nil {
		return nil, err
	}
	v.redirect("/dashboard/account/app", flash{})
	return nil, nil
}

type appData struct {
	Secret string // in groups of four, to type
	Code   qrCode
}

// appPage shows what the app needs until its first code comes back.
func appPage(v *visit) (*view, error) {
	e, err := v.s.People.PendingTOTP(v.ctx(), v.s.DB, v.session, v.issuer())
	if err != nil {
		return nil, err
	}
	code, err := drawQR(e.URL)
	if err != nil {
		return nil, err
	}
	return &view{template: "authapp", title: "Set up an authenticator app", data: appData{Secret: inFours(e.Secret), Code: code}}, nil
}

func inFours(s string) string {
	var out strings.Builder
	for i, c := range s {
		if i > 0 && i%4 == 0 {
			out.WriteByte(' ')
		}
		out.WriteRune(c)
	}
	return out.String()
}

// qrCode is a QR code as one path, with a white edge around it that readers need.
type qrCode struct {
	Size int // of the whole, in modules
	Path string
}

const qrEdge = 4

func drawQR(content string) (qrCode, error) {
	code, err := qr.Encode(content, qr.L, qr.Auto)
	if err != nil {
		return qrCode{}, err
	}
	size := code.Bounds().Dx()
	var path strings.Builder
	for y := range size {
		for x := 0; x < size; x++ {
			run := 0
			for x+run < size && isDark(code.At(x+run, y).RGBA()) {
				run++
			}
			if run == 0 {
				continue
			}
			n := strconv.Itoa(run)
			path.WriteString("M" + strconv.Itoa(x+qrEdge) + " " + strconv.Itoa(y+qrEdge) + "h" + n + "v1h-" + n + "z")
			x += run
		}
	}
	return qrCode{Size: size + 2*qrEdge, Path: path.String()}, nil
}

func isDark(r, _, _, _ uint32) bool { return r == 0 }

func enableApp(v *visit) (*view, error) {
	var codes []string
	err := v.write(func(tx *db.Tx) (err error) {
		codes, err = v.s.People.EnableTOTP(v.ctx(), tx, v.session, v.form("code"), v.browser())
		return err
	})
	if err != nil {
		return nil, err
	}
	v.redirect("/dashboard/account", flash{Notice: "The authenticator app is set up, and asked for at each sign-in. Everywhere else you are signed out.",
		Secret: strings.Join(codes, " "), Of: recoveryCodes})
	return nil, nil
}

func disableApp(v *visit) (*view, error) {
	if err := v.write(func(tx *db.Tx) error { return v.s.People.DisableTOTP(v.ctx(), tx, v.session, v.browser()) }); err != nil {
		return nil, err
	}
	v.redirect("/dashboard/account", flash{Notice: "The authenticator app is no longer asked for."})
	return nil, nil
}

func renewCodes(v *visit) (*view, error) {
	var codes []string
	err := v.write(func(tx *db.Tx) (err error) {
		codes, err = v.s.People.RenewRecoveryCodes(v.ctx(), tx, v.session, v.browser())
		return err
	})
	if err != nil {
		return nil, err
	}
	v.redirect("/dashboard/account", flash{Notice: "There are new recovery codes. The old ones no longer work.", Secret: strings.Join(codes, " "), Of: recoveryCodes})
	return nil, nil
}
