// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatautil"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
	"github.com/otelcol-stream/otelcol-stream/internal/streamspan"
	"github.com/otelcol-stream/otelcol-stream/streamconnector/internal/metadata"
)

// rawMinSpread is that of the processor, for raw spans of servers.
const rawMinSpread = 100 * time.Millisecond

var (
	recordedAttributes = metric.WithAttributeSet(attribute.NewSet(attribute.String("result", "recorded")))
	nestedAttributes   = metric.WithAttributeSet(attribute.NewSet(attribute.String("result", "nested")))
)

// streamConnector aggregates streams and exports the aggregates at an interval, and once more when it shuts down.
type streamConnector struct {
	cfg         *Config
	next        consumer.Metrics
	logger      *zap.Logger
	telemetry   *metadata.TelemetryBuilder
	scope       func(pcommon.InstrumentationScope)
	temporality pmetric.AggregationTemporality
	families    []*family
	wanted      wanted
	gaps        *gapTable
	workers     sync.Pool
	now         func() time.Time

	mu sync.Mutex
	// store and lastExport are guarded by mu. spare is the store of the delta interval before, emptied; only flush touches it.
	store      *store
	lastExport pcommon.Timestamp
	spare      *store

	stop   chan struct{}
	cancel context.CancelFunc // of an export under way
	done   chan struct{}
}

var _ connector.Traces = (*streamConnector)(nil)

func newConnector(set connector.Settings, cfg *Config, next consumer.Metrics) (*streamConnector, error) {
	table, err := dialect.Compile(dialect.Vocabulary{})
	if err != nil {
		return nil, err
	}
	telemetry, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	c := &streamConnector{
		cfg:         cfg,
		next:        next,
		logger:      set.Logger,
		telemetry:   telemetry,
		temporality: pmetric.AggregationTemporalityCumulative,
		now:         time.Now,
		scope: func(s pcommon.InstrumentationScope) {
			s.SetName(metadata.ScopeName)
			s.SetVersion(set.BuildInfo.Version)
		},
	}
	if cfg.AggregationTemporality == temporalityDelta {
		c.temporality = pmetric.AggregationTemporalityDelta
	}
	c.families, c.wanted = families(cfg)
	c.gaps = newGapTable(c.families)
	c.workers.New = func() any { return newWorker(c, table) }
	return c, nil
}

// Capabilities says that spans are only read.
func (*streamConnector) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: false}
}

// Start begins to export at the flush interval.
func (c *streamConnector) Start(ctx context.Context, _ component.Host) error {
	c.lastExport = pcommon.NewTimestampFromTime(c.now())
	c.store = newStore(c.families, c.cfg, c.lastExport)
	if err := c.telemetry.RegisterConnectorStreamSeriesCallback(func(_ context.Context, o metric.Int64Observer) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		o.Observe(c.store.groups())
		return nil
	}); err != nil {
		return err
	}
	// The context of Start ends with it; the exports go on until Shutdown.
	ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.stop, c.done = make(chan struct{}), make(chan struct{})
	go c.run(ctx)
	return nil
}

func (c *streamConnector) run(ctx context.Context) {
	defer close(c.done)
	ticker := time.NewTicker(c.cfg.MetricsFlushInterval)
	defer ticker.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-ticker.C:
			// The error has been logged and counted, and the next flush tries again.
			_ = c.flush(ctx)
		}
	}
}

// Shutdown exports everything that has not been exported, and returns when that is done and nothing of the connector runs on. Spans no longer come: the Collector has stopped
// what sends them.
func (c *streamConnector) Shutdown(ctx context.Context) error {
	var err error
	if c.stop != nil {
		close(c.stop)
		// An export under way may end, but not keep the Collector from stopping. What it fails to deliver is in the last one.
		select {
		case <-c.done:
		case <-ctx.Done():
		}
		c.cancel()
		<-c.done
		c.stop = nil
		err = c.flush(ctx)
	}
	c.telemetry.Shutdown()
	return err
}

// ConsumeTraces records the streams of a batch.
func (c *streamConnector) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	w := c.workers.Get().(*worker)
	w.consume(ctx, td)
	c.workers.Put(w)
	return nil
}

