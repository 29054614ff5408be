// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelcol-stream/otelcol-stream/streamprocessor/internal/metadatatest"
)

// metricsHarness is a started metrics processor with what it sent on, counted and logged.
type metricsHarness struct {
	processor.Metrics

	sink *consumertest.MetricsSink
	tel  *componenttest.Telemetry
	logs *observer.ObservedLogs
}

func newMetricsHarness(t testing.TB, rules ...HistogramRule) *metricsHarness {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	h := &metricsHarness{sink: &consumertest.MetricsSink{}, tel: componenttest.NewTelemetry(), logs: logs}
	cfg := createDefaultConfig().(*Config)
	cfg.Histograms = rules
	require.NoError(t, confmap.Validate(cfg))
	set := metadatatest.NewSettings(h.tel)
	set.Logger = zap.New(core)
	var err error
	h.Metrics, err = NewFactory().CreateMetrics(context.Background(), set, cfg, h.sink)
	require.NoError(t, err)
	require.NoError(t, h.Start(context.Background(), componenttest.NewNopHost()))
	t.Cleanup(func() {
		require.NoError(t, h.Shutdown(context.Background()))
		require.NoError(t, h.tel.Shutdown(context.Background()))
	})
	return h
}

func (h *metricsHarness) send(t testing.TB, md pmetric.Metrics) pmetric.Metrics {
	t.Helper()
	in := pmetric.NewMetrics()
	md.CopyTo(in)
	h.sink.Reset()
	require.NoError(t, h.ConsumeMetrics(context.Background(), in))
	require.Len(t, h.sink.AllMetrics(), 1)
	return h.sink.AllMetrics()[0]
}

// counts are the values of a counter by reason, or under "" where it has none.
func (h *metricsHarness) counts(t testing.TB, name string) map[string]int64 {
	t.Helper()
	m, err := h.tel.GetMetric("otelcol_processor_stream_histogram_" + name)
	if err != nil {
		return nil
	}
	got := map[string]int64{}
	for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
		reason, _ := p.Attributes.Value("reason")
		got[reason.AsString()] += p.Value
	}
	return got
}

func readMetricsCase(t testing.TB, name string) pmetric.Metrics {
	t.Helper()
	md, err := golden.ReadMetrics(filepath.Join("testdata", "metrics", name+".json"))
	require.NoError(t, err)
	return md
}

func explicit(metric string, bounds ...float64) HistogramRule {
	return HistogramRule{MetricNames: []string{metric}, Explicit: &ExplicitConfig{Boundaries: bounds}}
}

func onlyMetric(md pmetric.Metrics) pmetric.Metric {
	return md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0)
}

func countsOf(p pmetric.HistogramDataPoint) []uint64 { return p.BucketCounts().AsRaw() }

func assertSame(t testing.TB, want, got pmetric.Metrics, message ...any) {
	t.Helper()
	marshaler := pmetric.JSONMarshaler{}
	wantJSON, err := marshaler.MarshalMetrics(want)
	require.NoError(t, err)
	gotJSON, err := marshaler.MarshalMetrics(got)
	require.NoError(t, err)
	assert.JSONEq(t, string(wantJSON), string(gotJSON), message...)
}

// assertOnlyBucketsChanged compares everything else of two batches.
func assertOnlyBucketsChanged(t testing.TB, before, after pmetric.Metrics) {
	t.Helper()
	strip := func(md pmetric.Metrics) pmetric.Metrics {
		out := pmetric.NewMetrics()
		md.CopyTo(out)
		for _, rm := range out.ResourceMetrics().All() {
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					if m.Type() == pmetric.MetricTypeHistogram {
						for _, p := range m.Histogram().DataPoints().All() {
							p.BucketCounts().FromRaw(nil)
							p.ExplicitBounds().FromRaw(nil)
						}
					}
				}
			}
		}
		return out
	}
	assertSame(t, strip(before), strip(after))
}

func TestCase18OverflowAbove10s(t *testing.T) {
	in := readMetricsCase(t, "18-overflow-above-10s")
	for name, tt := range map[string]struct {
		overflow OverflowPolicy
		bounds   []float64
		counts   []uint64
	}{
		"honest": {"", []float64{0.1, 1, 10}, []uint64{4, 16, 20, 60}},
		"cut":    {overflowCut, []float64{0.1, 1, 10}, []uint64{4, 16, 20, 60}},
		"keep":   {overflowKeep, []float64{0.1, 1, 10, 60, 600}, []uint64{4, 16, 20, 0, 0, 60}},
	} {
		t.Run(name, func(t *testing.T) {
			rule := explicit("http.server.request.duration", 0.1, 1, 10, 60, 600)
			rule.Overflow = tt.overflow
			h := newMetricsHarness(t, rule)
			out := h.send(t, in)
			p := onlyMetric(out).Histogram().DataPoints().At(0)
			assert.Equal(t, tt.bounds, p.ExplicitBounds().AsRaw())
			assert.Equal(t, tt.counts, countsOf(p))
			assertOnlyBucketsChanged(t, in, out)

			ofRule := attribute.NewSet(attribute.String("rule", "0"))
			metadatatest.AssertEqualProcessorStreamHistogramOverflowShare(t, h.tel, []metricdata.DataPoint[float64]{{Value: 0.6, Attributes: ofRule}}, metricdatatest.IgnoreTimestamp())
			metadatatest.AssertEqualProcessorStreamHistogramExactShare(t, h.tel, []metricdata.DataPoint[float64]{{Value: 1, Attributes: ofRule}}, metricdatatest.IgnoreTimestamp())
			h.send(t, in)
			warnings := h.logs.FilterLevelExact(zap.WarnLevel).All()
			require.Len(t, warnings, 1, "once per metric")
			assert.Contains(t, warnings[0].Message, "spans")
			assert.Contains(t, warnings[0].Message, "stream connector")
			fields := warnings[0].ContextMap()
			assert.Equal(t, "http.server.request.duration", fields["metric"])
			assert.Equal(t, []any{"0.99", "0.95"}, fields["quantiles"])
			assert.InDelta(t, 0.6, fields["overflow_share"], 1e-12)
		})
	}
}

