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

// timeout bounds connecting, each of greeting and login, and sending one mail:
// long enough for a server that looks for viruses before it answers.
const timeout = 30 * time.Second

var (
	// errRefused is of a mail that no retry can change.
	errRefused = errors.New("refused")
	// errUnreachable ends a round: the server takes no mail now.
	errUnreachable = errors.New("the mail server cannot be reached")
)

// security is how a connection is protected.
type security int

const (
	startTLS  security = iota // encrypted before anything is said
	fromStart                 // encrypted from the first byte
	plaintext
)

// SMTP is a mail server to give mails to.
type SMTP struct {
	// RootCAs may sign the server's certificate; nil means the system's.
	RootCAs *x509.CertPool

	host, port     string
	user, password string
	security       security
	from           *netmail.Address
}

// NewSMTP reads the server's address, smtp://user:password@host:587 or
// smtps://user:password@host:465, and the sender's. Its errors quote neither
// the address nor a part of it.
//
// With smtp:// the connection must be encrypted by STARTTLS, unless the server
// is on this machine: there nobody listens, and the certificate of a local
// server is rarely one to verify. ?tls=starttls demands it there too, and
// ?tls=insecure-plaintext does without it anywhere.
func NewSMTP(address, from string) (*SMTP, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("the mail server's address is not a URL")
	}
	sender, err := netmail.ParseAddress(from)
	if err != nil {
		return nil, fmt.Errorf("the sender of mails, %q: %w", from, err)
	}
	s := &SMTP{host: u.Hostname(), port: u.Port(), user: u.User.Username(), from: sender}
	s.password, _ = u.User.Password()
	if s.host == "" || strings.Trim(u.Path, "/") != "" {
		return nil, errors.New("the mail server's address is not of the form smtp://user:password@host:port")
	}
	switch mode := u.Query().Get("tls"); {
	case u.Scheme == "smtps" && mode == "":
		s.security = fromStart
	case u.Scheme == "smtp" && mode == "starttls", u.Scheme == "smtp" && mode == "" && !loopback(s.host):
		s.security = startTLS
	case u.Scheme == "smtp" && (mode == "" || mode == "insecure-plaintext"):
		s.security = plaintext
	default:
		return nil, errors.New("the mail server's address is neither smtp:// nor smtps://, or has an unknown tls query")
	}
	if s.port == "" && s.security == fromStart {
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

// session is one connection after another, as they are needed.
type session struct {
	smtp   *SMTP
	raw    net.Conn
	client *gomail.Client
	conn   *smtp.Client // nil when there is none
}

func (s *SMTP) session() *session { return &session{smtp: s} }

// connect makes sure that there is a connection which can take a mail.
func (s *session) connect(ctx context.Context) (err error) {
	if s.conn != nil {
		// A server may hang up between two mails; that is no failure of the second.
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
	// Nothing is handed over yet, so whoever wants to stop need not wait.
	raw := s.raw
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	s.conn, err = s.client.DialToSMTPClientWithContext(ctx)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		s.drop() // the library leaves it open when TLS or the login fails
		return fmt.Errorf("connect to the mail server: %w", err)
	}
	return nil
}

// Check signs in to the mail server and says good-bye.
func (s *SMTP) Check(ctx context.Context) error {
	session := s.session()
	defer session.close()
	return session.connect(ctx)
}

// dial is ours, because the library's knows no IPv6 addresses.
func (s *SMTP) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	address := net.JoinHostPort(s.host, s.port)
	if s.security == fromStart {
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
	// The password itself goes over an encrypted connection, where every server
	// takes it. In plain text, what does not show it is tried first.
	logins := []gomail.SMTPAuthType{gomail.SMTPAuthPlain, gomail.SMTPAuthLogin, gomail.SMTPAuthSCRAMSHA256, gomail.SMTPAuthSCRAMSHA1, gomail.SMTPAuthCramMD5}
	switch s.security {
	case startTLS:
		options = append(options, gomail.WithTLSPolicy(gomail.TLSMandatory))
	case fromStart:
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

// send hands one mail over. An error that is errRefused is for good.
func (s *session) send(m *Mail, text string) error {
	msg, err := s.smtp.compose(m, text)
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	err = s.client.SendWithSMTPClient(s.conn, msg)
	// Behind the mail the library resets the connection; whatever comes of
	// that, the server has the mail.
	if err == nil || msg.IsDelivered() {
		return nil
	}
	var answer *gomail.SendError
	if !errors.As(err, &answer) || answer.ErrorCode() == 0 {
		// Not an answer of the server. A late one would be taken for that to the
		// next mail, so this connection must not see one.
		s.drop()
		return err
	}
	// A refused sender says something about our settings, like a refused login:
	// the operator has until the patience ends to mend it.
	if answer.ErrorCode() >= 500 && answer.Reason != gomail.ErrSMTPMailFrom {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return err
}

// compose makes the message. It is the same at each attempt, so that a mail
// which is sent twice can be recognized.
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

// close says goodbye.
func (s *session) close() {
	if s.conn != nil {
		_ = s.client.CloseWithSMTPClient(s.conn) // every mail has its answer already
	}
	s.drop()
}

func (s *session) drop() {
	if s.raw != nil {
		_ = s.raw.Close()
	}
	s.conn, s.raw = nil, nil
}
