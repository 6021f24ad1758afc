package logsinks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"turnpike/internal/audit"
)

// Kafka is a topic and how to reach it.
type Kafka struct {
	Brokers []string
	Topic   string
	TLS     bool
	// Cert and Key are the files of a client certificate, or empty.
	Cert, Key string
	// SASL is plain, scram-sha-256 or scram-sha-512, or none.
	SASL     string
	Username string
	Password string

	roots *x509.CertPool // nil for those of the system
}

// connectTimeout is how long the first connection to a broker may take.
const connectTimeout = 10 * time.Second

// OpenKafka connects to the brokers.
func OpenKafka(ctx context.Context, k Kafka) (Sender, error) {
	// Records are acknowledged by all in-sync replicas, and retries don't duplicate them: that is the default. A
	// canceled request may, which is why the client is closed after each failure.
	options := []kgo.Opt{kgo.SeedBrokers(k.Brokers...), kgo.DefaultProduceTopic(k.Topic), kgo.ClientID("turnpike"), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.AllowIdempotentProduceCancellation(), kgo.ProducerLinger(0), kgo.DisableClientMetrics()}
	if k.TLS {
		options = append(options, kgo.DialTLSConfig(k.tlsConfig()))
	}
	if mechanism := k.mechanism(); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("Kafka: %w", err)
	}
	s := &kafkaSender{client, k.Topic}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := s.check(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (k Kafka) tlsConfig() *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: k.roots}
	if k.Cert != "" {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // the files may have changed
			pair, err := tls.LoadX509KeyPair(k.Cert, k.Key)
			return &pair, err
		}
	}
	return c
}

func (k Kafka) mechanism() sasl.Mechanism {
	switch k.SASL {
	case "plain":
		return plain.Auth{User: k.Username, Pass: k.Password}.AsMechanism()
	case "scram-sha-256":
		return scram.Auth{User: k.Username, Pass: k.Password}.AsSha256Mechanism()
	case "scram-sha-512":
		return scram.Auth{User: k.Username, Pass: k.Password}.AsSha512Mechanism()
	}
	return nil
}

type kafkaSender struct {
	client *kgo.Client
	topic  string
}

// check reads the metadata of the topic.
func (s *kafkaSender) check(ctx context.Context) error {
	if err := s.client.Ping(ctx); err != nil {
		return fmt.Errorf("Kafka: %w", err)
	}
	request := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &s.topic
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(ctx, s.client)
	if err != nil {
		return fmt.Errorf("Kafka: %w", err)
	}
	for _, t := range response.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return fmt.Errorf("Kafka: topic %s: %w", s.topic, err)
		}
	}
	return nil
}

// record is the value of a Kafka record, and the body of an OTLP record.
type record struct {
	*audit.Object
	WorkspaceID string `json:"workspace_id"`
}

func newRecord(e *audit.Entry) record { return record{audit.NewObject(e), e.WorkspaceID} }

// Send implements Sender. Entries of a workspace are in one partition, in their order.
func (s *kafkaSender) Send(ctx context.Context, list []*audit.Entry) error {
	records := make([]*kgo.Record, len(list))
	for i, e := range list {
		value, err := json.Marshal(newRecord(e))
		if err != nil {
			return fmt.Errorf("encode %s: %w", e.RequestID, err)
		}
		records[i] = &kgo.Record{Key: []byte(e.WorkspaceID), Value: value}
	}
	err := s.client.ProduceSync(ctx, records...).FirstErr()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("Kafka: %w", err)
	if errors.Is(err, context.DeadlineExceeded) { // say what the client retried
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
		defer cancel()
		err = errors.Join(err, s.check(ctx))
	}
	return err
}

// Close implements Sender.
func (s *kafkaSender) Close() { s.client.Close() }