func TestCase20ExponentialToExplicit(t *testing.T) {
	in := readMetricsCase(t, "20-exponential-to-explicit")
	a := explicit("gen_ai.client.operation.duration", 1, 2, 4, 8)
	a.Attributes = map[string]any{"gen_ai.request.model": "model-a"}
	b := explicit("gen_ai.client.operation.duration", 4, 6, 8)
	for range 20 { // the same every time
		out := newMetricsHarness(t, a, b).send(t, in)
		m := onlyMetric(out)
		require.Equal(t, pmetric.MetricTypeHistogram, m.Type())
		assert.Equal(t, pmetric.AggregationTemporalityDelta, m.Histogram().AggregationTemporality())
		points := m.Histogram().DataPoints()
		require.Equal(t, 2, points.Len())
		for i, want := range []struct {
			bounds        []float64
			counts        []uint64
			count         uint64
			sum, min, max float64
			model         string
		}{
			{[]float64{1, 2, 4, 8}, []uint64{2, 3, 5, 2, 1}, 13, 46.75, 0, 12.5, "model-a"},
			{[]float64{4, 6, 8}, []uint64{0, 585, 415, 0}, 1000, 5800, 4.25, 7.75, "model-b"},
		} {
			p := points.At(i)
			assert.Equal(t, want.bounds, p.ExplicitBounds().AsRaw())
			assert.Equal(t, want.counts, countsOf(p))
			assert.Equal(t, want.count, p.Count())
			assert.InDelta(t, want.sum, p.Sum(), 0)
			assert.True(t, p.HasMin() && p.HasMax())
			assert.InDelta(t, want.min, p.Min(), 0)
			assert.InDelta(t, want.max, p.Max(), 0)
			assert.Equal(t, pcommon.Timestamp(1764000000000000000), p.StartTimestamp())
			assert.Equal(t, pcommon.Timestamp(1764000060000000000), p.Timestamp())
			assert.Equal(t, map[string]any{"gen_ai.request.model": want.model}, p.Attributes().AsRaw())
		}
	}
}

func TestCase23DeltaSingleObservations(t *testing.T) {
	in := readMetricsCase(t, "23-delta-single-observations")
	h := newMetricsHarness(t, explicit("gen_ai.client.operation.time_to_first_chunk", 1, 3, 4))
	out := h.send(t, in)
	points := onlyMetric(out).Histogram().DataPoints()
	got := make([][]uint64, 0, points.Len())
	for _, p := range points.All() {
		got = append(got, countsOf(p))
		assert.Equal(t, []float64{1, 3, 4}, p.ExplicitBounds().AsRaw())
	}
	assert.Equal(t, [][]uint64{{0, 1, 0, 0}, {0, 0, 1, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}}, got)
	assertOnlyBucketsChanged(t, in, out)
}

func TestCase24OddPoints(t *testing.T) {
	in := readMetricsCase(t, "24-odd-points")
	other := in.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().AppendEmpty()
	other.SetName("other")
	other.SetEmptyGauge().DataPoints().AppendEmpty().SetIntValue(1)
	h := newMetricsHarness(t, explicit("http.client.request.duration", 1, 3, 4))
	out := h.send(t, in)
	was, is := onlyMetric(in).Histogram().DataPoints(), onlyMetric(out).Histogram().DataPoints()
	require.Equal(t, 7, is.Len())
	for i := range 7 {
		name, _ := is.At(i).Attributes().Get("case")
		wasName, _ := was.At(i).Attributes().Get("case")
		require.Equal(t, wasName.Str(), name.Str())
		switch name.Str() {
		case "e-no-sum":
			assert.Equal(t, []uint64{1, 4, 2, 0}, countsOf(is.At(i)))
			assert.Equal(t, []float64{1, 3, 4}, is.At(i).ExplicitBounds().AsRaw())
			assert.False(t, is.At(i).HasSum() || is.At(i).HasMin() || is.At(i).HasMax())
		case "g-empty":
			assert.Equal(t, []uint64{0, 0, 0, 0}, countsOf(is.At(i)))
			assert.Equal(t, []float64{1, 3, 4}, is.At(i).ExplicitBounds().AsRaw())
		default:
			assert.Equal(t, was.At(i), is.At(i), name.Str())
		}
	}
	assertOnlyBucketsChanged(t, in, out)
	assert.Equal(t, map[string]int64{"bucket_count": 1, "count": 1, "bounds": 1}, h.counts(t, "points_refused"))
	assert.Equal(t, map[string]int64{"": 2}, h.counts(t, "points"))
	assert.Equal(t, map[string]int64{"": 1}, h.counts(t, "points_exact"), "g, and not e")
}

// newHistogram is a batch with one explicit point.
func newHistogram(name, unit string, temporality pmetric.AggregationTemporality, bounds []float64, counts ...uint64) pmetric.Metrics {
	md := pmetric.NewMetrics()
	m := addMetric(md, name, unit)
	m.SetEmptyHistogram().SetAggregationTemporality(temporality)
	addPoint(m, bounds, counts...)
	return md
}

func addMetric(md pmetric.Metrics, name, unit string) pmetric.Metric {
	rm := md.ResourceMetrics().AppendEmpty()
	rm.SetSchemaUrl("https://opentelemetry.io/schemas/1.37.0")
	rm.Resource().Attributes().PutStr("service.name", "shop")
	sm := rm.ScopeMetrics().AppendEmpty()
	sm.SetSchemaUrl("https://opentelemetry.io/schemas/1.36.0")
	sm.Scope().SetName("demo")
	m := sm.Metrics().AppendEmpty()
	m.SetName(name)
	m.SetUnit(unit)
	m.SetDescription("how long")
	m.Metadata().PutStr("prometheus.type", "histogram")
	return m
}

func addPoint(m pmetric.Metric, bounds []float64, counts ...uint64) pmetric.HistogramDataPoint {
	p := m.Histogram().DataPoints().AppendEmpty()
	p.ExplicitBounds().FromRaw(bounds)
	p.BucketCounts().FromRaw(counts)
	var total uint64
	for _, n := range counts {
		total += n
	}
	p.SetCount(total)
	p.SetStartTimestamp(1_000)
	p.SetTimestamp(2_000)
	return p
}

func addExemplar(s pmetric.ExemplarSlice, value float64) {
	e := s.AppendEmpty()
	e.SetDoubleValue(value)
	e.SetTraceID(pcommon.TraceID{1})
	e.SetSpanID(pcommon.SpanID{2})
	e.SetTimestamp(1_500)
	e.FilteredAttributes().PutStr("k", "v")
}

const (
	cumulative = pmetric.AggregationTemporalityCumulative
	delta      = pmetric.AggregationTemporalityDelta
)

func TestBoundariesFollowTheUnit(t *testing.T) {
	for unit, scale := range map[string]float64{"s": 1, "seconds": 1, "ms": 1e3, "us": 1e6, "µs": 1e6, "ns": 1e9} {
		h := newMetricsHarness(t, explicit("d", 0.07, 3, 4))
		in := newHistogram("d", unit, cumulative, []float64{0.07 * scale, 2 * scale, 4 * scale}, 1, 2, 10, 0)
		p := onlyMetric(h.send(t, in)).Histogram().DataPoints().At(0)
		want := []float64{0.07, 3, 4}
		if scale > 1 {
			want = []float64{7 * scale / 100, 3 * scale, 4 * scale}
		}
		assert.Equal(t, want, p.ExplicitBounds().AsRaw(), unit)
		assert.Equal(t, []uint64{1, 7, 5, 0}, countsOf(p), unit)
	}
	for _, unit := range []string{"", "1", "min", "h", "S", "By", "{request}", "m"} {
		h := newMetricsHarness(t, explicit("d", 1, 3, 4))
		in := newHistogram("d", unit, cumulative, []float64{1, 2, 4}, 1, 2, 10, 0)
		assertSame(t, in, h.send(t, in), unit)
		assert.Equal(t, map[string]int64{"unit": 1}, h.counts(t, "points_refused"), unit)
	}
}

