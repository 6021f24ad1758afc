package config

import (
	"net"
	"regexp"
	"strconv"
)

// Audit configures the request log.
type Audit struct {
	Strict        bool       `name:"strict" reload:"yes" default:"false" help:"Call a provider only after the request's log entry is durable; costs latency."`
	RetentionDays int        `name:"retention_days" default:"400" min:"1" max:"36500" help:"Days that the request log is kept in the database. With audit.archive.to, entries are deleted only after they are archived, and can be read from the archive."`
	Archive       LogArchive `name:"archive"`
	OTLP          bool       `name:"otlp" default:"false" help:"Send the request log by OTLP over HTTP to the collector of OTEL_EXPORTER_OTLP_LOGS_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT."`
	Kafka         LogKafka   `name:"kafka"`
}

// KeptDays returns how long the request log is kept, in the database or the archive; 0 means forever.
func (a Audit) KeptDays() int {
	if a.Archive.To != "" {
		return a.Archive.RetentionDays
	}
	return a.RetentionDays
}

// LogArchive configures the archive of the request log.
type LogArchive struct {
	To            SecretURL `name:"to" help:"Where to archive the request log as Parquet files: a directory, or a bucket with a prefix, such as s3://name/prefix?region=eu-central-1, in the form of files.url. Empty turns the archive off. With several nodes, use a bucket or a shared directory."`
	RetentionDays int       `name:"retention_days" default:"400" min:"0" max:"36500" help:"Days that the archive is kept, and with it the admin log, which stays in the database; at least audit.retention_days. 0 keeps them forever."`
}

// LogKafka configures the topic that gets the request log.
type LogKafka struct {
	Brokers  []string `name:"brokers" help:"Kafka brokers to send the request log to, such as kafka-1.example.com:9092,kafka-2.example.com:9092. Empty turns this off."`
	Topic    string   `name:"topic" help:"Topic for the request log; required with audit.kafka.brokers. It must exist."`
	TLS      bool     `name:"tls" default:"true" help:"Connect to the brokers with TLS."`
	Cert     string   `name:"cert" node:"yes" help:"PEM file with a client certificate for the brokers, together with audit.kafka.key."`
	Key      string   `name:"key" node:"yes" help:"PEM file with the private key of audit.kafka.cert."`
	SASL     string   `name:"sasl" default:"none" oneof:"none,plain,scram-sha-256,scram-sha-512" help:"How to sign in to the brokers: none, plain, scram-sha-256 or scram-sha-512."`
	Username string   `name:"username" help:"User for audit.kafka.sasl."`
	Password Secret   `name:"password" help:"Password for audit.kafka.sasl."`
}

// SASLNone is the audit.kafka.sasl that doesn't sign in.
const SASLNone = "none"

func (a Audit) check(f *faults) {
	a.Kafka.check(f)
	if a.Archive.To == "" {
		return
	}
	f.note("audit.archive.to", BackupFault(string(a.Archive.To)))
	f.addIf(a.Archive.RetentionDays > 0 && a.Archive.RetentionDays < a.RetentionDays, "audit.archive.retention_days",
		"%d is less than audit.retention_days, so nothing would be read from the archive; expected at least %d, or 0 to keep the archive forever", a.Archive.RetentionDays, a.RetentionDays)
}

func (k LogKafka) check(f *faults) {
	if len(k.Brokers) == 0 {
		f.addIf(k.Topic != "", "audit.kafka.topic", "is of no use without audit.kafka.brokers")
		return
	}
	for _, broker := range k.Brokers {
		host, port, err := net.SplitHostPort(broker)
		n, _ := strconv.ParseUint(port, 10, 16)
		f.addIf(err != nil || host == "" || n == 0, "audit.kafka.brokers", "%q is not a host and a port; expected such as kafka.example.com:9092", broker)
	}
	f.addIf(!kafkaTopic.MatchString(k.Topic), "audit.kafka.topic", "%q is not the name of a topic; expected from 1 to 249 letters, digits, dots, hyphens and underscores", k.Topic)
	f.addIf(k.Cert == "" && k.Key != "", "audit.kafka.cert", "audit.kafka.key is set, so its certificate file is expected here too")
	f.addIf(k.Key == "" && k.Cert != "", "audit.kafka.key", "audit.kafka.cert is set, so its key file is expected here too")
	f.addIf(k.Cert != "" && !k.TLS, "audit.kafka.tls", "is required with audit.kafka.cert")
	f.addIf(k.SASL != SASLNone && k.Username == "", "audit.kafka.username", "is required with audit.kafka.sasl")
	f.addIf(k.SASL != SASLNone && k.Password == "", "audit.kafka.password", "is required with audit.kafka.sasl")
	f.addIf(k.SASL == SASLNone && (k.Username != "" || k.Password != ""), "audit.kafka.sasl", "is required with audit.kafka.username and audit.kafka.password; expected plain, scram-sha-256 or scram-sha-512")
	f.addIf(k.SASL == "plain" && !k.TLS, "audit.kafka.sasl", "plain would send the password without encryption; turn on audit.kafka.tls, or use scram-sha-512")
}

var kafkaTopic = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
