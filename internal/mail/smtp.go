package mail

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	netmail "net/mail"
	"net/netip"
	"net/url"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"
)

// timeout limits connecting, the greeting, the login, and sending one email. It is
// long enough for a server that scans for viruses before it responds.
const timeout = 30 * time.Second

var (
	// errRejected means that a retry cannot succeed.
	errRejected = errors.New("rejected")
	// errUnreachable ends a round.
	errUnreachable = errors.New("the mail server cannot be reached")
)

// security is how a connection is encrypted.
type security int

const (
	startTLS security = iota
	implicitTLS
	plaintext
)

// SMTP is the mail server that sends emails.
type SMTP struct {
	// RootCAs may sign the server's certificate; nil means the system's.
	RootCAs *x509.CertPool

	host, port     string
	user, password string
	security       security
	from           *netmail.Address
}

// NewSMTP parses the server's address, smtp://user:password@host:587 or
// smtps://user:password@host:465, and the sender's. Its errors don't contain the
// address.
//
// smtp:// requires STARTTLS unless the server is on this machine, where certificates
// can rarely be verified. ?tls=starttls requires it there, too, and
// ?tls=insecure-plaintext nowhere.
func NewSMTP(address, from string) (*SMTP, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("the mail server's address is not a URL")
	}
	sender, err := netmail.ParseAddress(from)
	if err != nil {
		return nil, fmt.Errorf("the sender of emails, %q: %w", from, err)
	}
	s := &SMTP{host: u.Hostname(), port: u.Port(), user: u.User.Username(), from: sender}
	s.password, _ = u.User.Password()
	if s.host == "" || strings.Trim(u.Path, "/") != "" {
		return nil, errors.New("the mail server's address is not of the form smtp://user:password@host:port")
	}
	switch mode := u.Query().Get("tls"); {
	case u.Scheme == "smtps" && mode == "":
		s.security = implicitTLS
	case u.Scheme == "smtp" && mode == "starttls", u.Scheme == "smtp" && mode == "" && !loopback(s.host):
		s.security = startTLS
	case u.Scheme == "smtp" && (mode == "" || mode == "insecure-plaintext"):
		s.security = plaintext
	default:
		return nil, errors.New("the mail server's address is neither smtp:// nor smtps://, or has an unknown tls query")
	}
	if s.port == "" && s.security == implicitTLS {
		s.port = "465"
	} else if s.port == "" {
		s.port = "587"
	}
	return s, nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// session sends emails over one connection, and reconnects if necessary.
type session struct {
	smtp   *SMTP
	raw    net.Conn
	client *gomail.Client
	conn   *smtp.Client // nil if not connected
}

func (s *SMTP) session() *session { return &session{smtp: s} }

// connect connects unless the session has a working connection.
func (s *session) connect(ctx context.Context) (err error) {
	if s.conn != nil {
		// A server may close the connection between two emails.
		if s.client.ResetWithSMTPClient(s.conn) == nil {
			return nil
		}
		s.drop()
	}
	if s.raw, err = s.smtp.dial(ctx); err != nil {
		return fmt.Errorf("connect to the mail server: %w", err)
	}
	if s.client, err = s.smtp.newClient(s.raw); err != nil {
		return fmt.Errorf("mail client: %w", err)
	}
	// Nothing is sent yet, so the end of ctx can interrupt it.
	raw := s.raw
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	s.conn, err = s.client.DialToSMTPClientWithContext(ctx)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		s.drop() // the library leaves it open if TLS or the login fails
		return fmt.Errorf("connect to the mail server: %w", err)
	}
	return nil
}

// Check logs in to the mail server and disconnects.
func (s *SMTP) Check(ctx context.Context) error {
	session := s.session()
	defer session.quit()
	return session.connect(ctx)
}

