// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelcol-stream/otelcol-stream/test/collector"
	"github.com/otelcol-stream/otelcol-stream/test/prometheus"
)

var httpBounds = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}

// latencies fills an explicit histogram with log-normal times around half a second, 1 % of them above 10 s.
type latencies struct {
	rng    *rand.Rand
	counts []uint64
	total  uint64
	sum    float64
}

func newLatencies(seed uint64) *latencies {
	return &latencies{rng: rand.New(rand.NewPCG(seed, seed)), counts: make([]uint64, len(httpBounds)+1)}
}

func (l *latencies) observe(n int) {
	for range n {
		x := 0.5 * math.Exp(1.3*l.rng.NormFloat64())
		l.counts[sort.SearchFloat64s(httpBounds, x)]++
		l.total++
		l.sum += x
	}
}

func (l *latencies) take() {
	clear(l.counts)
	l.total, l.sum = 0, 0
}

func (l *latencies) write(point pmetric.HistogramDataPoint, start, now time.Time) {
	point.SetStartTimestamp(pcommon.NewTimestampFromTime(start))
	point.SetTimestamp(pcommon.NewTimestampFromTime(now))
	point.ExplicitBounds().FromRaw(httpBounds)
	point.BucketCounts().FromRaw(l.counts)
	point.SetCount(l.total)
	point.SetSum(l.sum)
	point.Attributes().PutStr("http.route", "/v1/chat")
}

func newHistogram(name string, temporality pmetric.AggregationTemporality) (pmetric.Metrics, pmetric.HistogramDataPointSlice) {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("service.name", "shop")
	m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName(name)
	m.SetUnit("s")
	h := m.SetEmptyHistogram()
	h.SetAggregationTemporality(temporality)
	return md, h.DataPoints()
}

// What arrives in a real Prometheus, over remote write so that ten thousand snapshots need no ten thousand scrapes.
const rebucketToPrometheus = `
processors:
  stream:
    histograms:
      - metric_names: [classic]
        explicit: {boundaries: [0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1, 1.5, 2, 4, 5, 6, 10, 60]}
      - metric_names: [merged, made]
        exponential: {max_size: 20}
exporters:
  prometheusremotewrite/source: &remote
    endpoint: ${env:PROMETHEUS_URL}/api/v1/write
    external_labels: {layout: source}
    remote_write_queue: {enabled: true, num_consumers: 1, queue_size: 100000}
    max_batch_request_parallelism: 1
    timeout: 60s
  prometheusremotewrite/converted:
    <<: *remote
    external_labels: {layout: converted}
service:
  pipelines:
    metrics/source: {receivers: [otlp], exporters: [prometheusremotewrite/source]}
    metrics/converted: {receivers: [otlp], processors: [stream], exporters: [prometheusremotewrite/converted]}
`

