package safehttp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"turnpike/internal/fault"
)

type failure struct {
	host  string // of the URL
	stage stage
	after time.Duration
	err   error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }
func (f *failure) Timeout() bool { return timedOut(f.err) }

// Class returns a stable word for the cause of a failure: dns, refused_address,
// connect, tls, timeout, reset, protocol, cancelled or other. Every timeout has
// the class timeout. Explain adds the stage.
func Class(err error) string {
	class, _ := classify(err)
	return class
}

// Explain returns the cause of a failure in one sentence, for the people who
// chose the URL. The error itself has more details, for the operator.
func Explain(err error) string {
	_, explanation := classify(err)
	return explanation
}

func classify(err error) (class, explanation string) {
	if err == nil {
		return "", ""
	}
	var unknown *net.DNSError
	f := &failure{}
	_ = errors.As(err, &f)
	switch {
	case isRefusedName(err):
		return "dns", f.explainDNS(nil) // the same as for a name that doesn't exist
	case refusal(err) != "":
		return "refused_address", refusal(err)
	case errors.Is(err, context.Canceled):
		return "cancelled", "the request was canceled"
	case timedOut(err):
		return "timeout", f.explainTimeout()
	case Exhausted(err):
		return "connect", "no connection could be made: this server has too many open files"
	case errors.As(err, &unknown):
		return "dns", f.explainDNS(unknown)
	case hasLargeHeaders(err):
		return "protocol", "the response headers are too large"
	case isClosed(err):
		return "reset", f.explainReset()
	case f.stage == handshaking, isTLS(err):
		return "tls", explainTLS(err)
	case f.stage == connecting, operation(err) == "dial":
		return "connect", explainConnect(err)
	case f.stage == responding, isMalformed(err):
		return "protocol", explainProtocol(err)
	}
	return "other", "the request failed"
}

// refusal returns the guard's reason, or "" if it did not refuse the request.
func refusal(err error) string {
	var refused *AddrError
	if errors.As(err, &refused) {
		return refused.Error()
	}
	if f, ok := fault.As(err); ok {
		return f.Message
	}
	return ""
}

// isRefusedName reports whether a name in the URL leads to an address that the
// guard refuses. An address in the URL itself is refused before anything is dialed.
func isRefusedName(err error) bool {
	var refused *AddrError
	return errors.As(err, &refused) && operation(err) == "dial" && refused.Addr.IsValid()
}

func timedOut(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if t, ok := err.(interface{ Timeout() bool }); ok && t.Timeout() {
			return true
		}
	}
	return false
}

func (f *failure) explainTimeout() string {
	if f.err == nil { // while reading the body
		return "no response in time"
	}
	within := "within " + seconds(f.after)
	switch f.stage {
	case resolving:
		return "the name could not be looked up " + within
	case handshaking:
		return "no TLS handshake " + within
	case responding:
		return "no response " + within
	}
	return "no connection " + within
}

func seconds(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%g s", d.Round(100*time.Millisecond).Seconds())
}

// explainDNS returns the same text for a name that doesn't exist and one with a
// refused address. Otherwise customers could find out which names the
// operator's network has.
func (f *failure) explainDNS(unknown *net.DNSError) string {
	switch {
	case unknown != nil && !unknown.IsNotFound:
		return fmt.Sprintf("the name %s could not be looked up", strings.TrimSuffix(unknown.Name, "."))
	case f.host != "":
		return fmt.Sprintf("the name %s does not resolve to a public address", f.host)
	}
	return "the name does not resolve to a public address"
}

// isClosed reports whether the server ended the connection, or in HTTP/2 the
// request, too early. net/http has no types for its own errors.
func isClosed(err error) bool {
	for _, target := range []error{syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed} {
		if errors.Is(err, target) {
			return true
		}
	}
	return mentions(err, "server closed idle connection", "server sent GOAWAY", "received GOAWAY", "client connection lost", "; received from peer")
}

func (f *failure) explainReset() string {
	switch f.stage {
	case handshaking:
		return "the server closed the connection during the TLS handshake"
	case responding:
		return "the server closed the connection before it responded"
	}
	return "the server closed the connection"
}

func isTLS(err error) bool {
	var (
		verify *tls.CertificateVerificationError
		record tls.RecordHeaderError
	)
	// An alert can come after the handshake: TLS 1.3 rejects clients that way.
	op := operation(err)
	return errors.As(err, &verify) || errors.As(err, &record) || op == "remote error" || op == "local error"
}

func explainTLS(err error) string {
	var (
		name      x509.HostnameError
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		roots     x509.SystemRootsError
		verify    *tls.CertificateVerificationError
		record    tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &name):
		return "the certificate is not valid for this name"
	case errors.As(err, &authority):
		return "the certificate is not signed by a known authority"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate has expired or is not valid yet"
	case errors.As(err, &roots):
		return "no certificate can be checked: this server has no list of authorities"
	case errors.As(err, &verify):
		return "the certificate is not valid"
	case errors.As(err, &record):
		return "the server does not speak TLS on this port"
	case mentions(err, "protocol version"):
		return "the server does not offer TLS 1.2 or newer"
	case operation(err) == "remote error":
		return "the server refused the TLS handshake"
	}
	return "the TLS handshake failed"
}

func explainConnect(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the server refused the connection"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "there is no route to the server"
	}
	return "no connection could be made"
}

// hasLargeHeaders reports whether the response headers exceed the client's
// limit or, in HTTP/2, the server's own. The server then ends the request with
// this code, which can't refer to the request.
func hasLargeHeaders(err error) bool {
	return mentions(err, "response headers exceeded", "header list larger", "FRAME_SIZE_ERROR; received from peer")
}

// isMalformed is for errors without a stage: from reading a body, from
// Bounded, and the one that http.Client itself adds.
func isMalformed(err error) bool {
	return errors.Is(err, ErrUpgraded) || mentions(err, "malformed", "chunk", "failed to parse Location header")
}

func explainProtocol(err error) string {
	switch {
	case errors.Is(err, ErrUpgraded):
		return ErrUpgraded.Error()
	case mentions(err, "connection error: PROTOCOL_ERROR"): // net/http's for both
		return "the response is not valid HTTP/2, or its headers are far too large"
	case mentions(err, "failed to parse Location header"):
		return "the response is a redirect to an invalid URL"
	}
	return "the response is not valid HTTP"
}

func operation(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op
	}
	return ""
}

func mentions(err error, phrases ...string) bool {
	text := err.Error()
	return slices.ContainsFunc(phrases, func(phrase string) bool { return strings.Contains(text, phrase) })
}

// MoreDescriptors tells an operator how to fix Exhausted.
const MoreDescriptors = "raise LimitNOFILE of its service, or ulimit -n"

// exhausted are the errors of a machine that can't open another connection: no
// descriptors for the process, none for any process, no buffers.
var exhausted = []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS}

// Exhausted reports whether a connection failed because this server is out of
// file descriptors. The remote server isn't at fault.
func Exhausted(err error) bool {
	var lookup *net.DNSError
	isLookup := errors.As(err, &lookup)
	for _, errno := range exhausted {
		if errors.Is(err, errno) || isLookup && strings.Contains(lookup.Err, errno.Error()) { // a lookup keeps only the message
			return true
		}
	}
	return false
}
