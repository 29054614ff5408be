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
		w.finder.Processed, w.finder.Skipped = w.processed, w.skipped
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

func (w *worker) processed(pcommon.Resource, ptrace.ScopeSpans, ptrace.Span, streamspan.Phase) {
	w.counts.put(resultProcessed, "")
}

func (w *worker) skipped(_ pcommon.Resource, _ ptrace.ScopeSpans, _ ptrace.Span, d dialect.Decision) {
	w.counts.skip(d)
}

// counts collects what happened to the spans of a batch, so that each instrument is touched once a batch and not once a span.
type counts struct {
	any       bool
	spans     tally[outcome]
	sources   tally[string]
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
	dialect.NotStreaming: resultNotStreaming, dialect.Refused: resultRefused,
}

// tally counts by key. There are a handful of keys at the most in a batch, and no more in all than reasons, or rows of the table, so that going
// through them costs less than a map; and each keeps the options of its instrument, since sets of attributes are dear to make.
type tally[K comparable] []tallied[K]

type tallied[K comparable] struct {
	key     K
	n       int64
	options []metric.AddOption
}

func (t *tally[K]) of(key K) *tallied[K] {
	for i := range *t {
		if e := &(*t)[i]; e.key == key {
			return e
		}
	}
	*t = append(*t, tallied[K]{key: key})
	return &(*t)[len(*t)-1]
}

// record adds the counts to an instrument and sets them to zero.
func (t tally[K]) record(ctx context.Context, instrument metric.Int64Counter, attributes func(K) []attribute.KeyValue) {
	for i := range t {
		e := &t[i]
		if e.n == 0 {
			continue
		}
		if e.options == nil {
			e.options = []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(attributes(e.key)...))}
		}
		instrument.Add(ctx, e.n, e.options...)
		e.n = 0
	}
}

func outcomeAttributes(o outcome) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("result", string(o.result)), attribute.String("reason", string(o.reason))}
}

func sourceAttributes(source string) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("source", source)}
}

func (c *counts) put(result streamspan.Result, reason dialect.Reason) {
	c.any = true
	c.spans.of(outcome{result, reason}).n++
}

func (c *counts) skip(d dialect.Decision) { c.put(skippedResults[d.Verdict], d.Reason) }

// forgetProcessed takes back what skip counted of spans that carry stream.phase.
func (c *counts) forgetProcessed() { c.spans.of(outcome{result: resultProcessed}).n = 0 }

func (c *counts) add(f *streamspan.Found, a streamspan.Applied) {
	c.put(a.Result, a.Reason)
	c.collapsed += a.Collapsed
	if f.Nested {
		c.nested++
	}
	if f.Decision.FirstKnown {
		c.sources.of(f.Decision.SourceKey).n++
	}
	if f.Decision.Clamped {
		c.clamped++
	}
}

// record adds the counts to the instruments and sets them to zero.
func (c *counts) record(ctx context.Context, t *metadata.TelemetryBuilder) {
	c.spans.record(ctx, t.ProcessorStreamSpans, outcomeAttributes)
	c.sources.record(ctx, t.ProcessorStreamFirstChunk, sourceAttributes)
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
	c.any, c.clamped, c.collapsed, c.nested = false, 0, 0, 0
}
