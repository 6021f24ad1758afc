package logsinks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"

	"turnpike/internal/audit"
)

// eventName is the name of all records, by which a collector can route them.
const eventName = "turnpike.request"

// otlpSender exports synchronously: the SDK's processors drop records that a collector doesn't accept.
type otlpSender struct {
	transport *otlpTransport
	exporter  *otlploghttp.Exporter
	provider  *sdklog.LoggerProvider
	logger    log.Logger
	records   *recordList
}

// recordList collects the records of a batch.
type recordList struct{ list []sdklog.Record }

func (r *recordList) OnEmit(_ context.Context, record *sdklog.Record) error {
	r.list = append(r.list, record.Clone())
	return nil
}

func (r *recordList) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }
func (r *recordList) Shutdown(context.Context) error                         { return nil }
func (r *recordList) ForceFlush(context.Context) error                       { return nil }

// OpenOTLP returns a sender to the collector of the standard variables. The resource describes this server.
func OpenOTLP(ctx context.Context, about *resource.Resource) (Sender, error) {
	client, transport, err := newOTLPClient()
	if err != nil {
		return nil, fmt.Errorf("OpenTelemetry: %w", err)
	}
	exporter, err := otlploghttp.New(ctx, otlploghttp.WithHTTPClient(client))
	if err != nil {
		return nil, fmt.Errorf("OpenTelemetry: %w", err)
	}
	records := &recordList{}
	provider := sdklog.NewLoggerProvider(sdklog.WithResource(about), sdklog.WithProcessor(records))
	return &otlpSender{transport, exporter, provider, provider.Logger("turnpike/request-log"), records}, nil
}

// Send implements Sender.
func (s *otlpSender) Send(ctx context.Context, list []*audit.Entry) error {
	s.records.list = s.records.list[:0]
	for _, e := range list {
		r, err := newOTLPRecord(e)
		if err != nil {
			return fmt.Errorf("encode %s: %w", e.RequestID, err)
		}
		s.logger.Emit(ctx, r)
	}
	if err := s.exporter.Export(ctx, s.records.list); err != nil {
		err = fmt.Errorf("OpenTelemetry: %w", err)
		if s.transport.refuses() {
			return &RefusedError{err}
		}
		return err
	}
	if s.transport.partial != nil {
		return s.transport.partial
	}
	return nil
}

// Close implements Sender.
func (s *otlpSender) Close() {
	_ = s.provider.Shutdown(context.Background()) // nothing is buffered
	_ = s.exporter.Shutdown(context.Background())
	s.transport.CloseIdleConnections()
}

// newOTLPRecord returns a record whose body has the fields of the API. Its attributes identify the entry
// without the body.
func newOTLPRecord(e *audit.Entry) (r log.Record, err error) {
	text, err := json.Marshal(newRecord(e))
	if err != nil {
		return r, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var fields map[string]any
	if err := decoder.Decode(&fields); err != nil {
		return r, err
	}
	r.SetEventName(eventName)
	r.SetTimestamp(e.CreatedAt)
	r.SetObservedTimestamp(time.Now())
	r.SetSeverity(log.SeverityInfo)
	r.SetBody(otlpValue(fields))
	r.AddAttributes(attribute.String("turnpike.request_id", e.RequestID), attribute.String("turnpike.workspace_id", e.WorkspaceID), attribute.String("turnpike.environment", string(e.Environment)))
	return r, nil
}

// otlpValue converts decoded JSON. It leaves out fields that are null.
func otlpValue(v any) attribute.Value {
	switch v := v.(type) {
	case string:
		return attribute.StringValue(v)
	case bool:
		return attribute.BoolValue(v)
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return attribute.Int64Value(n)
		}
		f, _ := v.Float64() // a number of JSON
		return attribute.Float64Value(f)
	case []any:
		list := make([]attribute.Value, len(v))
		for i, item := range v {
			list[i] = otlpValue(item)
		}
		return attribute.SliceValue(list...)
	case map[string]any:
		fields := make([]attribute.KeyValue, 0, len(v))
		for name, field := range v {
			if field != nil {
				fields = append(fields, attribute.KeyValue{Key: attribute.Key(name), Value: otlpValue(field)})
			}
		}
		slices.SortFunc(fields, func(a, b attribute.KeyValue) int { return cmp.Compare(a.Key, b.Key) })
		return attribute.MapValue(fields...)
	}
	return attribute.Value{}
}