// worker is the scratch for one batch at a time.
type worker struct {
	connector *streamConnector
	observer  *streamspan.Observer
	weigher   weigher
	stream    stream
	keys      []seriesKey
	series    []*series
	memo      memo
	now       time.Time

	// The resource of the stream before, which the streams of one resource share.
	resource    pcommon.Resource
	resourceKey resourceKey
	fallback    []value // the wanted attributes that it has; nil if it has none
	attributes  func() pcommon.Map

	recorded, nested, refused, overflowed int64
}

func newWorker(c *streamConnector, table *dialect.Table) *worker {
	w := &worker{
		connector: c,
		observer:  streamspan.NewObserver(table, rawMinSpread, cadence.DefaultSettings(), c.wanted),
		keys:      make([]seriesKey, len(c.families)),
	}
	w.stream.span = make([]value, len(c.wanted))
	w.stream.resource = make([]value, len(c.wanted))
	w.attributes = w.keptAttributes
	return w
}

func (w *worker) consume(ctx context.Context, td ptrace.Traces) {
	w.now = w.connector.now()
	w.observer.Observe(td, w.visit)
	w.report(ctx)
	// Nothing of this batch may live on in the pool.
	w.resource, w.fallback = pcommon.Resource{}, nil
	w.stream.record, w.stream.gaps = nil, nil
	w.stream.dialect, w.stream.operation = value{}, value{}
	clear(w.stream.span)
	clear(w.stream.resource)
}

// report adds the counts of the batch to the component's own telemetry.
func (w *worker) report(ctx context.Context) {
	t := w.connector.telemetry
	if w.recorded > 0 {
		t.ConnectorStreamStreams.Add(ctx, w.recorded, recordedAttributes)
	}
	if w.nested > 0 {
		t.ConnectorStreamStreams.Add(ctx, w.nested, nestedAttributes)
	}
	if w.refused > 0 {
		t.ConnectorStreamRefusedValues.Add(ctx, w.refused)
	}
	if w.overflowed > 0 {
		t.ConnectorStreamOverflowedObservations.Add(ctx, w.overflowed)
	}
	w.recorded, w.nested, w.refused, w.overflowed = 0, 0, 0, 0
}