// TestUnitInTheName: what is scraped from Prometheus endpoints has its unit nowhere else.
func TestUnitInTheName(t *testing.T) {
	for name, scale := range map[string]float64{
		"vllm:time_to_first_token_seconds": 1, "sglang:inter_token_latency_seconds": 1, "latency_milliseconds": 1e3, "wait_microseconds": 1e6, "gap_nanoseconds": 1e9,
	} {
		h := newMetricsHarness(t, explicit(name, 3, 4))
		p := onlyMetric(h.send(t, newHistogram(name, "", cumulative, []float64{2 * scale, 4 * scale}, 2, 10, 0))).Histogram().DataPoints().At(0)
		assert.Equal(t, []float64{3 * scale, 4 * scale}, p.ExplicitBounds().AsRaw(), name)
		assert.Equal(t, []uint64{7, 5, 0}, countsOf(p), name)
	}
	for name, unit := range map[string]string{
		"latency": "", "seconds": "", "_seconds": "", "latency_s": "", "latency_ms": "", "seconds_total": "", "latencyseconds": "", "latency_Seconds": "",
		"latency_": "", "": "", "request_size_seconds": "By",
	} {
		h := newMetricsHarness(t, HistogramRule{MetricNames: []string{".*"}, MatchType: matchRegexp, Explicit: &ExplicitConfig{Boundaries: []float64{3, 4}}})
		in := newHistogram(name, unit, cumulative, []float64{2, 4}, 2, 10, 0)
		assertSame(t, in, h.send(t, in), name)
		assert.Equal(t, map[string]int64{"unit": 1}, h.counts(t, "points_refused"), name)
	}
}

func TestFirstMatchingRuleWins(t *testing.T) {
	first := explicit("d", 4)
	first.Attributes = map[string]any{"http.route": "/a", "http.response.status_code": 200, "ok": true}
	second := HistogramRule{MetricNames: []string{`^d$`, `\.duration$`}, MatchType: matchRegexp, Explicit: &ExplicitConfig{Boundaries: []float64{2}}}
	third := explicit("d", 1)
	h := newMetricsHarness(t, first, second, third)

	in := newHistogram("d", "s", cumulative, []float64{1, 2, 4}, 1, 2, 3, 4)
	a := addPoint(onlyMetric(in), []float64{1, 2, 4}, 1, 2, 3, 4).Attributes()
	a.PutStr("http.route", "/a")
	a.PutInt("http.response.status_code", 200)
	a.PutBool("ok", true)
	b := addPoint(onlyMetric(in), []float64{1, 2, 4}, 1, 2, 3, 4).Attributes()
	b.PutStr("http.route", "/a")
	points := onlyMetric(h.send(t, in)).Histogram().DataPoints()
	assert.Equal(t, []float64{2}, points.At(0).ExplicitBounds().AsRaw())
	assert.Equal(t, []float64{4}, points.At(1).ExplicitBounds().AsRaw())
	assert.Equal(t, []float64{2}, points.At(2).ExplicitBounds().AsRaw())

	other := newHistogram("http.server.request.duration", "s", cumulative, []float64{1, 2, 4}, 1, 2, 3, 4)
	assert.Equal(t, []uint64{3, 7}, countsOf(onlyMetric(h.send(t, other)).Histogram().DataPoints().At(0)))
	none := newHistogram("dd", "s", cumulative, []float64{1, 2, 4}, 1, 2, 3, 4)
	assertSame(t, none, h.send(t, none))
}

func TestOtherTypesPass(t *testing.T) {
	md := pmetric.NewMetrics()
	addMetric(md, "d", "s").SetEmptyGauge().DataPoints().AppendEmpty().SetDoubleValue(1)
	addMetric(md, "d", "s").SetEmptySum().DataPoints().AppendEmpty().SetIntValue(1)
	addMetric(md, "d", "s").SetEmptySummary().DataPoints().AppendEmpty().SetCount(1)
	addMetric(md, "d", "s")
	addMetric(md, "d", "s").SetEmptyHistogram()
	addMetric(md, "d", "s").SetEmptyExponentialHistogram()
	for _, rule := range []HistogramRule{explicit("d", 1), {MetricNames: []string{"d"}, Exponential: &ExponentialConfig{MaxSize: 160, MaxScale: 20}}} {
		out := newMetricsHarness(t, rule).send(t, md)
		assert.Equal(t, md.MetricCount(), out.MetricCount())
		assert.Equal(t, md.DataPointCount(), out.DataPointCount())
	}
	assertSame(t, md, newMetricsHarness(t).send(t, md), "without rules nothing changes")
}

func TestExplicitPointKeepsTheRest(t *testing.T) {
	in := newHistogram("d", "s", cumulative, []float64{1, 2, 4}, 1, 2, 4, 0)
	p := onlyMetric(in).Histogram().DataPoints().At(0)
	p.SetSum(12)
	p.SetMin(0.5)
	p.SetMax(3.75)
	p.Attributes().PutStr("a", "b")
	addExemplar(p.Exemplars(), 3.75)
	out := newMetricsHarness(t, explicit("d", 1, 3, 4)).send(t, in)
	assert.Equal(t, []uint64{1, 4, 2, 0}, countsOf(onlyMetric(out).Histogram().DataPoints().At(0)))
	assertOnlyBucketsChanged(t, in, out)
}

// newExponential is a batch with one exponential point that has everything.
func newExponential(temporality pmetric.AggregationTemporality) (pmetric.Metrics, pmetric.ExponentialHistogramDataPoint) {
	md := pmetric.NewMetrics()
	m := addMetric(md, "d", "s")
	m.SetEmptyExponentialHistogram().SetAggregationTemporality(temporality)
	p := m.ExponentialHistogram().DataPoints().AppendEmpty()
	p.SetStartTimestamp(1_000)
	p.SetTimestamp(2_000)
	p.SetScale(1)
	p.SetZeroCount(3)
	p.SetCount(3 + 10 + 7)
	p.Positive().SetOffset(-2) // (½, 0.71], (0.71, 1], (1, 1.41], (1.41, 2]
	p.Positive().BucketCounts().FromRaw([]uint64{1, 2, 3, 4})
	p.Negative().SetOffset(5)
	p.Negative().BucketCounts().FromRaw([]uint64{7})
	p.SetSum(9)
	p.SetMin(-20)
	p.SetMax(1.9)
	p.Attributes().PutStr("a", "b")
	addExemplar(p.Exemplars(), 1.9)
	return md, p
}

