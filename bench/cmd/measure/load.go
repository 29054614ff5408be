// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // what the exporter compresses must be read

	"github.com/otelcol-stream/otelcol-stream/bench/internal/payload"
	"github.com/otelcol-stream/otelcol-stream/test/collector"
)

const (
	loadBatch   = 1_000
	loadSenders = 4
	// Of the mix, every hundredth span has chunks and every twenty-fifth only a first chunk.
	loadStreaming = loadBatch * 5 / 100
)

// pipeline is one way to run the built binary.
type pipeline struct {
	name, config string
	streams      bool // the processor is in it
}

// common is what all pipelines share. The queues are off, so that a request ends when its spans have left the collector.
const common = `
receivers: {otlp: {protocols: {grpc: {endpoint: "${env:OTLP_GRPC_ENDPOINT}", max_recv_msg_size_mib: 64}}}}
exporters:
  otlp: {endpoint: "${env:SINK}", tls: {insecure: true}, sending_queue: {enabled: false}, retry_on_failure: {enabled: false}}
  otlp/uncompressed: {endpoint: "${env:SINK}", compression: none, tls: {insecure: true}, sending_queue: {enabled: false}, retry_on_failure: {enabled: false}}
  nop: {}
processors: {stream: {}}
connectors: {stream: {}}
extensions: {health_check: {endpoint: "${env:HEALTH_ENDPOINT}"}}
service:
  extensions: [health_check]
  telemetry:
    logs: {level: error}
    metrics: {readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: "${env:TELEMETRY_PORT}", without_scope_info: true, without_type_suffix: true, without_units: true}}}}]}
`

// pipelines are measured in pairs: each against the first of its kind. A collector that exports as its exporter does by default, which is
// with gzip, is what people run; without compression, or throwing its spans away, it shows more of what the processor costs.
var pipelines = []pipeline{
	{"otlp/without", "{traces: {receivers: [otlp], exporters: [otlp]}}", false},
	{"otlp/processor", "{traces: {receivers: [otlp], processors: [stream], exporters: [otlp]}}", true},
	{"otlp/processor+connector", "{traces: {receivers: [otlp], processors: [stream], exporters: [otlp, stream]}, metrics: {receivers: [stream], exporters: [nop]}}", true},
	{"uncompressed/without", "{traces: {receivers: [otlp], exporters: [otlp/uncompressed]}}", false},
	{"uncompressed/processor", "{traces: {receivers: [otlp], processors: [stream], exporters: [otlp/uncompressed]}}", true},
	{"nop/without", "{traces: {receivers: [otlp], exporters: [nop]}}", false},
	{"nop/processor", "{traces: {receivers: [otlp], processors: [stream], exporters: [nop]}}", true},
}

// running is a pipeline under load.
type running struct {
	pipeline
	process *collector.Process
	client  ptraceotlp.GRPCClient
	sent    int
}