// visit records one stream. Everything but the addition itself happens outside the lock.
func (w *worker) visit(o *streamspan.Observation) {
	c, s := w.connector, &w.stream
	if o.Record.Nested && !c.cfg.IncludeNested {
		w.nested++
		return
	}
	w.recorded++
	if o.Resource != w.resource {
		w.enter(o.Resource)
	}
	s.record, s.gapCount, s.gaps = o.Record, o.GapCount, o.Gaps
	s.weight = w.weigher.weight(o.Span.TraceState().AsRaw(), o.Span.TraceID())
	w.refused += s.values.fill(o.Record, openTime(o))
	s.cells.fill(c.gaps, &o.Record.Cadence.Histogram)

	t := traitsOf(s)
	e := w.memo.place(&t, o.Wanted)
	if e.is(w, &t, o) {
		c.mu.Lock()
		if e.holds(c.store) {
			e.hit()
			c.store.record(e.series, s, o.Span, w.now)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
	w.identify(o)
	c.mu.Lock()
	found, overflows := c.store.find(w.resourceKey, w.attributes, w.keys, w.series[:0])
	c.store.record(found, s, o.Span, w.now)
	if overflows == 0 && w.small() && e.yields(c.store) {
		e.set(w, &t, found)
	}
	c.mu.Unlock()
	w.series = found
	w.overflowed += overflows
}

// identify puts together the keys of the series of a stream.
func (w *worker) identify(o *streamspan.Observation) {
	s := &w.stream
	s.dialect.setNonEmpty(o.Record.Dialect)
	s.operation.setNonEmpty(o.Record.SourceOperation)
	for i, v := range o.Wanted {
		s.span[i].set(v)
	}
	for i, f := range w.connector.families {
		w.keys[i].fill(f, s)
	}
}

// openTime is t1 − t0 of the whole call.
func openTime(o *streamspan.Observation) cadence.Value {
	if r := o.Record; r.Phase == streamspan.PhaseStream && r.TimeToFirstChunk.OK && r.Duration.OK {
		return cadence.Of(r.TimeToFirstChunk.V + r.Duration.V)
	}
	start, end := o.Span.StartTimestamp(), o.Span.EndTimestamp()
	if end < start {
		return cadence.Value{}
	}
	return cadence.Of(float64(end-start) / 1e9)
}

// enter makes res the resource of the streams that follow.
func (w *worker) enter(res pcommon.Resource) {
	w.resource = res
	w.connector.wanted.read(res.Attributes(), w.stream.resource)
	w.fallback = nil
	if slices.ContainsFunc(w.stream.resource, func(v value) bool { return v.kind != absent }) {
		w.fallback = w.stream.resource
	}
	if w.connector.cfg.keepsAllResourceAttributes() {
		w.resourceKey = pdatautil.MapHash(res.Attributes())
	} else {
		w.resourceKey = pdatautil.MapHash(w.keptAttributes())
	}
	if w.resourceKey == overflowKey {
		w.resourceKey[0] = 1 // a resource without attributes is none that overflows
	}
}

// keptAttributes returns the attributes of the resource that are kept.
func (w *worker) keptAttributes() pcommon.Map {
	kept, attrs := pcommon.NewMap(), w.resource.Attributes()
	if w.connector.cfg.keepsAllResourceAttributes() {
		attrs.CopyTo(kept)
		return kept
	}
	for _, name := range w.connector.cfg.ResourceAttributes {
		if v, ok := attrs.Get(name); ok {
			v.CopyTo(kept.PutEmpty(name))
		}
	}
	return kept
}

// flush exports what there is. A failure of the next consumer loses nothing: a cumulative store still holds all, and what a delta store
// held goes back, unless the error is permanent, when trying again would be of no use.
func (c *streamConnector) flush(ctx context.Context) error {
	if c.temporality == pmetric.AggregationTemporalityDelta {
		return c.flushDelta(ctx)
	}
	c.mu.Lock()
	now := c.exportTime()
	md := c.store.metrics(now, c.temporality, c.scope)
	c.store.start = now
	c.store.clearExemplars()
	c.mu.Unlock()

	if err := c.export(ctx, md); err != nil {
		return err
	}
	if c.cfg.MetricsExpiration > 0 {
		// After the export, so that no series ends without one.
		c.mu.Lock()
		c.store.expire(c.now().Add(-c.cfg.MetricsExpiration))
		c.mu.Unlock()
	}
	return nil
}

// flushDelta swaps the store for an empty one and exports it without holding up the spans that come meanwhile.
func (c *streamConnector) flushDelta(ctx context.Context) error {
	empty := c.spare
	if empty == nil {
		empty = newStore(c.families, c.cfg, 0)
	}
	c.mu.Lock()
	now := c.exportTime()
	full := c.store
	c.store, empty.start = empty, now
	c.mu.Unlock()

	err := c.export(ctx, full.metrics(now, c.temporality, c.scope))
	if err != nil && !consumererror.IsPermanent(err) {
		c.mu.Lock()
		c.store.merge(full)
		c.store.start = full.start
		c.mu.Unlock()
	}
	full.reset()
	if c.cfg.MetricsExpiration > 0 {
		full.expire(c.now().Add(-c.cfg.MetricsExpiration))
	}
	c.spare = full
	return err
}

// exportTime is the time of an export: now, but after the export before, whatever the clock does. Intervals do not overlap and are not
// empty then.
func (c *streamConnector) exportTime() pcommon.Timestamp {
	c.lastExport = max(pcommon.NewTimestampFromTime(c.now()), c.lastExport+1)
	return c.lastExport
}

func (c *streamConnector) export(ctx context.Context, md pmetric.Metrics) error {
	if md.ResourceMetrics().Len() == 0 {
		return nil
	}
	points := md.DataPointCount()
	err := c.next.ConsumeMetrics(ctx, md)
	if err != nil {
		c.telemetry.ConnectorStreamFlushFailures.Add(ctx, 1)
		c.logger.Error("The next consumer refused the metrics of streams", zap.Error(err), zap.Int("data_points", points),
			zap.Bool("permanent", consumererror.IsPermanent(err)), zap.String("aggregation_temporality", c.cfg.AggregationTemporality))
	}
	return err
}
