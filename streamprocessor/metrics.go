// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/otelcol-stream/otelcol-stream/internal/rebucket"
	"github.com/otelcol-stream/otelcol-stream/streamprocessor/internal/metadata"
)

// metricsProcessor re-buckets histograms. Points are converted one by one by plans that depend on layouts alone; only delta points need
// something of the points before them, and only to make roundings cancel. A point that makes no sense, or that cannot be converted, passes
// as it came.
type metricsProcessor struct {
	rules   []*histogramRule
	carries *carries
	tel     *metadata.TelemetryBuilder
	once    *onceByKey
	logger  *zap.Logger
	pool    sync.Pool // of *metricsBatch
}

func newMetricsProcessor(set processor.Settings, cfg *Config) (*metricsProcessor, error) {
	rules := make([]*histogramRule, len(cfg.Histograms))
	for i := range cfg.Histograms {
		r, err := newHistogramRule(i, &cfg.Histograms[i])
		if err != nil {
			return nil, err
		}
		rules[i] = r
	}
	tel, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	p := &metricsProcessor{rules: rules, carries: newCarries(maxCarriedStreams), tel: tel, once: newOnceByKey(maxWarnings), logger: set.Logger}
	p.pool.New = func() any { return &metricsBatch{p: p, stats: make([]ruleStats, len(rules))} }
	if len(rules) == 0 {
		return p, nil
	}
	if err := tel.RegisterProcessorStreamHistogramDeltaStreamsCallback(func(_ context.Context, o metric.Int64Observer) error {
		o.Observe(p.carries.kept.Load())
		return nil
	}); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *metricsProcessor) shutdown(context.Context) error {
	p.tel.Shutdown()
	return nil
}

func (p *metricsProcessor) processMetrics(ctx context.Context, md pmetric.Metrics) (pmetric.Metrics, error) {
	if len(p.rules) == 0 {
		return md, nil
	}
	b := p.pool.Get().(*metricsBatch)
	defer p.pool.Put(b)
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				b.identity = metricIdentity{resource: rm.Resource(), scope: sm.Scope(), metric: m}
				b.convert(m)
			}
		}
	}
	b.identity = metricIdentity{}
	b.report(ctx)
	return md, nil
}

// metricsBatch is what the conversion of one batch needs, kept from batch to batch.
type metricsBatch struct {
	p        *metricsProcessor
	identity metricIdentity
	rules    []*histogramRule // whose name matches the metric
	stats    []ruleStats      // by rule
	saved    []ruleStats      // from before the metric
	metric   metricStats

	plan    *rebucket.Plan // of the last point
	bounds  []float64
	counts  rebucket.Totals
	below   rebucket.Totals // counts of the negative range
	largest uint64          // bits of all counts and below, or-ed
	out     []uint64
}

// convert applies the rules to one metric.
func (b *metricsBatch) convert(m pmetric.Metric) {
	switch m.Type() {
	case pmetric.MetricTypeHistogram, pmetric.MetricTypeExponentialHistogram:
	default:
		return
	}
	b.rules = b.rules[:0]
	for _, r := range b.p.rules {
		if r.matches(m.Name()) {
			b.rules = append(b.rules, r)
		}
	}
	if len(b.rules) == 0 {
		return
	}
	b.metric = metricStats{}
	if m.Type() == pmetric.MetricTypeHistogram {
		b.convertHistogram(m)
	} else {
		b.convertExponential(m)
	}
	b.warn(m)
}

// rule is the first rule for a point, nil if there is none.
func (b *metricsBatch) rule(attributes pcommon.Map) *histogramRule {
	for _, r := range b.rules {
		if r.matchesPoint(attributes) {
			return r
		}
	}
	return nil
}

// A point that is not converted, by what it is instead.
var (
	errUnit       = errors.New("unit")         // no unit of time
	errOverflow   = errors.New("overflow")     // an exponential histogram has no bucket for it
	errLayout     = errors.New("layout")       // such bounds have no exponential counterpart
	errNoBuckets  = errors.New("no_buckets")   // a count that lies in no bucket
	errMixedRules = errors.New("mixed_rules")  // a metric has one type
	errKept       = errors.New("metric_kept")  // another point was refused
	errNothing    = errors.New("not an error") // the point has no buckets to convert
)