func TestMetricsRebucketedInPrometheus(t *testing.T) {
	const (
		snapshots = 10_000
		perBatch  = 200
	)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte("global: {scrape_interval: 1m}\n"), 0o600))
	server, err := prometheus.Run(t.Context(), prometheus.Options{
		Dir: dir, Work: t.TempDir(), Features: "native-histograms", Args: []string{"--web.enable-remote-write-receiver"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop()) })
	c := collector.StartWith(t, collector.Options{
		Configs: []string{collector.Base, rebucketToPrometheus}, Env: map[string]string{"PROMETHEUS_URL": server.URL},
	})

	end := time.Now().Truncate(time.Second)
	start := end.Add(-snapshots * time.Second)
	source := newLatencies(1)
	for i := 0; i < snapshots; {
		md, points := newHistogram("classic", pmetric.AggregationTemporalityCumulative)
		for range perBatch {
			i++
			source.observe(source.rng.IntN(4)) // of a snapshot with nothing new, and one with several, there are many
			source.write(points.AppendEmpty(), start, start.Add(time.Duration(i)*time.Second))
		}
		require.NoError(t, c.PostMetrics(t.Context(), md))
	}
	exponential, value := exponentialMetrics(start, end)
	require.NoError(t, c.PostMetrics(t.Context(), exponential))

	at := func(query string) model.Vector {
		t.Helper()
		got, err := server.Query(t.Context(), query)
		require.NoError(t, err)
		return got
	}
	window := fmt.Sprintf("[%ds]", int(time.Since(start).Seconds())+60)
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		for _, layout := range []string{"source", "converted"} {
			got, err := server.Query(t.Context(), `count_over_time(classic_seconds_count{layout="`+layout+`"}`+window+`)`)
			require.NoError(collect, err)
			require.Len(collect, got, 1)
			require.Equal(collect, model.SampleValue(snapshots), got[0].Value)
		}
	}, 2*time.Minute, 500*time.Millisecond)

	t.Run("no reset", func(t *testing.T) {
		for _, layout := range []string{"source", "converted"} {
			resets := at(`resets(classic_seconds_bucket{layout="` + layout + `"}` + window + `)`)
			assert.NotEmpty(t, resets)
			for _, series := range resets {
				assert.Zero(t, float64(series.Value), "%v", series.Metric)
			}
		}
		// Without a reset, the increase from the first to the last sample is exactly their difference.
		inexact := at(`last_over_time(classic_seconds_bucket{layout="converted",le="0.3"}` + window + `) - on() min_over_time(classic_seconds_bucket{layout="converted",le="0.3"}` + window + `)`)
		require.Len(t, inexact, 1)
		assert.Greater(t, float64(inexact[0].Value), 1000.0, "the series that is split grew by as much")
	})

	t.Run("quantiles at kept bounds", func(t *testing.T) {
		for _, series := range []string{`last_over_time(classic_seconds_bucket{layout="%s"}` + window + `)`, `rate(classic_seconds_bucket{layout="%s"}` + window + `)`} {
			of := func(layout string) string { return fmt.Sprintf(series, layout) }
			for _, bound := range []string{"0.05", "0.1", "1", "5", "10"} { // in both layouts
				share := fmt.Sprintf(`scalar(sum((%s) and on(le) label_replace(vector(1), "le", %q, "", "")) / sum((%s) and on(le) label_replace(vector(1), "le", "+Inf", "", "")))`, of("source"), bound, of("source"))
				var got [2]float64
				for i, layout := range []string{"source", "converted"} {
					v := at(`histogram_quantile(` + share + `, ` + of(layout) + `)`)
					require.Len(t, v, 1)
					got[i] = float64(v[0].Value)
				}
				assert.InEpsilon(t, got[0], got[1], 1e-9, "at %s", bound)
			}
		}
	})

	t.Run("layout", func(t *testing.T) {
		got := map[string]bool{}
		for _, series := range at(`last_over_time(classic_seconds_bucket{layout="converted"}` + window + `)`) {
			got[string(series.Metric["le"])] = true
		}
		want := map[string]bool{}
		for _, le := range []string{"0.05", "0.1", "0.2", "0.3", "0.4", "0.6", "0.8", "1", "1.5", "2", "4", "5", "6", "10", "+Inf"} {
			want[le] = true
		}
		assert.Equal(t, want, got, "60 is above the source's last boundary")
	})

	// Exponential output is a native histogram: of a lower scale, and made from explicit boundaries. Both layouts have the same count and sum,
	// and at an edge that both scales have, the same share below.
	t.Run("native", func(t *testing.T) {
		queries := map[string]float64{
			`histogram_count(merged_seconds{layout="converted"})`:              value.count,
			`histogram_sum(merged_seconds{layout="converted"})`:                value.sum,
			`histogram_fraction(0, 1, merged_seconds{layout="converted"})`:     float64(value.upToOne) / value.count,
			`histogram_fraction(0, 1, merged_seconds{layout="source"})`:        float64(value.upToOne) / value.count,
			`histogram_count(made_seconds{layout="converted"})`:                40,
			`histogram_sum(made_seconds{layout="converted"})`:                  60,
			`histogram_fraction(0, 1, made_seconds{layout="converted"})`:       10.0 / 40,
			`histogram_fraction(0, 2, made_seconds{layout="converted"})`:       30.0 / 40,
			`histogram_quantile(0.75, made_seconds{layout="converted"})`:       2,
			`count(merged_seconds_bucket) or vector(0)`:                        0,
			`count(made_seconds_bucket{layout="converted"}) or vector(0)`:      0,
			`count(made_seconds_bucket{layout="source"})`:                      4,
			`scalar(count({__name__=~"m.*_seconds_count", layout="source"}))`:  1,
			`scalar(count({__name__=~"m.*_seconds", layout="converted"}) > 1)`: 2,
		}
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			for query, want := range queries {
				v, err := server.Query(t.Context(), query)
				require.NoError(collect, err)
				require.Len(collect, v, 1, query)
				assert.InDelta(collect, want, float64(v[0].Value), 1e-9*math.Max(1, want), query)
			}
		}, time.Minute, 500*time.Millisecond)
	})
}

