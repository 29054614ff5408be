// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
	"github.com/otelcol-stream/otelcol-stream/internal/streamspan"
	"github.com/otelcol-stream/otelcol-stream/streamprocessor/internal/metadata"
)

// tracesProcessor rewrites the streaming spans of each batch. It keeps nothing from one batch to the next.
type tracesProcessor struct {
	table     *dialect.Table
	telemetry *metadata.TelemetryBuilder
	// workers holds a worker per batch under way. A worker is emptied before it goes back, so that no data passes between batches.
	workers sync.Pool
}

func newTracesProcessor(set processor.Settings, cfg *Config) (*tracesProcessor, error) {
	table, err := dialect.Compile(cfg.Vocabulary.rows())
	if err != nil {
		return nil, err
	}
	telemetry, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	p := &tracesProcessor{table: table, telemetry: telemetry}
	p.workers.New = func() any {
		w := &worker{
			finder:   streamspan.NewFinder(table, cfg.MinSpread, cfg.Cadence.settings()),
			splitter: streamspan.NewSplitter(cfg.splitOptions()),
		}
		w.finder.Skipped = w.skipped
		return w
	}
	return p, nil
}

func (p *tracesProcessor) processTraces(ctx context.Context, td ptrace.Traces) (ptrace.Traces, error) {
	w := p.worker()
	w.process(td)
	p.release(ctx, w)
	return td, nil
}

func (p *tracesProcessor) worker() *worker { return p.workers.Get().(*worker) }

// release records what a worker counted and lets the next batch have it.
func (p *tracesProcessor) release(ctx context.Context, w *worker) {
	w.finder.Release()
	if w.counts.any {
		w.counts.record(ctx, p.telemetry)
		w.counts.reset()
	}
	p.workers.Put(w)
}

func (p *tracesProcessor) shutdown(context.Context) error {
	p.telemetry.Shutdown()
	return nil
}

// worker holds what is needed to work on one batch.
type worker struct {
	finder   *streamspan.Finder
	splitter *streamspan.Splitter
	record   streamspan.Record
	counts   counts
}

func (w *worker) process(td ptrace.Traces) {
	found := w.finder.Find(td)
	for i := range found {
		w.apply(&found[i])
	}
}

func (w *worker) apply(f *streamspan.Found) {
	w.finder.Record(f, &w.record)
	w.counts.add(f, w.splitter.Apply(f, &w.record))
}

func (w *worker) skipped(_ pcommon.Resource, _ ptrace.ScopeSpans, _ ptrace.Span, d dialect.Decision) {
	w.counts.skip(d)
}

// counts collects what happened to the spans of a batch, so that each instrument is touched once a batch and not once a span.
type counts struct {
	any       bool
	spans     map[outcome]int64
	sources   map[string]int64
	clamped   int64
	collapsed int64
	nested    int64
}

type outcome struct {
	result streamspan.Result
	reason dialect.Reason
}

// Results of spans that were not taken for streams.
const (
	resultNotStreaming streamspan.Result = "not_streaming"
	resultProcessed    streamspan.Result = "already_processed"
	resultRefused      streamspan.Result = "refused"
)

var skippedResults = map[dialect.Verdict]streamspan.Result{
	dialect.NotStreaming: resultNotStreaming, dialect.Processed: resultProcessed, dialect.Refused: resultRefused,
}

func (c *counts) put(result streamspan.Result, reason dialect.Reason) {
	if c.spans == nil {
		c.spans = map[outcome]int64{}
	}
	c.any = true
	c.spans[outcome{result, reason}]++
}

func (c *counts) skip(d dialect.Decision) { c.put(skippedResults[d.Verdict], d.Reason) }

// forgetProcessed takes back what skip counted of spans that carry stream.phase.
func (c *counts) forgetProcessed() { delete(c.spans, outcome{result: resultProcessed}) }

func (c *counts) add(f *streamspan.Found, a streamspan.Applied) {
	c.put(a.Result, a.Reason)
	c.collapsed += a.Collapsed
	if f.Nested {
		c.nested++
	}
	if f.Decision.FirstKnown {
		if c.sources == nil {
			c.sources = map[string]int64{}
		}
		c.sources[f.Decision.SourceKey]++
	}
	if f.Decision.Clamped {
		c.clamped++
	}
}

func (c *counts) record(ctx context.Context, t *metadata.TelemetryBuilder) {
	for o, n := range c.spans {
		t.ProcessorStreamSpans.Add(ctx, n, metric.WithAttributeSet(attribute.NewSet(
			attribute.String("result", string(o.result)), attribute.String("reason", string(o.reason)))))
	}
	for source, n := range c.sources {
		t.ProcessorStreamFirstChunk.Add(ctx, n, metric.WithAttributeSet(attribute.NewSet(attribute.String("source", source))))
	}
	for _, counter := range []struct {
		instrument metric.Int64Counter
		n          int64
	}{
		{t.ProcessorStreamFirstChunkClamped, c.clamped},
		{t.ProcessorStreamChunkEventsCollapsed, c.collapsed},
		{t.ProcessorStreamNested, c.nested},
	} {
		if counter.n > 0 {
			counter.instrument.Add(ctx, counter.n)
		}
	}
}

func (c *counts) reset() {
	clear(c.spans)
	clear(c.sources)
	c.any, c.clamped, c.collapsed, c.nested = false, 0, 0, 0
}
