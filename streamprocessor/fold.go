// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processorhelper"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/otelcol-stream/otelcol-stream/internal/fold"
)

// foldingProcessor is the traces processor with chunk_spans enabled: it takes chunk spans out of the batches and keeps what is needed of
// them until their parent comes.
//
// A batch is a transaction. What it takes out of the store for the parents in it, and what it brings to the store, becomes final only when
// the next component has accepted the rest; when that returns an error, the store is as before and the caller may send the batch again.
type foldingProcessor struct {
	processor.Traces // counts and traces like any processor; its function finds the transaction in the context

	traces  *tracesProcessor
	next    consumer.Traces
	store   *fold.Store
	writers *writers
	suffix  string
	logger  *zap.Logger
	clock   func() int64 // ns, monotonic
	tick    time.Duration

	transactions sync.Pool
	stop         chan struct{}
	stopped      chan struct{}
	cancel       context.CancelFunc
}

type transactionKey struct{}

// What a flush sends at once is bounded by these: streams and, since a stream that is none goes out as its chunk spans, spans.
const (
	flushStreams = 256
	flushSpans   = 8192
)

// Ticks are a tenth of the shortest time that anything waits, within these.
const (
	minTick = 10 * time.Millisecond
	maxTick = time.Second
)

func newFoldingProcessor(ctx context.Context, set processor.Settings, cfg *Config, p *tracesProcessor, next consumer.Traces) (processor.Traces, error) {
	c := &cfg.ChunkSpans
	epoch := time.Now()
	f := &foldingProcessor{
		traces: p,
		next:   next,
		store: fold.NewStore(fold.Limits{
			Wait: c.Wait, ParentWait: c.ParentWait, MaxStreams: c.MaxStreams, MaxChunks: c.MaxChunks,
			MinSpread: cfg.MinSpread, StallThreshold: cfg.Cadence.StallThreshold,
		}),
		writers: newWriters(p.table),
		suffix:  cfg.StreamSpanSuffix,
		logger:  set.Logger,
		clock:   func() int64 { return int64(time.Since(epoch)) },
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	shortest := c.Wait
	if c.ParentWait > 0 {
		shortest = min(shortest, c.ParentWait)
	}
	f.tick = min(max(shortest/10, minTick), maxTick)
	f.transactions.New = func() any { return newTransaction(f) }

	if err := errors.Join(
		p.telemetry.RegisterProcessorStreamOpenStreamsCallback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(f.store.Open())
			return nil
		}),
		p.telemetry.RegisterProcessorStreamOpenMemoryCallback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(f.store.Bytes())
			return nil
		}),
	); err != nil {
		return nil, err
	}
	var err error
	f.Traces, err = processorhelper.NewTraces(ctx, set, cfg, next, f.process, processorhelper.WithCapabilities(capabilities))
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Start starts the clock of the streams.
func (f *foldingProcessor) Start(ctx context.Context, _ component.Host) error {
	// The context of a start ends with it.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f.cancel = cancel
	go f.run(ctx)
	return nil
}

func (f *foldingProcessor) run(ctx context.Context) {
	defer close(f.stopped)
	t := time.NewTicker(f.tick)
	defer t.Stop()
	for {
		select {
		case <-f.stop:
			return
		case <-t.C:
			if err := f.flush(ctx); err != nil {
				f.logger.Warn("Streams that waited long enough could not be sent; they stay open until the next try.", zap.Error(err))
			}
		}
	}
}

// flush sends the streams that are due. Those that cannot be sent stay open and due.
func (f *foldingProcessor) flush(ctx context.Context) error {
	for {
		now := f.clock()
		due := f.store.Due(now, flushStreams)
		if len(due) == 0 {
			return nil
		}
		for len(due) > 0 {
			n := portion(due)
			if err := f.send(ctx, due[:n], streamOrphaned); err != nil && !f.dropped(err, n) {
				f.putBack(due)
				return err
			}
			due = due[n:]
		}
	}
}

// evict sends the longest idle streams until the store is within its bounds.
func (f *foldingProcessor) evict(ctx context.Context) error {
	for f.store.Full() {
		st := f.store.Oldest(f.clock())
		if st == nil {
			return nil
		}
		one := []*fold.Stream{st}
		if err := f.send(ctx, one, streamEvicted); err != nil && !f.dropped(err, 1) {
			f.putBack(one)
			return fmt.Errorf("chunk_spans::max_streams: %d streams are open and the oldest cannot be sent: %w", f.store.Open(), err)
		}
	}
	return nil
}

// dropped reports whether send gave up the streams, for the log.
func (f *foldingProcessor) dropped(err error, streams int) bool {
	if !consumererror.IsPermanent(err) {
		return false
	}
	f.logger.Error("Streams of chunk spans were refused for good and are lost.", zap.Int("streams", streams), zap.Error(err))
	return true
}