// convertHistogram converts the points of a metric of explicit histograms, in place or into a new metric type.
func (b *metricsBatch) convertHistogram(m pmetric.Metric) {
	h := m.Histogram()
	points := h.DataPoints()
	delta := h.AggregationTemporality() == pmetric.AggregationTemporalityDelta
	unit := unitOf(m)
	if !b.sameType(points.Len(), func(i int) *histogramRule { return b.rule(points.At(i).Attributes()) }, (*histogramRule).toExponential) {
		return
	}
	if points.Len() > 0 {
		if r := b.rule(points.At(0).Attributes()); r != nil && r.toExponential() {
			b.toExponential(m, delta)
			return
		}
	}
	for _, point := range points.All() {
		r := b.rule(point.Attributes())
		if r == nil {
			continue
		}
		b.reBucket(r, unit, point, delta)
	}
}

// sameType tells whether all points, or none, have a rule that changes the type of the metric. If only some have, these are refused.
func (b *metricsBatch) sameType(n int, rule func(int) *histogramRule, changes func(*histogramRule) bool) bool {
	if len(b.rules) == 1 && len(b.rules[0].attributes) == 0 {
		return true
	}
	changing := 0
	for i := range n {
		if r := rule(i); r != nil && changes(r) {
			changing++
		}
	}
	if changing == 0 || changing == n {
		return true
	}
	for i := range n {
		if r := rule(i); r != nil {
			b.refuse(r, errMixedRules)
		}
	}
	return false
}

// reBucket converts one explicit point in place.
func (b *metricsBatch) reBucket(r *histogramRule, unit timeUnit, point pmetric.HistogramDataPoint, delta bool) {
	if err := b.readExplicit(point); err != nil {
		b.refuse(r, err)
		return
	}
	target := r.explicit[unit]
	if target == nil {
		b.refuse(r, errUnit)
		return
	}
	plan := target.Explicit(b.bounds)
	carry, lock := b.carry(r, point.Attributes(), point.StartTimestamp(), plan, delta && plan.Splits())
	certainty := plan.Apply(b.output(plan.Size()), b.counts, carry)
	unlock(lock)
	b.converted(r, certainty, 0)
	b.metric.see(certainty, b.bounds[len(b.bounds)-1], plan.Bounds()[len(plan.Bounds())-1])
	if r.dryRun || plan.Identity() {
		return
	}
	point.ExplicitBounds().FromRaw(plan.Bounds())
	point.BucketCounts().FromRaw(b.out)
}

// readExplicit copies bounds and counts of a point; it returns why the point cannot be converted.
func (b *metricsBatch) readExplicit(point pmetric.HistogramDataPoint) error {
	bounds, counts := point.ExplicitBounds(), point.BucketCounts()
	// All observations in one bucket, or no bucket at all: nothing to convert. A point without a recorded value is like that.
	if bounds.Len() == 0 && (counts.Len() == 0 || counts.Len() == 1 && counts.At(0) == point.Count()) {
		return errNothing
	}
	if point.Flags().NoRecordedValue() {
		return errNothing
	}
	b.bounds = b.bounds[:0]
	for i := range bounds.Len() {
		b.bounds = append(b.bounds, bounds.At(i))
	}
	b.counts, _ = read(b.counts, counts)
	return rebucket.CheckExplicit(b.bounds, b.counts, point.Count())
}

// read turns counts into running totals, and returns the bits of the counts or-ed, by which it is known that they are not large.
func read(dst rebucket.Totals, src pcommon.UInt64Slice) (totals rebucket.Totals, bits uint64) {
	n := src.Len()
	if cap(dst) <= n {
		dst = make(rebucket.Totals, n+1)
	}
	dst = dst[:n+1]
	var total uint64
	i := 0
	// Four at a time: behind each store src has to fetch its slice anew, for it might be what was stored to.
	for ; i+4 <= n; i += 4 {
		a, b, c, d := src.At(i), src.At(i+1), src.At(i+2), src.At(i+3)
		bits |= a | b | c | d
		to := dst[i+1 : i+5]
		to[0], to[1], to[2], to[3] = total+a, total+a+b, total+a+b+c, total+a+b+c+d
		total = to[3]
	}
	for ; i < n; i++ {
		c := src.At(i)
		total += c
		dst[i+1] = total
		bits |= c
	}
	return dst, bits
}