// dial replaces the library's dialer, which doesn't support IPv6 addresses.
func (s *SMTP) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	address := net.JoinHostPort(s.host, s.port)
	if s.security == implicitTLS {
		return (&tls.Dialer{Config: s.tls()}).DialContext(ctx, "tcp", address)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

func (s *SMTP) tls() *tls.Config {
	return &tls.Config{ServerName: s.host, RootCAs: s.RootCAs, MinVersion: tls.VersionTLS12}
}

func (s *SMTP) newClient(conn net.Conn) (*gomail.Client, error) {
	options := []gomail.Option{
		gomail.WithTimeout(timeout), gomail.WithTLSConfig(s.tls()), gomail.WithoutNoop(),
		gomail.WithDialContextFunc(func(context.Context, string, string) (net.Conn, error) { return conn, nil }),
	}
	// PLAIN first over TLS, because every server supports it. Without TLS, first the
	// mechanisms that don't send the password.
	logins := []gomail.SMTPAuthType{gomail.SMTPAuthPlain, gomail.SMTPAuthLogin, gomail.SMTPAuthSCRAMSHA256, gomail.SMTPAuthSCRAMSHA1, gomail.SMTPAuthCramMD5}
	switch s.security {
	case startTLS:
		options = append(options, gomail.WithTLSPolicy(gomail.TLSMandatory))
	case implicitTLS:
		options = append(options, gomail.WithSSL())
	case plaintext:
		options = append(options, gomail.WithTLSPolicy(gomail.NoTLS))
		logins = []gomail.SMTPAuthType{gomail.SMTPAuthSCRAMSHA256, gomail.SMTPAuthSCRAMSHA1, gomail.SMTPAuthCramMD5, gomail.SMTPAuthPlainNoEnc, gomail.SMTPAuthLoginNoEnc}
	}
	if s.user != "" {
		options = append(options, gomail.WithUsername(s.user), gomail.WithPassword(s.password), gomail.WithOpportunisticSMTPAuth(logins...))
	}
	return gomail.NewClient(s.host, options...)
}

// send sends one email. It returns errRejected if a retry cannot succeed.
func (s *session) send(m *Mail, text string) error {
	msg, err := s.smtp.compose(m, text)
	if err != nil {
		return fmt.Errorf("%w: %w", errRejected, err)
	}
	err = s.client.SendWithSMTPClient(s.conn, msg)
	// The library resets the connection after the email. If only that fails, the
	// server has the email.
	if err == nil || msg.IsDelivered() {
		return nil
	}
	var response *gomail.SendError
	if !errors.As(err, &response) || response.ErrorCode() == 0 {
		// Not a response of the server. A late one would be taken for the response
		// to the next email, so drop the connection.
		s.drop()
		return err
	}
	// A rejected sender is a configuration error, like a rejected login. The operator
	// has until maxAge to fix it.
	if response.ErrorCode() >= 500 && response.Reason != gomail.ErrSMTPMailFrom {
		return fmt.Errorf("%w: %w", errRejected, err)
	}
	return err
}

// compose builds the message. It is the same at each attempt, so that mail servers
// recognize duplicates.
func (s *SMTP) compose(m *Mail, text string) (*gomail.Msg, error) {
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	msg.FromMailAddress(s.from)
	if err := msg.To(m.To); err != nil {
		return nil, err
	}
	domain := s.from.Address[strings.LastIndexByte(s.from.Address, '@')+1:]
	msg.SetMessageIDWithValue(m.ID + "@" + domain)
	msg.SetDateWithValue(m.CreatedAt.UTC())
	msg.Subject(m.Subject)
	msg.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: no out-of-office replies
	msg.SetBodyString(gomail.TypeTextPlain, text)
	return msg, nil
}

func (s *session) quit() {
	if s.conn != nil {
		_ = s.client.CloseWithSMTPClient(s.conn) // every email has its response
	}
	s.drop()
}

func (s *session) drop() {
	if s.raw != nil {
		_ = s.raw.Close()
	}
	s.conn, s.raw = nil, nil
}