func TestExponentialToExplicitKeepsTheRest(t *testing.T) {
	in, _ := newExponential(cumulative)
	h := newMetricsHarness(t, explicit("d", 1, 2))
	out := h.send(t, in)
	want := pmetric.NewMetrics()
	m := addMetric(want, "d", "s")
	m.SetEmptyHistogram().SetAggregationTemporality(cumulative)
	p := addPoint(m, []float64{1, 2}, 3+7+3, 7, 0)
	p.SetSum(9)
	p.SetMin(-20)
	p.SetMax(1.9)
	p.Attributes().PutStr("a", "b")
	addExemplar(p.Exemplars(), 1.9)
	assertSame(t, want, out)
	assert.Equal(t, map[string]int64{"": 1}, h.counts(t, "anomalies"))
	assert.Equal(t, map[string]int64{"": 1}, h.counts(t, "points_exact"))

	in, point := newExponential(cumulative)
	point.RemoveSum()
	point.RemoveMin()
	point.RemoveMax()
	p = onlyMetric(h.send(t, in)).Histogram().DataPoints().At(0)
	assert.False(t, p.HasSum() || p.HasMin() || p.HasMax())
}

func TestNoRecordedValue(t *testing.T) {
	flagged := pmetric.DefaultDataPointFlags.WithNoRecordedValue(true)
	// Of a type-changing rule: an empty flagged point of the new type.
	in, _ := newExponential(cumulative)
	stale := onlyMetric(in).ExponentialHistogram().DataPoints().AppendEmpty()
	stale.SetFlags(flagged)
	stale.SetTimestamp(3_000)
	stale.Attributes().PutStr("a", "c")
	points := onlyMetric(newMetricsHarness(t, explicit("d", 1, 2)).send(t, in)).Histogram().DataPoints()
	require.Equal(t, 2, points.Len())
	want := pmetric.NewHistogramDataPoint()
	want.SetFlags(flagged)
	want.SetTimestamp(3_000)
	want.Attributes().PutStr("a", "c")
	assert.Equal(t, want, points.At(1))

	in = newHistogram("d", "s", cumulative, []float64{1, 2, 4}, 1, 2, 4, 0)
	staleExplicit := onlyMetric(in).Histogram().DataPoints().AppendEmpty()
	staleExplicit.SetFlags(flagged)
	h := newMetricsHarness(t, HistogramRule{MetricNames: []string{"d"}, Exponential: &ExponentialConfig{MaxSize: 160, MaxScale: 20}})
	out := onlyMetric(h.send(t, in))
	require.Equal(t, pmetric.MetricTypeExponentialHistogram, out.Type())
	assert.True(t, out.ExponentialHistogram().DataPoints().At(1).Flags().NoRecordedValue())
	assert.Zero(t, out.ExponentialHistogram().DataPoints().At(1).Count())

	// Of a rule that keeps the type: as it came, buckets and all.
	in = newHistogram("d", "s", cumulative, []float64{1, 2, 4}, 0, 0, 0, 0)
	onlyMetric(in).Histogram().DataPoints().At(0).SetFlags(flagged)
	h = newMetricsHarness(t, explicit("d", 1, 3))
	assertSame(t, in, h.send(t, in))
	assert.Nil(t, h.counts(t, "points_refused"))
}

func TestExplicitToExponential(t *testing.T) {
	rule := HistogramRule{MetricNames: []string{"d"}, Exponential: &ExponentialConfig{MaxSize: 4, MaxScale: 20}}
	in := newHistogram("d", "", cumulative, []float64{1, 2, 6, 16}, 3, 5, 8, 10, 0) // no unit is needed
	p := onlyMetric(in).Histogram().DataPoints().At(0)
	p.SetSum(100)
	addExemplar(p.Exemplars(), 1.9)
	h := newMetricsHarness(t, rule)
	m := onlyMetric(h.send(t, in))
	require.Equal(t, pmetric.MetricTypeExponentialHistogram, m.Type())
	got := m.ExponentialHistogram().DataPoints().At(0)
	assert.Equal(t, int32(0), got.Scale())
	assert.Equal(t, uint64(3), got.ZeroCount())
	assert.InDelta(t, 1.0, got.ZeroThreshold(), 0)
	assert.Equal(t, int32(0), got.Positive().Offset())
	// (1, 2], half of (2, 6], the other half and a fifth of (6, 16], the rest of that.
	assert.Equal(t, []uint64{5, 4, 6, 8}, got.Positive().BucketCounts().AsRaw())
	assert.Zero(t, got.Negative().BucketCounts().Len())
	assert.Equal(t, uint64(26), got.Count())
	assert.True(t, got.HasSum() && !got.HasMin() && !got.HasMax())
	assert.Equal(t, 1, got.Exemplars().Len())
	assert.Equal(t, pcommon.Timestamp(1_000), got.StartTimestamp())

	// Empty buckets at the ends are left out.
	in = newHistogram("d", "s", cumulative, []float64{1, 2, 4, 8, 16}, 0, 0, 9, 0, 0, 0)
	got = onlyMetric(newMetricsHarness(t, rule).send(t, in)).ExponentialHistogram().DataPoints().At(0)
	assert.Equal(t, int32(1), got.Positive().Offset())
	assert.Equal(t, []uint64{9}, got.Positive().BucketCounts().AsRaw())
}

func TestExponentialDownscale(t *testing.T) {
	in, _ := newExponential(delta)
	h := newMetricsHarness(t, HistogramRule{MetricNames: []string{"d"}, Exponential: &ExponentialConfig{MaxSize: 160, MaxScale: 0}})
	out := h.send(t, in)
	want := pmetric.NewMetrics()
	in.CopyTo(want)
	p := onlyMetric(want).ExponentialHistogram().DataPoints().At(0)
	p.SetScale(0)
	p.Positive().SetOffset(-1)
	p.Positive().BucketCounts().FromRaw([]uint64{3, 7})
	p.Negative().SetOffset(2)
	assertSame(t, want, out)
	assertSame(t, want, h.send(t, out), "a second time changes nothing")
}