func (b *metricsBatch) output(size int) []uint64 {
	if cap(b.out) < size {
		b.out = make([]uint64, size)
	}
	b.out = b.out[:size]
	return b.out
}

// toExponential converts all points of a metric, or none.
func (b *metricsBatch) toExponential(m pmetric.Metric, delta bool) {
	from := m.Histogram()
	points := from.DataPoints()
	plan := func(r *histogramRule, point pmetric.HistogramDataPoint) (*rebucket.ToExponentialPlan, error) {
		if err := b.readExplicit(point); err != nil {
			return nil, err
		}
		if last := b.counts.Len() - 1; b.counts[last] != b.counts.Sum() {
			return nil, errOverflow
		}
		if p := r.exponential.Explicit(b.bounds); p != nil {
			return p, nil
		}
		return nil, errLayout
	}
	refused := 0
	for _, point := range points.All() {
		r := b.rule(point.Attributes())
		_, err := plan(r, point)
		if errors.Is(err, errNothing) {
			err = nil
			if point.Count() > 0 && !point.Flags().NoRecordedValue() {
				err = errNoBuckets
			}
		}
		if err != nil {
			b.refuse(r, err)
			refused++
		}
	}
	if refused > 0 {
		b.keepMetric(points.Len()-refused, b.rule(points.At(0).Attributes()))
		return
	}

	to := pmetric.NewExponentialHistogram()
	to.SetAggregationTemporality(from.AggregationTemporality())
	to.DataPoints().EnsureCapacity(points.Len())
	dryRun := false
	for _, point := range points.All() {
		r := b.rule(point.Attributes())
		dryRun = dryRun || r.dryRun
		p, err := plan(r, point)
		var out pmetric.ExponentialHistogramDataPoint
		if !r.dryRun {
			out = to.DataPoints().AppendEmpty()
			headToExponential(point, out)
		}
		if err != nil {
			continue // no value: an empty point
		}
		carry, lock := b.carry(r, point.Attributes(), point.StartTimestamp(), &p.Plan, delta && p.Splits())
		certainty := p.Apply(b.output(p.Size()), b.counts, carry)
		unlock(lock)
		certainty.Overflow = 0
		b.converted(r, certainty, 0)
		if r.dryRun {
			continue
		}
		out.SetScale(p.Scale)
		out.SetZeroThreshold(p.ZeroThreshold)
		out.SetZeroCount(b.out[0])
		setBuckets(out.Positive(), p.Offset, b.out[1:])
	}
	if dryRun {
		return
	}
	for i, point := range points.All() {
		movePoint(point, to.DataPoints().At(i))
	}
	to.MoveTo(m.SetEmptyExponentialHistogram())
}

// keepMetric counts the points that would have been converted if a metric could have two types.
func (b *metricsBatch) keepMetric(n int, r *histogramRule) {
	for range n {
		b.refuse(r, errKept)
	}
}

func setBuckets(out pmetric.ExponentialHistogramDataPointBuckets, offset int32, counts []uint64) {
	for len(counts) > 0 && counts[len(counts)-1] == 0 {
		counts = counts[:len(counts)-1]
	}
	for len(counts) > 0 && counts[0] == 0 {
		counts = counts[1:]
		offset++
	}
	if len(counts) > 0 {
		out.SetOffset(offset)
	}
	out.BucketCounts().FromRaw(counts)
}