// runLoad keeps all pipelines running and loads them in turn, in the opposite order every second round, so that the two of a pair are
// measured within seconds of each other and neither is always first. The generator waits for every answer, so the rate is the collector's.
func runLoad(ctx context.Context, rounds, spans int) error {
	sink, stopSink, err := startSink(ctx)
	if err != nil {
		return err
	}
	defer stopSink()

	var all []*running
	defer func() {
		for _, r := range all {
			_ = r.process.Stop()
		}
	}()
	for _, p := range pipelines {
		process, err := collector.Run(ctx, collector.Options{
			Configs: []string{common, "\nservice: {pipelines: " + p.config + "}\n"},
			// One core: the rate of a collector that leaves no core idle does not depend on how many the generator leaves it.
			Env: map[string]string{"SINK": sink, "GOMAXPROCS": "1"},
		})
		if err != nil {
			return err
		}
		r := &running{pipeline: p, process: process}
		all = append(all, r)
		conn, err := process.GRPC()
		if err != nil {
			return err
		}
		r.client = ptraceotlp.NewGRPCClient(conn)
	}

	request := ptraceotlp.NewExportRequestFromTraces(payload.Mix(loadBatch))
	for _, r := range all { // warm up: connections, heap size, series
		if err := r.load(ctx, request, 20*loadBatch); err != nil {
			return err
		}
	}
	f, err := create(loadFile)
	if err != nil {
		return err
	}
	defer f.Close()
	for round := range rounds {
		order := slices.Clone(all)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, r := range order {
			used, took, err := r.measure(ctx, request, spans)
			if err != nil {
				return err
			}
			fmt.Fprintf(f, "BenchmarkLoad/%s 1 %.6f cpu-s/Mspan %.0f spans/s\n", r.name, used.Seconds()/float64(spans)*1e6, float64(spans)/took.Seconds())
		}
		fmt.Printf("Load, round %d of %d\n", round+1, rounds)
	}
	for _, r := range all {
		if err := r.check(ctx); err != nil {
			return err
		}
	}
	return f.Close()
}

func (r *running) measure(ctx context.Context, request ptraceotlp.ExportRequest, spans int) (used, took time.Duration, err error) {
	before, err := cpuTimeOf(r.process.PID())
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	if err = r.load(ctx, request, spans); err != nil {
		return 0, 0, err
	}
	took = time.Since(start)
	after, err := cpuTimeOf(r.process.PID())
	return after - before, took, err
}

// cpuTimeOf is what utime and stime of /proc/PID/stat add up to, in nanoseconds instead of hundredths of a second.
func cpuTimeOf(pid int) (time.Duration, error) {
	const schedClock = 2 // CPUCLOCK_SCHED of linux/posix-timers.h: the clock of a process by its id
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &t); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// load sends spans over several requests at a time.
func (r *running) load(ctx context.Context, request ptraceotlp.ExportRequest, spans int) error {
	batches := make(chan struct{})
	errs := make([]error, loadSenders)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i := range loadSenders {
		wg.Go(func() {
			for range batches {
				if _, err := r.client.Export(ctx, request); err != nil {
					errs[i] = err
					cancel()
					return
				}
			}
		})
	}
send:
	for range spans / loadBatch {
		select {
		case batches <- struct{}{}:
			r.sent += loadBatch
		case <-ctx.Done():
			break send
		}
	}
	close(batches)
	wg.Wait()
	return errors.Join(errs...)
}

// check holds the collector's own counts against what was sent.
func (r *running) check(ctx context.Context) error {
	samples, err := r.process.Telemetry(ctx)
	if err != nil {
		return err
	}
	streaming, out := 0, r.sent
	if r.streams {
		streaming = r.sent / loadBatch * loadStreaming
		out += streaming
	}
	for _, want := range []struct {
		name   string
		labels map[string]string
		n      int
	}{
		{"otelcol_receiver_accepted_spans", nil, r.sent},
		{"otelcol_processor_stream_spans", map[string]string{"result": "split"}, streaming},
		{"otelcol_exporter_sent_spans", nil, out},
	} {
		if got := collector.Sum(samples, want.name, want.labels); want.name != "otelcol_exporter_sent_spans" || got > 0 {
			if int(got) != want.n {
				return fmt.Errorf("%s: %s is %.0f after %d spans, want %d", r.name, want.name, got, r.sent, want.n)
			}
		}
	}
	return nil
}

// sinkServer takes what the collectors export.
type sinkServer struct {
	ptraceotlp.UnimplementedGRPCServer
}

func (*sinkServer) Export(context.Context, ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	return ptraceotlp.NewExportResponse(), nil
}

func startSink(ctx context.Context) (endpoint string, stop func(), err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	ptraceotlp.RegisterGRPCServer(s, &sinkServer{})
	go func() { _ = s.Serve(l) }()
	return l.Addr().String(), s.Stop, nil
}