// A refused point of a rule that changes the type keeps the whole metric as it came.
func TestRefusedPointsKeepTheWholeMetric(t *testing.T) {
	toExponential := HistogramRule{MetricNames: []string{"d"}, Exponential: &ExponentialConfig{MaxSize: 160, MaxScale: 20}}
	for name, tt := range map[string]struct {
		rule HistogramRule
		in   func() pmetric.Metrics
		want map[string]int64
	}{
		"overflow": {toExponential, func() pmetric.Metrics {
			md := newHistogram("d", "s", cumulative, []float64{1, 2, 4}, 1, 2, 3, 0)
			addPoint(onlyMetric(md), []float64{1, 2, 4}, 1, 2, 3, 4)
			addPoint(onlyMetric(md), []float64{1, 2, 4}, 1, 2, 3, 0)
			return md
		}, map[string]int64{"overflow": 1, "metric_kept": 2}},
		"counts that do not add up": {toExponential, func() pmetric.Metrics {
			md := newHistogram("d", "s", cumulative, []float64{1, 2, 4}, 1, 2, 3, 0)
			onlyMetric(md).Histogram().DataPoints().At(0).SetCount(7)
			return md
		}, map[string]int64{"count": 1}},
		"no buckets": {toExponential, func() pmetric.Metrics {
			md := newHistogram("d", "s", cumulative, nil)
			onlyMetric(md).Histogram().DataPoints().At(0).SetCount(7)
			return md
		}, map[string]int64{"no_buckets": 1}},
		"negative bounds": {toExponential, func() pmetric.Metrics {
			return newHistogram("d", "s", cumulative, []float64{-1, 2, 4}, 1, 2, 3, 0)
		}, map[string]int64{"layout": 1}},
		"exponential counts that do not add up": {explicit("d", 1, 2), func() pmetric.Metrics {
			md, p := newExponential(delta)
			p.SetCount(1)
			return md
		}, map[string]int64{"count": 1}},
		"scale": {explicit("d", 1, 2), func() pmetric.Metrics {
			md, p := newExponential(delta)
			p.SetScale(21)
			return md
		}, map[string]int64{"scale": 1}},
		"zero threshold": {explicit("d", 1, 2), func() pmetric.Metrics {
			md, p := newExponential(delta)
			p.SetZeroThreshold(math.NaN())
			return md
		}, map[string]int64{"zero_threshold": 1}},
		"unit": {explicit("d", 1, 2), func() pmetric.Metrics {
			md, _ := newExponential(delta)
			onlyMetric(md).SetUnit("1")
			return md
		}, map[string]int64{"unit": 1}},
		"some points without a rule": {
			HistogramRule{MetricNames: []string{"d"}, Attributes: map[string]any{"a": "b"}, Explicit: &ExplicitConfig{Boundaries: []float64{1}}},
			func() pmetric.Metrics {
				md, _ := newExponential(delta)
				onlyMetric(md).ExponentialHistogram().DataPoints().AppendEmpty()
				return md
			},
			map[string]int64{"mixed_rules": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newMetricsHarness(t, tt.rule)
			in := tt.in()
			assertSame(t, in, h.send(t, in))
			assert.Equal(t, tt.want, h.counts(t, "points_refused"))
			assert.Nil(t, h.counts(t, "points"))
		})
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	rule := explicit("d", 1, 3)
	rule.DryRun = true
	h := newMetricsHarness(t, rule)
	in := newHistogram("d", "s", delta, []float64{1, 2, 4}, 1, 2, 4, 3)
	assertSame(t, in, h.send(t, in))
	assert.Equal(t, map[string]int64{"": 1}, h.counts(t, "points"))
	ofRule := attribute.NewSet(attribute.String("rule", "0"))
	// (2, 4] is split at 3; 3 and half of 4 above it... the rule's last boundary, so 5 of 10 lie in the overflow.
	metadatatest.AssertEqualProcessorStreamHistogramExactShare(t, h.tel, []metricdata.DataPoint[float64]{{Value: 0.6, Attributes: ofRule}}, metricdatatest.IgnoreTimestamp())
	metadatatest.AssertEqualProcessorStreamHistogramUncertainShareMax(t, h.tel, []metricdata.DataPoint[float64]{{Value: 0.4, Attributes: ofRule}}, metricdatatest.IgnoreTimestamp())
	metadatatest.AssertEqualProcessorStreamHistogramOverflowShare(t, h.tel, []metricdata.DataPoint[float64]{{Value: 0.5, Attributes: ofRule}}, metricdatatest.IgnoreTimestamp())
	warnings := h.logs.FilterLevelExact(zap.WarnLevel).All()
	require.Len(t, warnings, 2)
	assert.Contains(t, warnings[0].Message, "last boundary lies below the source's")
	assert.Contains(t, warnings[1].Message, "Add higher boundaries")

	exponential, _ := newExponential(delta)
	assertSame(t, exponential, h.send(t, exponential))
	toExponential := HistogramRule{MetricNames: []string{"d"}, DryRun: true, Exponential: &ExponentialConfig{MaxSize: 2, MaxScale: -1}}
	h = newMetricsHarness(t, toExponential)
	assertSame(t, exponential, h.send(t, exponential))
	in = newHistogram("d", "s", delta, []float64{1, 2, 4}, 1, 2, 4, 0)
	assertSame(t, in, h.send(t, in))
	assert.Equal(t, map[string]int64{"": 2}, h.counts(t, "points"))
}

// The same observations as delta and as cumulative points: the same totals, and the same buckets within one count.
func TestDeltaAgreesWithCumulative(t *testing.T) {
	source := presets["http"]
	rng := rand.New(rand.NewPCG(1, 2))
	h := newMetricsHarness(t, HistogramRule{MetricNames: []string{"d"}, Explicit: &ExplicitConfig{Preset: "vllm.ttft"}})
	for stream := range 50 {
		total := make([]uint64, len(source)+1)
		var emitted []uint64
		for range 40 {
			counts := make([]uint64, len(source)+1)
			for range rng.IntN(30) {
				counts[rng.IntN(len(counts))]++
			}
			for i, n := range counts {
				total[i] += n
			}
			in := newHistogram("d", "s", delta, source, counts...)
			onlyMetric(in).Histogram().DataPoints().At(0).Attributes().PutInt("stream", int64(stream))
			got := countsOf(onlyMetric(h.send(t, in)).Histogram().DataPoints().At(0))
			if emitted == nil {
				emitted = make([]uint64, len(got))
			}
			for j, n := range got {
				emitted[j] += n
			}
			want := countsOf(onlyMetric(h.send(t, newHistogram("d", "s", cumulative, source, total...))).Histogram().DataPoints().At(0))
			for j := range want {
				require.LessOrEqual(t, max(want[j], emitted[j])-min(want[j], emitted[j]), uint64(1), "bucket %d", j)
			}
		}
	}
}

// Deltas with one observation each: over the points of one stream, over streams with one point, and over streams of which a few are kept.
func TestSingleObservationDeltasAreUnbiased(t *testing.T) {
	const n = 10_000
	for name, tt := range map[string]struct {
		streams int
		keep    int
	}{
		"one stream": {1, maxCarriedStreams}, "many streams": {n, maxCarriedStreams}, "a hundred streams": {100, maxCarriedStreams},
		"a hundred streams, few kept": {100, carryShards},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := createDefaultConfig().(*Config)
			cfg.Histograms = []HistogramRule{explicit("d", 1, 2.2, 3, 4)}
			p, err := newMetricsProcessor(nopSettings(), cfg)
			require.NoError(t, err)
			p.carries = newCarries(tt.keep)
			got := make([]uint64, 5)
			for i := range n {
				in := newHistogram("d", "s", delta, []float64{1, 2, 4}, 0, 0, 1, 0)
				point := onlyMetric(in).Histogram().DataPoints().At(0)
				point.Attributes().PutStr("session", "session-"+strconv.Itoa(i%tt.streams))
				point.SetStartTimestamp(pcommon.Timestamp(i) * 1e9)
				out, err := p.processMetrics(t.Context(), in)
				require.NoError(t, err)
				for j, c := range countsOf(onlyMetric(out).Histogram().DataPoints().At(0)) {
					got[j] += c
				}
			}
			// Of (2, 4] one tenth lies up to 2.2, four tenths up to 3 and one half up to 4.
			for j, want := range []float64{0, 0.1, 0.4, 0.5, 0} {
				assert.InDelta(t, want, float64(got[j])/n, 0.01, "%v", got)
			}
		})
	}
}