// convertExponential converts the points of a metric of exponential histograms, in place or into a new metric type.
func (b *metricsBatch) convertExponential(m pmetric.Metric) {
	h := m.ExponentialHistogram()
	points := h.DataPoints()
	if !b.sameType(points.Len(), func(i int) *histogramRule { return b.rule(points.At(i).Attributes()) }, (*histogramRule).toExplicit) {
		return
	}
	if points.Len() > 0 {
		if r := b.rule(points.At(0).Attributes()); r != nil && r.toExplicit() {
			b.toExplicit(m, h.AggregationTemporality() == pmetric.AggregationTemporalityDelta)
			return
		}
	}
	for _, point := range points.All() {
		if r := b.rule(point.Attributes()); r != nil {
			b.downscale(r, point)
		}
	}
}

// downscale converts one exponential point in place.
func (b *metricsBatch) downscale(r *histogramRule, point pmetric.ExponentialHistogramDataPoint) {
	if point.Flags().NoRecordedValue() {
		return
	}
	x := b.readExponential(point)
	if err := x.Check(point.Count()); err != nil {
		b.refuse(r, err)
		return
	}
	b.converted(r, rebucket.Certainty{Total: point.Count()}, 0)
	if r.dryRun || !rebucket.Downscale(&x, r.exponential.Size()) {
		return
	}
	point.SetScale(x.Scale)
	point.Positive().SetOffset(x.Positive.Offset)
	point.Positive().BucketCounts().FromRaw(x.Positive.Counts.Counts(b.out[:0]))
	point.Negative().SetOffset(x.Negative.Offset)
	point.Negative().BucketCounts().FromRaw(x.Negative.Counts.Counts(b.out[:0]))
}

func (b *metricsBatch) readExponential(point pmetric.ExponentialHistogramDataPoint) rebucket.Exponential {
	var above, below uint64
	b.counts, above = read(b.counts, point.Positive().BucketCounts())
	b.below, below = read(b.below, point.Negative().BucketCounts())
	b.largest = above | below | point.ZeroCount() | uint64(b.counts.Len()+b.below.Len())
	return rebucket.Exponential{
		Scale:         point.Scale(),
		ZeroThreshold: point.ZeroThreshold(),
		ZeroCount:     point.ZeroCount(),
		Positive:      rebucket.Buckets{Offset: point.Positive().Offset(), Counts: b.counts},
		Negative:      rebucket.Buckets{Offset: point.Negative().Offset(), Counts: b.below},
	}
}

// toExplicit converts all points of a metric, or none.
func (b *metricsBatch) toExplicit(m pmetric.Metric, delta bool) {
	from := m.ExponentialHistogram()
	points := from.DataPoints()
	unit := unitOf(m)
	// Remainders of delta streams cannot be taken back, so points are checked before any is converted. Cumulative points are checked on the way,
	// which saves reading them twice.
	if delta && b.refuseExponential(points, unit) {
		return
	}
	b.saved = append(b.saved[:0], b.stats...)

	to := pmetric.NewHistogram()
	to.SetAggregationTemporality(from.AggregationTemporality())
	to.DataPoints().EnsureCapacity(points.Len())
	dryRun := false
	for _, point := range points.All() {
		r := b.rule(point.Attributes())
		dryRun = dryRun || r.dryRun
		var out pmetric.HistogramDataPoint
		if !r.dryRun {
			out = to.DataPoints().AppendEmpty()
			headToExplicit(point, out)
		}
		if point.Flags().NoRecordedValue() {
			continue // an empty point
		}
		ok := b.pointToExplicit(r, unit, point, delta)
		if !ok {
			copy(b.stats, b.saved)
			b.metric = metricStats{}
			b.refuseExponential(points, unit)
			return
		}
		if !r.dryRun {
			out.ExplicitBounds().FromRaw(b.plan.Bounds())
			out.BucketCounts().FromRaw(b.out)
		}
	}
	if dryRun {
		return
	}
	for i, point := range points.All() {
		movePoint(point, to.DataPoints().At(i))
	}
	to.MoveTo(m.SetEmptyHistogram())
}

