// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

// Quickstart is what `make run` runs: it starts the built collector with examples/quickstart, replays captures of real
// instrumentations over OTLP/HTTP, stops it, and says in plain words what the collector made of them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/test/captures"
	"github.com/otelcol-stream/otelcol-stream/test/collector"
)

// captureKey is a resource attribute that the replay adds to what it sends, so that metrics can be told apart by capture.
const captureKey = "replay.capture"

func main() {
	var s settings
	flag.StringVar(&s.binary, "collector", "dist/otelcol-stream", "collector to run")
	flag.StringVar(&s.config, "config", "examples/quickstart/config.yaml", "its configuration")
	flag.StringVar(&s.out, "out", "dist/run", "folder for what the collector writes")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, s); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

type settings struct{ binary, config, out string }

func run(ctx context.Context, w io.Writer, s settings) error {
	all, err := captures.All(collector.Root())
	if err != nil {
		return err
	}
	if err = errors.Join(os.RemoveAll(s.out), os.MkdirAll(s.out, 0o755)); err != nil {
		return err
	}

	fmt.Fprintf(w, "Starting %s with %s ...\n", s.binary, s.config)
	c, err := collector.Run(ctx, collector.Options{Binary: s.binary, Configs: []string{s.config}, Ports: []string{"PROMETHEUS"}, OutputDir: s.out})
	if err != nil {
		return err
	}
	defer c.Kill() //nolint:errcheck // it has ended by then, unless something failed

	in, err := replay(ctx, w, c, all)
	if err != nil {
		return err
	}
	samples, err := c.Telemetry(ctx)
	if err != nil {
		return fmt.Errorf("read the collector's own metrics: %w", err)
	}
	if err = c.Stop(); err != nil {
		return err
	}
	tracesPath := filepath.Join(s.out, "traces.jsonl")
	exported, err := collector.ReadTraces(tracesPath)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.out, "collector.log"), []byte(c.Logs()), 0o644); err != nil {
		return err
	}

	r := newReport(in, exported, samples)
	streamsPath := filepath.Join(s.out, "streams.txt")
	var every strings.Builder
	r.writeStreams(&every, func(stream) bool { return true })
	if err := os.WriteFile(streamsPath, []byte(every.String()), 0o644); err != nil {
		return err
	}

	fmt.Fprintf(w, "Stopped the collector.\n\nSTREAMS: %d of %d, chosen to show each kind; all of them are in %s.\n\n", r.countFeatured(), len(r.streams), streamsPath)
	r.writeStreams(w, stream.featured)
	r.writeTricks(w)
	if err := r.writeMetrics(w, filepath.Join(s.out, "metrics.jsonl")); err != nil {
		return err
	}
	r.writeTotals(w)
	fmt.Fprintf(w, "\nThe exported OTLP lies in %s (OTLP/JSON, one export a line), the collector's log in %s.\n",
		tracesPath, filepath.Join(s.out, "collector.log"))
	return nil
}

// input is what was sent.
type input struct {
	spans, events int
	bytes         int // of spans, without resources and scopes
	// origin tells which capture a span came from.
	origin map[spanID]captures.Capture
	// size is what a span took in protobuf.
	size map[spanID]int
}

func replay(ctx context.Context, w io.Writer, c *collector.Process, all []captures.Capture) (input, error) {
	in := input{origin: map[spanID]captures.Capture{}, size: map[spanID]int{}}
	sizer := ptrace.ProtoMarshaler{}
	last := ""
	names := 0
	for i, capture := range all {
		if capture.Instrumentation != last {
			last = capture.Instrumentation
			names++
		}
		requests, err := capture.Traces()
		if err != nil {
			return in, err
		}
		for _, td := range requests {
			for _, rs := range td.ResourceSpans().All() {
				rs.Resource().Attributes().PutStr(captureKey, capture.Name())
			}
			collector.Spans([]ptrace.Traces{td}, func(_ ptrace.ResourceSpans, _ ptrace.ScopeSpans, span ptrace.Span) {
				in.spans++
				in.events += span.Events().Len()
				in.origin[idOf(span)] = capture
				in.size[idOf(span)] = sizer.SpanSize(span)
				in.bytes += sizer.SpanSize(span)
			})
			if err := c.PostTraces(ctx, td); err != nil {
				return in, fmt.Errorf("replay %s: %w", capture.Name(), err)
			}
		}
		if (i+1)%100 == 0 || i+1 == len(all) {
			fmt.Fprintf(w, "Replayed %d of %d captures of %d instrumentations over OTLP/HTTP, %d spans so far.\n", i+1, len(all), names, in.spans)
		}
	}
	return in, nil
}