func TestCarriesAreBounded(t *testing.T) {
	c := newCarries(64)
	for i := range 10_000 {
		key := streamKey{point: [16]byte{byte(i), byte(i >> 8)}}
		_, lock := c.get(key, 0, 10)
		lock.Unlock()
	}
	kept := 0
	for i := range c.shards {
		kept += len(c.shards[i].young) + len(c.shards[i].old)
	}
	assert.LessOrEqual(t, kept, 64)
	assert.Equal(t, int64(kept), c.kept.Load())
	assert.Equal(t, int64(10_000-kept), c.evicted.Load())

	// A stream in use stays, however many others come.
	used := streamKey{point: [16]byte{1: 255, 2: 1}}
	first, lock := c.get(used, 0, 10)
	lock.Unlock()
	for i := range 10_000 {
		_, lock := c.get(streamKey{point: [16]byte{byte(i), byte(i >> 8)}}, 0, 10)
		lock.Unlock()
		again, lock := c.get(used, 0, 10)
		lock.Unlock()
		require.Same(t, first, again)
	}

	// Long layouts count for more.
	c = newCarries(1_000_000)
	for i := range 100_000 {
		_, lock := c.get(streamKey{metric: [16]byte{1: byte(i), 2: byte(i >> 8), 3: byte(i >> 16)}, point: [16]byte{byte(i)}}, 0, 10_000)
		lock.Unlock()
	}
	assert.LessOrEqual(t, c.kept.Load()*10_000, int64(maxCarriedSlots+carryShards*10_000))
}

// Streams differ in any of their parts; the order of attributes is none.
func TestStreamIdentity(t *testing.T) {
	base := func() (pmetric.Metrics, pcommon.Map) {
		md := newHistogram("d", "s", delta, []float64{1, 2}, 1, 2, 3)
		a := onlyMetric(md).Histogram().DataPoints().At(0).Attributes()
		a.PutStr("a", "1")
		a.PutStr("b", "2")
		return md, a
	}
	key := func(md pmetric.Metrics, a pcommon.Map, rule int) streamKey {
		rm := md.ResourceMetrics().At(0)
		id := metricIdentity{resource: rm.Resource(), scope: rm.ScopeMetrics().At(0).Scope(), metric: onlyMetric(md)}
		return id.stream(rule, a)
	}
	md, a := base()
	seen := []streamKey{key(md, a, 0)}
	for _, change := range []func(pmetric.Metrics, pcommon.Map) int{
		func(pmetric.Metrics, pcommon.Map) int { return 1 },
		func(md pmetric.Metrics, _ pcommon.Map) int {
			md.ResourceMetrics().At(0).Resource().Attributes().PutStr("x", "y")
			return 0
		},
		func(md pmetric.Metrics, _ pcommon.Map) int {
			md.ResourceMetrics().At(0).ScopeMetrics().At(0).Scope().SetName("other")
			return 0
		},
		func(md pmetric.Metrics, _ pcommon.Map) int { onlyMetric(md).SetName("e"); return 0 },
		func(_ pmetric.Metrics, a pcommon.Map) int { a.PutStr("b", "3"); return 0 },
		func(_ pmetric.Metrics, a pcommon.Map) int { a.PutInt("b", 2); return 0 },
	} {
		changed, attributes := base()
		rule := change(changed, attributes)
		k := key(changed, attributes, rule)
		assert.NotContains(t, seen, k)
		seen = append(seen, k)
	}
	md, a = base()
	a.Remove("a")
	a.PutStr("a", "1")
	assert.Equal(t, seen[0], key(md, a, 0))
	k, again := seen[0], key(md, a, 0)
	assert.NotEqual(t, k.phase(1), k.phase(2))
	assert.Equal(t, k.phase(1), again.phase(1))
}

// Sources change their layout, restart and race each other.
func TestConcurrentMetrics(t *testing.T) {
	h := newMetricsHarness(t, HistogramRule{MetricNames: []string{"d"}, Explicit: &ExplicitConfig{Preset: "vllm.ttft"}})
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), 1))
			for i := range 200 {
				in := newHistogram("d", "s", []pmetric.AggregationTemporality{delta, cumulative}[i%2], []float64{1, 2, 4 + float64(rng.IntN(5))}, 1, 2, 3, 4)
				onlyMetric(in).Histogram().DataPoints().At(0).Attributes().PutInt("stream", int64(rng.IntN(4)))
				assert.NoError(t, h.ConsumeMetrics(context.Background(), in)) //nolint:testifylint // not in the test's goroutine
				exponential, _ := newExponential(delta)
				assert.NoError(t, h.ConsumeMetrics(context.Background(), exponential))
			}
		})
	}
	wg.Wait()
	for _, md := range h.sink.AllMetrics() {
		p := onlyMetric(md).Histogram().DataPoints().At(0)
		var total uint64
		for _, n := range countsOf(p) {
			total += n
		}
		require.Equal(t, p.Count(), total)
		require.Equal(t, p.ExplicitBounds().Len()+1, p.BucketCounts().Len())
	}
	assert.Len(t, h.sink.AllMetrics(), 8*400)
}

// A source that starts again, with other boundaries: the plan has no memory, so the new counts stand for themselves.
func TestRestartWithOtherBoundaries(t *testing.T) {
	h := newMetricsHarness(t, explicit("d", 1, 3, 4))
	first := onlyMetric(h.send(t, newHistogram("d", "s", cumulative, []float64{1, 2, 4}, 5, 6, 100, 7))).Histogram().DataPoints().At(0)
	assert.Equal(t, []uint64{5, 56, 50, 7}, countsOf(first))
	again := newHistogram("d", "s", cumulative, []float64{1, 4, 8}, 1, 3, 0, 0)
	onlyMetric(again).Histogram().DataPoints().At(0).SetStartTimestamp(9_000)
	second := onlyMetric(h.send(t, again)).Histogram().DataPoints().At(0)
	assert.Equal(t, []uint64{1, 2, 1, 0}, countsOf(second))
	assert.Equal(t, []float64{1, 3, 4}, second.ExplicitBounds().AsRaw(), "one layout whatever the source's")
	assert.Equal(t, pcommon.Timestamp(9_000), second.StartTimestamp())
}

