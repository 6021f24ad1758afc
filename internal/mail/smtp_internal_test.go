package mail

import "testing"

func TestConnectionIsEncryptedUnlessItStaysOnThisMachine(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]SMTP{
		"smtp://mail.example.com":                        {security: startTLS, port: "587"},
		"smtp://mail.example.com:25?tls=starttls":        {security: startTLS, port: "25"},
		"smtp://mail.example.com?tls=insecure-plaintext": {security: plaintext, port: "587"},
		"smtp://localhost.example.com":                   {security: startTLS, port: "587"},
		"smtp://10.0.0.1":                                {security: startTLS, port: "587"},
		"smtp://localhost:25":                            {security: plaintext, port: "25"},
		"smtp://127.9.9.9":                               {security: plaintext, port: "587"},
		"smtp://[::1]":                                   {security: plaintext, port: "587"},
		"smtp://[::1]?tls=starttls":                      {security: startTLS, port: "587"},
		"smtps://mail.example.com":                       {security: implicitTLS, port: "465"},
		"smtps://localhost:2465":                         {security: implicitTLS, port: "2465"},
	} {
		s, err := NewSMTP(address, "a@example.com")
		if err != nil {
			t.Errorf("%s: %v", address, err)
		} else if s.security != want.security || s.port != want.port {
			t.Errorf("%s: security %d on port %s, want %d on %s", address, s.security, s.port, want.security, want.port)
		}
	}
}