// putBack puts back streams that are in the order in which they were idle: from the last, so that each comes to stand before all others. With
// a million open streams, from the first it takes half a millisecond for each instead of a tenth of a microsecond.
func (f *foldingProcessor) putBack(streams []*fold.Stream) {
	for _, st := range slices.Backward(streams) {
		f.store.Return(st)
	}
}

// portion is the number of streams that fit into one export.
func portion(streams []*fold.Stream) int {
	spans := 0
	for i, st := range streams {
		if spans += 1 + st.Kept(); spans > flushSpans && i > 0 {
			return i
		}
	}
	return len(streams)
}

// Shutdown sends every open stream before it returns. Streams that the next component does not take then are lost; the error says so.
func (f *foldingProcessor) Shutdown(ctx context.Context) error {
	if f.cancel != nil {
		defer f.cancel()
		close(f.stop)
		select {
		case <-f.stopped:
		case <-ctx.Done():
			f.cancel() // a flush under way hangs
			<-f.stopped
		}
		f.cancel, f.stop = nil, nil
	}
	var errs []error
	lost := int64(0)
	for {
		open := f.store.All(f.clock(), flushStreams)
		if len(open) == 0 {
			break
		}
		for len(open) > 0 {
			n := portion(open)
			if err := f.send(ctx, open[:n], streamFlushed); err != nil {
				errs = append(errs, err)
				for _, st := range open[:n] {
					lost += st.Totals.Seen + int64(len(st.Parents))
				}
			}
			open = open[n:]
		}
	}
	err := f.traces.shutdown(ctx)
	if len(errs) > 0 {
		// One of them is enough to know why.
		return errors.Join(fmt.Errorf("chunk_spans: %d spans of open streams could not be sent at shutdown: %w", lost, errs[0]), err)
	}
	return err
}

// ConsumeTraces implements consumer.Traces.
func (f *foldingProcessor) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	// Only streams that could not be sent when they had to leave keep the store full: then nothing new may come in.
	if err := f.evict(ctx); err != nil {
		return err
	}
	tx := f.transactions.Get().(*transaction)
	defer func() {
		tx.reset()
		f.transactions.Put(tx)
	}()
	if err := f.Traces.ConsumeTraces(context.WithValue(ctx, transactionKey{}, tx), td); err != nil {
		tx.rollback()
		return err
	}
	spilled := tx.commit()
	tx.counts.record(ctx, f.traces.telemetry)
	// What the batch brought is accepted: if the streams that it displaces cannot be sent now, they stay, and the next batch waits.
	if err := f.send(ctx, spilled, streamEvicted); err != nil && !f.dropped(err, len(spilled)) {
		f.putBack(spilled)
	}
	_ = f.evict(ctx)
	return nil
}

func (f *foldingProcessor) process(ctx context.Context, td ptrace.Traces) (ptrace.Traces, error) {
	tx := ctx.Value(transactionKey{}).(*transaction)
	emptied := tx.process(ctx, td)
	if emptied {
		return td, processorhelper.ErrSkipProcessingData
	}
	return td, nil
}

// send sends streams that leave by themselves: with a held parent as that parent's stream, else as a summary, or as the chunk spans when
// they are no stream. On an error that is not permanent the streams are as before.
func (f *foldingProcessor) send(ctx context.Context, streams []*fold.Stream, result chunkStreamResult) error {
	if len(streams) == 0 {
		return nil
	}
	var (
		td     = ptrace.NewTraces()
		out    = spansByOrigin{td: td}
		counts chunkCounts
		w      = f.traces.worker()
		joins  joins
	)
	for _, st := range streams {
		if len(st.Parents) == 0 {
			out.put(w.finder, st, f.suffix, &counts)
			counts.streams[result]++
			continue
		}
		for i, p := range st.Parents {
			span := out.spans(p.Origin).AppendEmpty()
			p.Span.CopyTo(span) // the held one must be as it was if it cannot be sent
			if i == 0 {
				joins.add(&join{key: st.Key, span: span, stream: st, limits: f.store.Limits()})
			}
		}
	}
	found := joins.find(w.finder, td)
	w.counts.forgetProcessed() // the summaries were made here; they did not come through twice
	for _, j := range joins.order {
		j.settle(w.finder, &out, f.suffix, &counts)
	}
	for i := range found {
		w.apply(&found[i])
	}
	f.traces.release(ctx, w)
	err := f.next.ConsumeTraces(ctx, td)
	if err != nil && !consumererror.IsPermanent(err) {
		return err
	}
	if err != nil {
		counts = chunkCounts{}
		counts.streams[streamDropped] = int64(len(streams))
	}
	for _, st := range streams {
		st.Release()
	}
	counts.record(ctx, f.traces.telemetry)
	return err
}
