// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"
	"errors"
	"strings"
	"sync"

	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/otelcol-stream/otelcol-stream/internal/rebucket"
)

// ruleStats is what one rule did to one batch.
type ruleStats struct {
	points    int64
	exact     int64 // points of which no bucket was split
	anomalies int64 // points with negative observations
	refused   [len(refusals)]int64

	total, split, overflow float64 // observations; float64 because the sum of a batch may exceed 2^64
	worst                  float64 // share
}

// refusals are the reasons for which points pass unchanged; errNothing is none of them.
var refusals = [...]struct {
	err  error
	name string
}{
	{rebucket.ErrBucketCount, "bucket_count"},
	{rebucket.ErrBounds, "bounds"},
	{rebucket.ErrTotal, "count"},
	{rebucket.ErrScale, "scale"},
	{rebucket.ErrZero, "zero_threshold"},
	{errUnit, "unit"},
	{errOverflow, "overflow"},
	{errLayout, "layout"},
	{errNoBuckets, "no_buckets"},
	{errMixedRules, "mixed_rules"},
	{errKept, "metric_kept"},
}

func (b *metricsBatch) refuse(r *histogramRule, reason error) {
	for i := range refusals {
		if errors.Is(reason, refusals[i].err) {
			b.stats[r.index].refused[i]++
			return
		}
	}
}

func (b *metricsBatch) converted(r *histogramRule, c rebucket.Certainty, anomalies uint64) {
	s := &b.stats[r.index]
	s.points++
	if c.Split == 0 {
		s.exact++
	}
	if anomalies > 0 {
		s.anomalies++
	}
	if c.Total > 0 {
		s.total += float64(c.Total)
		s.split += float64(c.Split)
		s.overflow += float64(c.Overflow)
		s.worst = max(s.worst, float64(c.Worst)/float64(c.Total))
	}
}

// report adds what the batch did to the processor's own metrics, and forgets it.
func (b *metricsBatch) report(ctx context.Context) {
	t := b.p.tel
	for i := range b.stats {
		s, r := &b.stats[i], b.p.rules[i]
		for j, n := range s.refused {
			if n > 0 {
				t.ProcessorStreamHistogramPointsRefused.Add(ctx, n, metric.WithAttributes(r.tag, attribute.String("reason", refusals[j].name)))
			}
		}
		if s.points > 0 {
			t.ProcessorStreamHistogramPoints.Add(ctx, s.points, r.option)
			t.ProcessorStreamHistogramPointsExact.Add(ctx, s.exact, r.option)
		}
		if s.anomalies > 0 {
			t.ProcessorStreamHistogramAnomalies.Add(ctx, s.anomalies, r.option)
		}
		if s.total > 0 {
			t.ProcessorStreamHistogramExactShare.Record(ctx, 1-s.split/s.total, r.option)
			t.ProcessorStreamHistogramOverflowShare.Record(ctx, s.overflow/s.total, r.option)
			t.ProcessorStreamHistogramUncertainShareMax.Record(ctx, s.worst, r.option)
		}
		*s = ruleStats{}
	}
	if b.p.carries.evicted.Load() > 0 {
		t.ProcessorStreamHistogramDeltaStreamsEvicted.Add(ctx, b.p.carries.evicted.Swap(0))
	}
}

// metricStats is what is known of one metric in one batch.
type metricStats struct {
	total, overflow float64
	sourceEnd       float64 // the source's last boundary, 0 if it has none
	targetEnd       float64 // the last boundary after conversion
	lost            bool    // the target ends below the source
}

func (s *metricStats) see(c rebucket.Certainty, sourceEnd, targetEnd float64) {
	s.total += float64(c.Total)
	s.overflow += float64(c.Overflow)
	s.sourceEnd = max(s.sourceEnd, sourceEnd)
	s.targetEnd = max(s.targetEnd, targetEnd)
	s.lost = s.lost || targetEnd < sourceEnd && !nearly(targetEnd, sourceEnd)
}

func nearly(a, b float64) bool { return b-a <= 1e-9*b }

// usualQuantiles are what dashboards show.
var usualQuantiles = [...]struct {
	name string
	q    float64
}{{"0.99", 0.99}, {"0.95", 0.95}}

// warn says once per metric what no conversion can repair.
func (b *metricsBatch) warn(m pmetric.Metric) {
	s := &b.metric
	if s.lost && b.p.once.first(warning{lostRange, m.Name()}) {
		b.p.logger.Warn("The rule's last boundary lies below the source's: what lies between them is merged into the overflow bucket. "+
			"Add boundaries to the rule to keep it.",
			zap.String("metric", m.Name()), zap.String("unit", m.Unit()),
			zap.Float64("last_boundary", s.targetEnd), zap.Float64("source_last_boundary", s.sourceEnd))
	}
	if s.total == 0 || s.overflow <= (1-usualQuantiles[0].q)*s.total || !b.p.once.first(warning{unknownQuantiles, m.Name()}) {
		return
	}
	unknown := make([]string, 0, len(usualQuantiles))
	for _, u := range usualQuantiles {
		if s.overflow > (1-u.q)*s.total {
			unknown = append(unknown, u.name)
		}
	}
	advice := "Observations above the source's last boundary cannot be placed by re-bucketing. Build the histogram from spans with the " +
		"stream connector, or give the source higher boundaries."
	if s.lost || s.sourceEnd == 0 {
		advice = "Add higher boundaries to the rule: the source knows more than it keeps."
	}
	b.p.logger.Warn("Usual quantiles lie in the overflow bucket, where they cannot be known. "+advice,
		zap.String("metric", m.Name()), zap.String("unit", m.Unit()), zap.Strings("quantiles", unknown),
		zap.Float64("overflow_share", s.overflow/s.total), zap.Float64("last_boundary", s.targetEnd))
}

// maxWarnings bounds what is remembered, and so what is logged.
const maxWarnings = 1000

// warning is what is logged once.
type warning struct {
	kind   warningKind
	metric string
}

type warningKind uint8

const (
	lostRange warningKind = iota
	unknownQuantiles
)

// onceByKey tells the first time of a warning from later ones.
type onceByKey struct {
	mu    sync.Mutex
	seen  map[warning]struct{}
	limit int
}

func newOnceByKey(limit int) *onceByKey {
	return &onceByKey{seen: make(map[warning]struct{}), limit: limit}
}

// first tells whether w is new; never again once the limit is reached.
func (o *onceByKey) first(w warning) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.seen[w]; ok || len(o.seen) >= o.limit {
		return false
	}
	w.metric = strings.Clone(w.metric) // the name of a metric that came may be part of a whole request
	o.seen[w] = struct{}{}
	return true
}
