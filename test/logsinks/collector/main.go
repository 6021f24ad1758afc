// Command collector runs the OTLP receiver of the OpenTelemetry Collector without the rest of it:
//
//	collector ADDRESS COMPRESSION
//
// It accepts log records with this compression, or without any if that is none. It prints each batch as a line of
// OTLP JSON before it acknowledges it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configgrpc"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: collector ADDRESS COMPRESSION")
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
	select {}
}

func run(address, compression string) error {
	if compression == "none" {
		compression = ""
	}
	ctx, factory := context.Background(), otlpreceiver.NewFactory()
	cfg := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	cfg.Protocols.GRPC = configoptional.None[configgrpc.ServerConfig]()
	server := &cfg.Protocols.HTTP.GetOrInsertDefault().ServerConfig
	server.NetAddr.Endpoint, server.CompressionAlgorithms = address, []string{compression}
	logs, err := consumer.NewLogs(printBatch)
	if err != nil {
		return err
	}
	receiver, err := factory.CreateLogs(ctx, receivertest.NewNopSettings(factory.Type()), cfg, logs)
	if err != nil {
		return err
	}
	return receiver.Start(ctx, componenttest.NewNopHost())
}

func printBatch(_ context.Context, batch plog.Logs) error {
	text, err := (&plog.JSONMarshaler{}).MarshalLogs(batch)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s\n", text)
	return err
}