// pointToExplicit leaves the counts of a converted point in b.out and its plan in b.plan; false if the point has to be refused.
func (b *metricsBatch) pointToExplicit(r *histogramRule, unit timeUnit, point pmetric.ExponentialHistogramDataPoint, delta bool) bool {
	x := b.readExponential(point)
	if r.explicit[unit] == nil || x.CheckLayout() != nil {
		return false
	}
	plan := r.explicit[unit].Exponential(x.Scale, x.ZeroThreshold)
	b.plan = &plan.Plan
	carry, lock := b.carry(r, point.Attributes(), point.StartTimestamp(), b.plan, delta && plan.Splits())
	certainty, anomalies := plan.ApplyExponential(b.output(plan.Size()), &x, carry)
	unlock(lock)
	// The conversion adds all counts up anyway. That this sum has not wrapped is known when all counts are below 2^32; else they are added
	// up with care.
	if certainty.Total != point.Count() || b.largest>>32 != 0 && x.Check(point.Count()) != nil {
		return false
	}
	b.converted(r, certainty, anomalies)
	b.metric.see(certainty, 0, plan.Bounds()[len(plan.Bounds())-1])
	return true
}

// refuseExponential counts the points that cannot become explicit ones; true if there are any.
func (b *metricsBatch) refuseExponential(points pmetric.ExponentialHistogramDataPointSlice, unit timeUnit) bool {
	refused := 0
	for _, point := range points.All() {
		r := b.rule(point.Attributes())
		if err := b.checkExponential(r, unit, point); err != nil {
			b.refuse(r, err)
			refused++
		}
	}
	if refused == 0 {
		return false
	}
	b.keepMetric(points.Len()-refused, b.rule(points.At(0).Attributes()))
	return true
}

// checkExponential returns why a point cannot become an explicit one.
func (b *metricsBatch) checkExponential(r *histogramRule, unit timeUnit, point pmetric.ExponentialHistogramDataPoint) error {
	if point.Flags().NoRecordedValue() {
		return nil
	}
	if r.explicit[unit] == nil {
		return errUnit
	}
	x := b.readExponential(point)
	return x.Check(point.Count())
}

// carry is what a delta stream keeps between its points, and the lock that is held on it; both nil where nothing is kept.
func (b *metricsBatch) carry(r *histogramRule, attributes pcommon.Map, start pcommon.Timestamp, plan *rebucket.Plan, needed bool) (*rebucket.Carry, *sync.Mutex) {
	if !needed || r.dryRun {
		return nil, nil
	}
	return b.p.carries.get(b.identity.stream(r.index, attributes), start, plan.Slots())
}

func unlock(lock *sync.Mutex) {
	if lock != nil {
		lock.Unlock()
	}
}

// histogramPoint is what movePoint needs of points of both types.
type histogramPoint interface {
	Attributes() pcommon.Map
	Exemplars() pmetric.ExemplarSlice
}

// headToExplicit and headToExponential copy all but the buckets and what movePoint moves. They are written out for each direction: of type
// parameters every one of these calls is indirect, which takes a twentieth of the time of a point.
func headToExplicit(from pmetric.ExponentialHistogramDataPoint, to pmetric.HistogramDataPoint) {
	to.SetStartTimestamp(from.StartTimestamp())
	to.SetTimestamp(from.Timestamp())
	to.SetFlags(from.Flags())
	to.SetCount(from.Count())
	if from.HasSum() {
		to.SetSum(from.Sum())
	}
	if from.HasMin() {
		to.SetMin(from.Min())
	}
	if from.HasMax() {
		to.SetMax(from.Max())
	}
}

func headToExponential(from pmetric.HistogramDataPoint, to pmetric.ExponentialHistogramDataPoint) {
	to.SetStartTimestamp(from.StartTimestamp())
	to.SetTimestamp(from.Timestamp())
	to.SetFlags(from.Flags())
	to.SetCount(from.Count())
	if from.HasSum() {
		to.SetSum(from.Sum())
	}
	if from.HasMin() {
		to.SetMin(from.Min())
	}
	if from.HasMax() {
		to.SetMax(from.Max())
	}
}

// movePoint moves attributes and exemplars.
func movePoint[F, T histogramPoint](from F, to T) {
	from.Attributes().MoveTo(to.Attributes())
	from.Exemplars().MoveAndAppendTo(to.Exemplars())
}