func TestTelemetryOfDeltaStreams(t *testing.T) {
	h := newMetricsHarness(t, explicit("d", 3))
	for i := range 5 {
		in := newHistogram("d", "s", delta, []float64{1, 2, 4}, 0, 0, 1, 0)
		onlyMetric(in).Histogram().DataPoints().At(0).Attributes().PutInt("stream", int64(i))
		h.send(t, in)
		h.send(t, in)
	}
	kept := func(h *metricsHarness, want int64) {
		t.Helper()
		metadatatest.AssertEqualProcessorStreamHistogramDeltaStreams(t, h.tel, []metricdata.DataPoint[int64]{{Value: want}}, metricdatatest.IgnoreTimestamp())
	}
	kept(h, 5)

	// A processor in two pipelines is two instances, and what they keep adds up.
	cfg := createDefaultConfig().(*Config)
	cfg.Histograms = []HistogramRule{explicit("d", 3)}
	other, err := NewFactory().CreateMetrics(t.Context(), metadatatest.NewSettings(h.tel), cfg, h.sink)
	require.NoError(t, err)
	require.NoError(t, other.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, other.ConsumeMetrics(t.Context(), newHistogram("d", "s", delta, []float64{1, 2, 4}, 0, 0, 1, 0)))
	kept(h, 6)
	require.NoError(t, other.Shutdown(t.Context()))
	kept(h, 5)

	// Where no bucket is split there is nothing to keep.
	h = newMetricsHarness(t, explicit("d", 2))
	h.send(t, newHistogram("d", "s", delta, []float64{1, 2, 4}, 0, 0, 1, 0))
	kept(h, 0)
}

// Converting in place takes memory only where the new layout is longer, and then once.
func TestInPlaceConversionAllocatesNothing(t *testing.T) {
	for name, temporality := range map[string]pmetric.AggregationTemporality{"cumulative": cumulative, "delta": delta} {
		t.Run(name, func(t *testing.T) {
			cfg := createDefaultConfig().(*Config)
			cfg.Histograms = []HistogramRule{explicit("d", 1, 3, 4), explicit("e", 1, 3, 4)}
			p, err := newMetricsProcessor(nopSettings(), cfg)
			require.NoError(t, err)
			const points = 1000
			in := newHistogram("d", "s", temporality, []float64{1, 2, 4}, 1, 2, 3, 4)
			for i := range points - 1 {
				addPoint(onlyMetric(in), []float64{1, 2, 4}, 1, 2, 3, 4).Attributes().PutInt("i", int64(i))
			}
			perBatch := testing.AllocsPerRun(10, func() {
				for _, point := range onlyMetric(in).Histogram().DataPoints().All() {
					point.ExplicitBounds().SetAt(1, 2)
				}
				_, err = p.processMetrics(context.Background(), in)
			})
			require.NoError(t, err)
			assert.Equal(t, []float64{1, 3, 4}, onlyMetric(in).Histogram().DataPoints().At(points-1).ExplicitBounds().AsRaw())
			if !raceEnabled {
				assert.Less(t, perBatch/points, 0.1)
			}
		})
	}
}

func TestWarningsAreBounded(t *testing.T) {
	o := newOnceByKey(2)
	assert.True(t, o.first(warning{lostRange, "a"}))
	assert.False(t, o.first(warning{lostRange, "a"}))
	assert.True(t, o.first(warning{unknownQuantiles, "a"}))
	assert.False(t, o.first(warning{unknownQuantiles, "b"}), "the limit")
}

func TestErrorsOfTheNextMetricsConsumerComeBack(t *testing.T) {
	p, err := NewFactory().CreateMetrics(context.Background(), nopSettings(), createDefaultConfig(), consumertest.NewErr(errNext))
	require.NoError(t, err)
	require.ErrorIs(t, p.ConsumeMetrics(context.Background(), newHistogram("d", "s", delta, []float64{1}, 1, 2)), errNext)
	require.NoError(t, p.Shutdown(context.Background()))
}

func TestHistogramRulesFromFile(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	require.NoError(t, confmap.NewFromStringMap(map[string]any{"histograms": []any{
		map[string]any{"metric_names": []any{"a"}, "explicit": map[string]any{"boundaries": []any{0.1, 1, 10}}, "attributes": map[string]any{"code": 200, "x": "y"}},
		map[string]any{"metric_names": []any{"^b"}, "match_type": "regexp", "explicit": map[string]any{"preset": "vllm.e2e"}, "density": "log", "overflow": "keep", "dry_run": true},
		map[string]any{"metric_names": []any{"c"}, "exponential": map[string]any{}},
		map[string]any{"metric_names": []any{"c"}, "exponential": map[string]any{"max_scale": 0}},
	}}).Unmarshal(cfg))
	require.NoError(t, confmap.Validate(cfg))
	assert.Equal(t, []HistogramRule{
		{MetricNames: []string{"a"}, Explicit: &ExplicitConfig{Boundaries: Boundaries{0.1, 1, 10}}, Attributes: map[string]any{"code": 200, "x": "y"}},
		{MetricNames: []string{"^b"}, MatchType: matchRegexp, Explicit: &ExplicitConfig{Preset: "vllm.e2e"}, Density: densityLog, Overflow: overflowKeep, DryRun: true},
		{MetricNames: []string{"c"}, Exponential: &ExponentialConfig{MaxSize: 160, MaxScale: 20}},
		{MetricNames: []string{"c"}, Exponential: &ExponentialConfig{MaxSize: 160, MaxScale: 0}},
	}, cfg.Histograms)
}

