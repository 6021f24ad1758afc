package logsinks

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"time"

	"turnpike/internal/safehttp"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

const (
	// defaultOTLPTimeout is the default of OTEL_EXPORTER_OTLP_TIMEOUT.
	defaultOTLPTimeout = 10 * time.Second
	// maxOTLPResponse limits the memory for a response, which has one short message.
	maxOTLPResponse = 1 << 20
)

// otlpTransport sends requests to a collector. The exporter fails after a partial success, as if the collector had
// stored nothing. So the transport takes it from the response.
type otlpTransport struct {
	*http.Transport
	partial *RejectedError // of the last response; nil if the collector accepted all records
	status  int            // of the last response; 0 without one
}

// newOTLPClient returns a client with the certificates and the timeout of the standard variables. The exporter ignores them if it gets a client.
func newOTLPClient() (*http.Client, *otlpTransport, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if file := otlpVariable("CERTIFICATE"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(text) {
			return nil, nil, fmt.Errorf("%s has no certificate in PEM format", file)
		}
		transport.TLSClientConfig.RootCAs = roots
	}
	if cert, key := otlpVariable("CLIENT_CERTIFICATE"), otlpVariable("CLIENT_KEY"); cert != "" && key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, nil, err
		}
		transport.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	timeout := defaultOTLPTimeout
	if ms, err := strconv.Atoi(otlpVariable("TIMEOUT")); err == nil { // the exporter reports other values
		timeout = time.Duration(ms) * time.Millisecond
	}
	t := &otlpTransport{Transport: transport}
	return &http.Client{Transport: safehttp.Bounded(t), Timeout: timeout}, t, nil
}

func otlpVariable(name string) string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_LOGS_"+name), os.Getenv("OTEL_EXPORTER_OTLP_"+name))
}

// RoundTrip implements http.RoundTripper.
func (t *otlpTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.partial, t.status = nil, 0
	response, err := t.Transport.RoundTrip(r)
	if err == nil {
		t.status = response.StatusCode
	}
	if err != nil || response.StatusCode < 200 || response.StatusCode > 299 {
		return response, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxOTLPResponse))
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	response.Body = http.NoBody
	t.partial, err = readPartialSuccess(response.Header.Get("Content-Type"), body)
	return response, err
}

// refuses reports whether the collector refuses the records of the last request for good.
func (t *otlpTransport) refuses() bool {
	return t.status == http.StatusBadRequest || t.status == http.StatusRequestEntityTooLarge
}

// readPartialSuccess returns what the response of a collector reports about rejected records, if anything.
func readPartialSuccess(contentType string, body []byte) (*RejectedError, error) {
	var response collector.ExportLogsServiceResponse
	var err error
	switch encoding, _, _ := mime.ParseMediaType(contentType); encoding {
	case "application/x-protobuf":
		err = proto.Unmarshal(body, &response)
	case "application/json":
		if len(body) > 0 {
			err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(body, &response)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("decode the response: %w", err)
	}
	p := response.GetPartialSuccess()
	if p.GetRejectedLogRecords() == 0 && p.GetErrorMessage() == "" {
		return nil, nil
	}
	return &RejectedError{p.GetRejectedLogRecords(), p.GetErrorMessage()}, nil
}