// totals are what is known of the exponential histogram.
type totals struct {
	count, sum float64
	upToOne    uint64
}

// exponentialMetrics are an exponential histogram of 160 buckets, which a rule lowers to 20, and an explicit one, which a rule makes
// exponential.
func exponentialMetrics(start, now time.Time) (pmetric.Metrics, totals) {
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("merged")
	m.SetUnit("s")
	h := m.SetEmptyExponentialHistogram()
	h.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	p := h.DataPoints().AppendEmpty()
	p.SetStartTimestamp(pcommon.NewTimestampFromTime(start))
	p.SetTimestamp(pcommon.NewTimestampFromTime(now))
	p.SetScale(5)
	p.Positive().SetOffset(-100)
	counts := make([]uint64, 160)
	var want totals
	for i := range counts {
		counts[i] = uint64(i % 7)
		want.count += float64(counts[i])
		if i < 100 { // index -1 ends at 1
			want.upToOne += counts[i]
		}
		want.sum += float64(counts[i]) * math.Exp2((float64(i)-99.5)/32)
	}
	p.Positive().BucketCounts().FromRaw(counts)
	p.SetZeroCount(3)
	want.count += 3
	want.upToOne += 3
	p.SetCount(uint64(want.count))
	p.SetSum(want.sum)

	made, points := newHistogram("made", pmetric.AggregationTemporalityCumulative)
	q := points.AppendEmpty()
	q.SetStartTimestamp(p.StartTimestamp())
	q.SetTimestamp(p.Timestamp())
	q.ExplicitBounds().FromRaw([]float64{1, 2, 4})
	q.BucketCounts().FromRaw([]uint64{10, 20, 10, 0})
	q.SetCount(40)
	q.SetSum(60)
	made.ResourceMetrics().MoveAndAppendTo(md.ResourceMetrics())
	return md, want
}

// Processors of the community that keep state accept what comes out.
const rebucketForOthers = `
processors:
  stream:
    histograms:
      - metric_names: [d]
        explicit: {preset: vllm.ttft}
  cumulativetodelta:
    initial_value: keep
  deltatocumulative: {}
exporters:
  file/direct: {path: "${env:OUTPUT_DIR}/direct.jsonl"}
service:
  pipelines:
    metrics/direct: {receivers: [otlp], processors: [stream], exporters: [file/direct]}
    metrics: {receivers: [otlp], processors: [stream, %s], exporters: [file/metrics]}
`

