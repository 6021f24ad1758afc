package app

import (
	"context"
	"errors"
	"time"

	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/logsinks"
	"turnpike/internal/nodes"
)

// LogSinks returns the sinks of the request log. Node is nil for a command, which only checks them.
func LogSinks(ctx context.Context, d *db.DB, c config.Audit, node *nodes.Node, version string) (list logsinks.List, err error) {
	add := func(name string, open func(context.Context) (logsinks.Sender, error)) {
		list = append(list, &logsinks.Sink{Name: name, DB: d, Node: node, Open: open, Now: time.Now})
	}
	if k := c.Kafka; len(k.Brokers) > 0 {
		topic := logsinks.Kafka{Brokers: k.Brokers, Topic: k.Topic, TLS: k.TLS, Cert: k.Cert, Key: k.Key, SASL: k.SASL, Username: k.Username, Password: string(k.Password)}
		add("kafka", func(ctx context.Context) (logsinks.Sender, error) { return logsinks.OpenKafka(ctx, topic) })
	}
	if c.OTLP {
		if configured, err := hasCollector("LOGS"); err != nil {
			return nil, err
		} else if !configured {
			return nil, errors.New("audit.otlp is set, but no collector is: set OTEL_EXPORTER_OTLP_LOGS_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT to a URL, such as http://localhost:4318")
		}
		about, err := describeService(ctx, version)
		if err != nil {
			return nil, err
		}
		add("otlp", func(ctx context.Context) (logsinks.Sender, error) { return logsinks.OpenOTLP(ctx, about) })
	}
	return list, nil
}
