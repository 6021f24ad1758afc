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
	"strings"
	"syscall"
	"time"

	"turnpike/internal/fault"
)

// failure is a failed request: the cause, and how far the request came when.
type failure struct {
	host  string // of the URL
	stage stage
	after time.Duration
	err   error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }
func (f *failure) Timeout() bool { return timedOut(f.err) }

// Class names why a request failed, in one stable word: dns, refused_address,
// connect, tls, timeout, reset, protocol, cancelled or other. Time that ran
// out is a timeout whatever was waited for; Explain says what it was.
func Class(err error) string {
	var unknown *net.DNSError
	stage := stageOf(err)
	switch {
	case err == nil:
		return ""
	case refusedName(err):
		return "dns" // as for a name that doesn't exist
	case refusal(err) != "":
		return "refused_address"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case timedOut(err):
		return "timeout"
	case Exhausted(err):
		return "connect"
	case errors.As(err, &unknown):
		return "dns"
	case largeHeaders(err):
		return "protocol"
	case closed(err):
		return "reset"
	case stage == handshake, aboutTLS(err):
		return "tls"
	case stage == connecting, operation(err) == "dial":
		return "connect"
	case stage == answer, malformed(err):
		return "protocol"
	}
	return "other"
}

// Explain says in one sentence why a request failed, for the people who chose
// its URL. The error itself says more, and is for the operator.
func Explain(err error) string {
	switch Class(err) {
	case "":
		return ""
	case "refused_address":
		return refusal(err)
	case "cancelled":
		return "the request was cancelled"
	case "timeout":
		return explainTimeout(err)
	case "dns":
		return explainDNS(err)
	case "reset":
		return explainReset(err)
	case "tls":
		return explainTLS(err)
	case "connect":
		return explainConnect(err)
	case "protocol":
		return explainProtocol(err)
	}
	return "the request failed"
}

func stageOf(err error) stage {
	var f *failure
	if errors.As(err, &f) {
		return f.stage
	}
	return beginning
}

// refusal is what the guard said, or nothing if it did not refuse.
func refusal(err error) string {
	var refused *Refused
	if errors.As(err, &refused) {
		return refused.Error()
	}
	if f, ok := fault.As(err); ok {
		return f.Message
	}
	return ""
}

// refusedName reports whether a name in the URL leads to an address that the
// guard refuses. An address in the URL itself is refused before anything is
// dialled.
func refusedName(err error) bool {
	var refused *Refused
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

func explainTimeout(err error) string {
	var f *failure
	if !errors.As(err, &f) {
		return "no answer in time"
	}
	within := "within " + seconds(f.after)
	switch f.stage {
	case lookup:
		return "the name could not be looked up " + within
	case handshake:
		return "no TLS handshake " + within
	case answer:
		return "no answer " + within
	}
	return "no connection " + within
}

// seconds is a duration as people write it: 10 s, 1.5 s, 250 ms.
func seconds(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%g s", d.Round(100*time.Millisecond).Seconds())
}

// explainDNS says the same of a name that doesn't exist and of one that leads to
// an address the guard refuses. Otherwise customers could find out which names
// the operator's network has.
func explainDNS(err error) string {
	var unknown *net.DNSError
	if errors.As(err, &unknown) && !unknown.IsNotFound {
		return fmt.Sprintf("the name %s could not be looked up", strings.TrimSuffix(unknown.Name, "."))
	}
	var f *failure
	if errors.As(err, &f) {
		return fmt.Sprintf("the name %s does not resolve to a public address", f.host)
	}
	return "the name does not resolve to a public address"
}

// closed reports that the other side ended the connection, or in HTTP/2 the
// request, too early. net/http has no types for its own words.
func closed(err error) bool {
	for _, target := range []error{syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed} {
		if errors.Is(err, target) {
			return true
		}
	}
	return says(err, "server closed idle connection", "server sent GOAWAY", "received GOAWAY", "client connection lost", "; received from peer")
}

func explainReset(err error) string {
	switch stageOf(err) {
	case handshake:
		return "the server closed the connection during the TLS handshake"
	case answer:
		return "the server closed the connection before it answered"
	}
	return "the server closed the connection"
}

func aboutTLS(err error) bool {
	var (
		verify *tls.CertificateVerificationError
		record tls.RecordHeaderError
	)
	// An alert can come after the handshake: TLS 1.3 refuses a client so.
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
	case says(err, "protocol version"):
		return "the server does not offer TLS 1.2 or newer"
	case operation(err) == "remote error":
		return "the server refused the TLS handshake"
	}
	return "the TLS handshake failed"
}

func explainConnect(err error) string {
	switch {
	case Exhausted(err):
		return "no connection could be made from here: too many open files"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the server refused the connection"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "there is no route to the server"
	}
	return "no connection could be made"
}

// largeHeaders reports that the answer's headers are more than we take or, in
// HTTP/2, than the server itself sends: it ends the request with this code,
// which cannot be about what we send.
func largeHeaders(err error) bool {
	return says(err, "response headers exceeded", "header list larger", "FRAME_SIZE_ERROR; received from peer")
}

// malformed is for the errors that carry no stage: from reading a body, from
// WithoutUpgrades, and the one that http.Client itself adds.
func malformed(err error) bool {
	return errors.Is(err, ErrUpgraded) || says(err, "malformed", "chunk", "failed to parse Location header")
}

func explainProtocol(err error) string {
	switch {
	case largeHeaders(err):
		return "the answer's headers are too large"
	case errors.Is(err, ErrUpgraded):
		return ErrUpgraded.Error()
	case says(err, "connection error: PROTOCOL_ERROR"): // net/http's for both
		return "the answer is not valid HTTP/2, or its headers are far too large"
	case says(err, "failed to parse Location header"):
		return "the answer is a redirect to an address that is not valid"
	}
	return "the answer is not valid HTTP"
}

// operation is what package net, or crypto/tls with its type, was about to do.
func operation(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op
	}
	return ""
}

func says(err error, parts ...string) bool {
	for _, part := range parts {
		if strings.Contains(err.Error(), part) {
			return true
		}
	}
	return false
}
