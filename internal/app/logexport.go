package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	sdklog "go.opentelemetry.io/otel/sdk/log"
)

// LogExport is a log handler that sends the log by OTLP over HTTP to the collector
// of the standard variables.
type LogExport struct {
	exportHandler
	provider *sdklog.LoggerProvider
}

// StartLogExport starts to send the log. Redact removes secrets from each text.
func StartLogExport(ctx context.Context, version string, level slog.Leveler, redact func(string) string) (*LogExport, error) {
	configured, err := hasCollector("LOGS")
	if err != nil {
		return nil, err
	}
	if !configured {
		return nil, errors.New("log.otlp is set, but no collector is: set OTEL_EXPORTER_OTLP_LOGS_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT to a URL, such as http://localhost:4318")
	}
	about, err := describeService(ctx, version)
	if err != nil {
		return nil, err
	}
	to, err := otlploghttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("OpenTelemetry: %w", err)
	}
	// The queue of the processor is bounded, and drops records if the collector is slow.
	provider := sdklog.NewLoggerProvider(sdklog.WithResource(about), sdklog.WithProcessor(sdklog.NewBatchProcessor(to)))
	handler := otelslog.NewHandler("turnpike", otelslog.WithLoggerProvider(provider))
	return &LogExport{exportHandler{handler, level, redact}, provider}, nil
}

// Close sends the last records. The handler must not be used anymore.
func (e *LogExport) Close() { sendLast(context.Background(), e.provider.Shutdown) }

// exportHandler passes records on without secrets.
type exportHandler struct {
	slog.Handler
	level  slog.Leveler
	redact func(string) string
}

// Enabled implements slog.Handler.
func (h exportHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

// Handle implements slog.Handler. It drops the message about data that can't be
// sent, which couldn't be sent either.
func (h exportHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == exportFailed {
		return nil
	}
	clean := slog.NewRecord(r.Time, r.Level, h.redact(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(h.clean(a))
		return true
	})
	return h.Handler.Handle(ctx, clean)
}

// WithAttrs implements slog.Handler.
func (h exportHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return exportHandler{h.Handler.WithAttrs(h.cleanAll(attrs)), h.level, h.redact}
}

// WithGroup implements slog.Handler.
func (h exportHandler) WithGroup(name string) slog.Handler {
	return exportHandler{h.Handler.WithGroup(name), h.level, h.redact}
}

func (h exportHandler) cleanAll(attrs []slog.Attr) []slog.Attr {
	out := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		out[i] = h.clean(a)
	}
	return out
}

func (h exportHandler) clean(a slog.Attr) slog.Attr {
	switch value := a.Value.Resolve(); value.Kind() {
	case slog.KindGroup:
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(h.cleanAll(value.Group())...)}
	case slog.KindString, slog.KindAny:
		return slog.String(a.Key, h.redact(value.String()))
	default: // numbers, times and booleans
		return slog.Attr{Key: a.Key, Value: value}
	}
}