func TestMetricsRebucketedThenCumulativeToDelta(t *testing.T) {
	c := collector.Start(t, fmt.Sprintf(rebucketForOthers, "cumulativetodelta"))
	source := newLatencies(2)
	start := time.Now().Add(-time.Hour).Truncate(time.Second)
	const snapshots = 200
	for i := range snapshots {
		md, points := newHistogram("d", pmetric.AggregationTemporalityCumulative)
		source.observe(3)
		source.write(points.AppendEmpty(), start, start.Add(time.Duration(i+1)*time.Second))
		require.NoError(t, c.PostMetrics(t.Context(), md))
	}
	deltas := histogramPoints(t, c.StopAndReadMetrics(t))
	direct, err := collector.ReadMetrics(filepath.Join(c.OutputDir, "direct.jsonl"))
	require.NoError(t, err)
	converted := histogramPoints(t, direct)
	require.Len(t, converted, snapshots)
	require.Len(t, deltas, snapshots)
	sums := make([]uint64, converted[0].BucketCounts().Len())
	for i, p := range deltas {
		var total uint64
		for j, n := range p.BucketCounts().All() {
			sums[j] += n
			total += n
		}
		require.Equal(t, p.Count(), total)
		require.Equal(t, converted[i].ExplicitBounds().AsRaw(), p.ExplicitBounds().AsRaw())
		// A bucket that had gone down would have come out as a restart: the whole count as one delta.
		require.Equal(t, converted[i].BucketCounts().AsRaw(), sums, "after %d snapshots", i+1)
	}
}

func TestMetricsRebucketedThenDeltaToCumulative(t *testing.T) {
	c := collector.Start(t, fmt.Sprintf(rebucketForOthers, "deltatocumulative"))
	source, all := newLatencies(3), newLatencies(3)
	start := time.Now().Add(-time.Hour).Truncate(time.Second)
	const points = 200
	for i := range points {
		md, slice := newHistogram("d", pmetric.AggregationTemporalityDelta)
		source.take()
		source.observe(3)
		all.observe(3)
		source.write(slice.AppendEmpty(), start.Add(time.Duration(i)*time.Second), start.Add(time.Duration(i+1)*time.Second))
		require.NoError(t, c.PostMetrics(t.Context(), md))
	}
	telemetry, err := c.Telemetry(t.Context())
	require.NoError(t, err)
	accepted := 0.0
	for _, s := range telemetry {
		if s.Name == "otelcol_deltatocumulative_datapoints" || s.Name == "otelcol_deltatocumulative_datapoints_total" {
			assert.Empty(t, s.Labels["error"])
			accepted += s.Value
		}
	}
	assert.InDelta(t, float64(points), accepted, 0)
	cumulative := histogramPoints(t, c.StopAndReadMetrics(t))
	direct, err := collector.ReadMetrics(filepath.Join(c.OutputDir, "direct.jsonl"))
	require.NoError(t, err)
	converted := histogramPoints(t, direct)
	require.Len(t, cumulative, points)
	sums := make([]uint64, converted[0].BucketCounts().Len())
	for i, p := range converted {
		for j, n := range p.BucketCounts().All() {
			sums[j] += n
		}
		require.Equal(t, sums, cumulative[i].BucketCounts().AsRaw())
	}
	assert.Equal(t, all.total, cumulative[points-1].Count())
	// At the kept bounds the counts are those of the source.
	bounds := converted[0].ExplicitBounds().AsRaw()
	for k, b := range httpBounds {
		j := sort.SearchFloat64s(bounds, b)
		if j == len(bounds) || bounds[j] != b {
			continue
		}
		assert.Equal(t, total(all.counts[:k+1]), total(sums[:j+1]), "at %v", b)
	}
}

func total(counts []uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}

func histogramPoints(t *testing.T, all []pmetric.Metrics) []pmetric.HistogramDataPoint {
	t.Helper()
	var points []pmetric.HistogramDataPoint
	for _, md := range all {
		for _, rm := range md.ResourceMetrics().All() {
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					require.Equal(t, pmetric.MetricTypeHistogram, m.Type())
					for _, p := range m.Histogram().DataPoints().All() {
						points = append(points, p)
					}
				}
			}
		}
	}
	return points
}