func TestInvalidHistogramRules(t *testing.T) {
	names, bounds := []any{"a"}, map[string]any{"boundaries": []any{1, 2}}
	for want, rule := range map[string]map[string]any{
		"histograms::0::explicit::boundaries: must be strictly increasing, got 5 after 10":       {"metric_names": names, "explicit": map[string]any{"boundaries": []any{1, 10, 5}}},
		"histograms::0::explicit::boundaries: must be strictly increasing, got 1 after 1":        {"metric_names": names, "explicit": map[string]any{"boundaries": []any{1, 1}}},
		"histograms::0::explicit::boundaries: must not be negative, got -1":                      {"metric_names": names, "explicit": map[string]any{"boundaries": []any{-1, 1}}},
		"histograms::0::explicit::boundaries: must be finite, got NaN":                           {"metric_names": names, "explicit": map[string]any{"boundaries": []any{math.NaN()}}},
		"histograms::0::explicit::boundaries: must be finite, got +Inf":                          {"metric_names": names, "explicit": map[string]any{"boundaries": []any{1, math.Inf(1)}}},
		"histograms::0::explicit::boundaries: must be at most 1e+18 s, got 1e+300":               {"metric_names": names, "explicit": map[string]any{"boundaries": []any{1e300}}},
		"histograms::0::explicit: needs boundaries or preset":                                    {"metric_names": names, "explicit": map[string]any{}},
		`histograms::0::explicit: takes boundaries or preset, not both; preset is "http"`:        {"metric_names": names, "explicit": map[string]any{"boundaries": []any{1}, "preset": "http"}},
		`histograms::0::explicit::preset: "tgi" is none of genai.client, `:                       {"metric_names": names, "explicit": map[string]any{"preset": "tgi"}},
		"histograms::0: needs explicit or exponential":                                           {"metric_names": names},
		"histograms::0: takes explicit or exponential, not both":                                 {"metric_names": names, "explicit": bounds, "exponential": map[string]any{}},
		"histograms::0: metric_names: must name at least one metric":                             {"explicit": bounds},
		"histograms::0: metric_names::1: must not be empty":                                      {"metric_names": []any{"a", ""}, "explicit": bounds},
		"histograms::0: metric_names::0: error parsing regexp: missing closing ): `(`":           {"metric_names": []any{"("}, "match_type": "regexp", "explicit": bounds},
		"histograms::0: attributes::k: [1] ([]interface {}) must be a string, a number or a boo": {"metric_names": names, "explicit": bounds, "attributes": map[string]any{"k": []any{1}}},
		`histograms::0::match_type: "glob" is none of strict, regexp`:                            {"metric_names": names, "match_type": "glob", "explicit": bounds},
		`histograms::0::density: "cubic" is none of auto, linear, log`:                           {"metric_names": names, "density": "cubic", "explicit": bounds},
		`histograms::0::overflow: "drop" is none of cut, keep`:                                   {"metric_names": names, "overflow": "drop", "explicit": bounds},
		"histograms::0::exponential::max_size: 1 is not between 2 and 10000":                     {"metric_names": names, "exponential": map[string]any{"max_size": 1}},
		"histograms::0::exponential::max_scale: 21 is not between -10 and 20":                    {"metric_names": names, "exponential": map[string]any{"max_scale": 21}},
	} {
		t.Run(want, func(t *testing.T) {
			cfg := createDefaultConfig().(*Config)
			require.NoError(t, confmap.NewFromStringMap(map[string]any{"histograms": []any{rule}}).Unmarshal(cfg))
			require.ErrorContains(t, confmap.Validate(cfg), want)
		})
	}
	// A caller that skips Validate gets the error from the constructor.
	for _, rule := range []HistogramRule{
		explicit("d", 2, 1),
		{MetricNames: []string{"("}, MatchType: matchRegexp},
		{MetricNames: []string{"d"}},
		{MetricNames: []string{"d"}, Explicit: &ExplicitConfig{}},
		{MetricNames: []string{"d"}, Attributes: map[string]any{"a": struct{}{}}},
	} {
		_, err := newMetricsProcessor(nopSettings(), &Config{Histograms: []HistogramRule{rule}})
		require.ErrorContains(t, err, "histograms::0")
	}
}

// Each list was compared with its source by hand; this guards it against slips.
func TestPresets(t *testing.T) {
	for name, want := range map[PresetName]struct {
		n           int
		first, last float64
	}{
		"genai.client": {14, 0.01, 81.92}, "genai.server.ttft": {16, 0.001, 10}, "genai.server.tpot": {13, 0.01, 2.5}, "http": {14, 0.005, 10},
		"vllm.ttft": {22, 0.001, 2560}, "vllm.itl": {19, 0.01, 80}, "vllm.e2e": {21, 0.3, 7680}, "sglang.ttft": {18, 0.1, 400}, "sglang.itl": {23, 0.002, 8},
		"stream.ttfc": {17, 1.0 / 1024, 64}, "stream.gap": {17, 1.0 / 1024, 64}, "stream.duration": {16, 0.125, 4096},
	} {
		bounds := presets[name]
		require.NoError(t, Boundaries(bounds).Validate(), name)
		assert.Len(t, bounds, want.n, name)
		assert.InDelta(t, want.first, bounds[0], 0, name)
		assert.InDelta(t, want.last, bounds[len(bounds)-1], 0, name)
	}
	assert.Len(t, presets, 12)
	assert.True(t, slices.IsSorted(presets["stream.gap"]))
}

func FuzzMetrics(f *testing.F) {
	marshaler := pmetric.ProtoMarshaler{}
	for _, name := range []string{"18-overflow-above-10s", "20-exponential-to-explicit", "23-delta-single-observations", "24-odd-points"} {
		data, err := marshaler.MarshalMetrics(readMetricsCase(f, name))
		require.NoError(f, err)
		f.Add(data)
	}
	cfg := createDefaultConfig().(*Config)
	cfg.Histograms = []HistogramRule{
		{MetricNames: []string{"duration"}, MatchType: matchRegexp, Explicit: &ExplicitConfig{Boundaries: []float64{0, 0.1, 3, 100}}},
		{MetricNames: []string{"."}, MatchType: matchRegexp, Exponential: &ExponentialConfig{MaxSize: 20, MaxScale: 3}},
	}
	p, err := newMetricsProcessor(nopSettings(), cfg)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, data []byte) {
		md, err := (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics(data)
		if err != nil {
			return
		}
		metrics, points := md.MetricCount(), md.DataPointCount()
		before := totals(md)
		out, err := p.processMetrics(context.Background(), md)
		require.NoError(t, err)
		require.Equal(t, metrics, out.MetricCount())
		require.Equal(t, points, out.DataPointCount())
		require.Equal(t, before, totals(out))
	})
}

// totals are count and sum of the bucket counts of every histogram point.
func totals(md pmetric.Metrics) []string {
	var all []string
	sum := func(counts pcommon.UInt64Slice) (n uint64) {
		for _, c := range counts.All() {
			n += c
		}
		return n
	}
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				switch m.Type() {
				case pmetric.MetricTypeHistogram:
					for _, p := range m.Histogram().DataPoints().All() {
						all = append(all, fmt.Sprint(p.Count(), sum(p.BucketCounts())))
					}
				case pmetric.MetricTypeExponentialHistogram:
					for _, p := range m.ExponentialHistogram().DataPoints().All() {
						all = append(all, fmt.Sprint(p.Count(), p.ZeroCount()+sum(p.Positive().BucketCounts())+sum(p.Negative().BucketCounts())))
					}
				default:
				}
			}
		}
	}
	return all
}
