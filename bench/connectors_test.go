// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/connector/spanmetricsconnector"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/bench/internal/payload"
	"github.com/otelcol-stream/otelcol-stream/streamconnector"
	"github.com/otelcol-stream/otelcol-stream/streamprocessor"
)

// split returns what the processor makes of a batch.
func split(b *testing.B, td ptrace.Traces) ptrace.Traces {
	b.Helper()
	sink := &tracesSink{}
	decode, _ := tracesOf(b, td)
	consume(b, startTraces(b, streamprocessor.NewFactory(), nil, sink))(decode())
	return sink.last
}

// streamsOnly leaves out the request spans. It is what the peer gets, which would take every one of them for a call of its own.
func streamsOnly(td ptrace.Traces) ptrace.Traces {
	spansOf(td).RemoveIf(func(s ptrace.Span) bool { return text(s, "stream.phase") != "stream" })
	return td
}

// connect measures per stream, after it has seen that one batch gives the histogram of that name as many values as it should.
func connect(b *testing.B, f connector.Factory, s settings, td ptrace.Traces, streams, values int, name string) {
	decode, _ := tracesOf(b, td)
	require.EqualValues(b, values, observations(b, f, s, decode(), name))

	s["metrics_flush_interval"] = "1h"
	c := newConnector(b, f, s, &metricsSink{})
	defer func() { require.NoError(b, c.Shutdown(context.Background())) }()
	measure(b, streams, once(decode), consume(b, c))
}

// observations is how many values the histogram of that name holds after one batch.
func observations(b *testing.B, f connector.Factory, s settings, td ptrace.Traces, name string) (n uint64) {
	b.Helper()
	s["metrics_flush_interval"] = "20ms"
	sink := make(firstMetrics, 1)
	c := newConnector(b, f, s, sink)
	defer func() { require.NoError(b, c.Shutdown(context.Background())) }()
	consume(b, c)(td)
	var md pmetric.Metrics
	select {
	case md = <-sink:
	case <-time.After(10 * time.Second):
		b.Fatal("no metrics")
	}
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if m.Name() != name {
					continue
				}
				switch m.Type() {
				case pmetric.MetricTypeHistogram:
					for _, dp := range m.Histogram().DataPoints().All() {
						n += dp.Count()
					}
				case pmetric.MetricTypeExponentialHistogram:
					for _, dp := range m.ExponentialHistogram().DataPoints().All() {
						n += dp.Count()
					}
				default:
				}
			}
		}
	}
	return n
}

// firstMetrics keeps the first batch of metrics that has any.
type firstMetrics chan pmetric.Metrics

func (firstMetrics) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: true}
}

func (c firstMetrics) ConsumeMetrics(_ context.Context, md pmetric.Metrics) error {
	if md.DataPointCount() > 0 {
		select {
		case c <- md:
		default:
		}
	}
	return nil
}

func streamMetrics(b *testing.B, td ptrace.Traces, histogram string, streams int) {
	connect(b, streamconnector.NewFactory(), settings{"histogram": settings{"type": histogram}}, td, streams, streams, "stream.duration")
}

// spanMetrics has the attributes of stream.*, as many exemplars and the same number of buckets.
func spanMetrics(b *testing.B, td ptrace.Traces, histogram string, streams int) {
	b.Helper()
	spanMetricsOf(b, td, histogram, streams, streams)
}

// spanMetricsOf measures per stream what takes in a number of spans.
func spanMetricsOf(b *testing.B, td ptrace.Traces, histogram string, streams, spans int) {
	h := settings{"unit": "s", "exponential": settings{"max_size": 160}}
	if histogram == "explicit" {
		var buckets []string
		for e := -3; e <= 12; e++ { // those of stream.duration
			buckets = append(buckets, (time.Duration(float64(time.Second) * exp2(e))).String())
		}
		h = settings{"unit": "s", "explicit": settings{"buckets": buckets}}
	}
	connect(b, spanmetricsconnector.NewFactory(), settings{
		"histogram":          h,
		"dimensions":         []any{settings{"name": "stream.dialect"}, settings{"name": "gen_ai.provider.name"}, settings{"name": "gen_ai.request.model"}},
		"exclude_dimensions": []string{"span.name", "status.code"},
		"exemplars":          settings{"enabled": true, "max_per_data_point": 5},
	}, td, streams, spans, "traces.span.metrics.duration")
}

func exp2(e int) float64 {
	v := 1.0
	for ; e > 0; e-- {
		v *= 2
	}
	for ; e < 0; e++ {
		v /= 2
	}
	return v
}

func splitChunked(b *testing.B) ptrace.Traces {
	return split(b, payload.Chunked(chunkedBatch, payload.ChunksPerSpan))
}

func splitGenAI(b *testing.B) ptrace.Traces { return split(b, payload.GenAI(batch)) }

// Streams of which every chunk is known.

func BenchmarkChunkedConnectorExplicit(b *testing.B) {
	streamMetrics(b, splitChunked(b), "explicit", chunkedBatch)
}

func BenchmarkChunkedConnectorExponential(b *testing.B) {
	streamMetrics(b, splitChunked(b), "exponential", chunkedBatch)
}

func BenchmarkChunkedSpanMetricsExplicit(b *testing.B) {
	spanMetrics(b, streamsOnly(splitChunked(b)), "explicit", chunkedBatch)
}

func BenchmarkChunkedSpanMetricsExponential(b *testing.B) {
	spanMetrics(b, streamsOnly(splitChunked(b)), "exponential", chunkedBatch)
}

// What it takes to read every attribute of the stream spans once, the numbers of the gap histogram among them, and to do nothing with them.

func read(b *testing.B, td ptrace.Traces, streams int) {
	decode, _ := tracesOf(b, streamsOnly(td))
	var attributes, numbers, total int64
	measure(b, streams, once(decode), func(td ptrace.Traces) {
		attributes, numbers = 0, 0
		spans := spansOf(td)
		for i := range spans.Len() {
			for key, v := range spans.At(i).Attributes().All() {
				attributes++
				total += int64(key[len(key)-1])
				switch v.Type() {
				case pcommon.ValueTypeStr:
					total += int64(len(v.Str()))
				case pcommon.ValueTypeDouble:
					total += int64(v.Double())
				case pcommon.ValueTypeInt:
					total += v.Int()
				case pcommon.ValueTypeSlice:
					for _, n := range v.Slice().All() {
						numbers++
						total += n.Int()
					}
				default:
				}
			}
		}
	})
	require.NotZero(b, total)
	require.GreaterOrEqual(b, attributes, int64(15*streams))
	b.ReportMetric(float64(attributes)/float64(streams), "attributes")
	b.ReportMetric(float64(numbers)/float64(streams), "numbers")
}

func BenchmarkChunkedRead(b *testing.B) { read(b, splitChunked(b), chunkedBatch) }
func BenchmarkGenAIRead(b *testing.B)   { read(b, splitGenAI(b), batch) }

// What the peer takes for the same batches, request spans and all, if somebody lets it count every call twice.
func BenchmarkChunkedSpanMetricsAllSpans(b *testing.B) {
	spanMetricsOf(b, splitChunked(b), "explicit", chunkedBatch, 2*chunkedBatch)
}

func BenchmarkGenAISpanMetricsAllSpans(b *testing.B) {
	spanMetricsOf(b, splitGenAI(b), "explicit", batch, 2*batch)
}

// Streams of which only the first chunk is known.

func BenchmarkGenAIConnectorExplicit(b *testing.B) {
	streamMetrics(b, splitGenAI(b), "explicit", batch)
}

func BenchmarkGenAIConnectorExponential(b *testing.B) {
	streamMetrics(b, splitGenAI(b), "exponential", batch)
}

func BenchmarkGenAISpanMetricsExplicit(b *testing.B) {
	spanMetrics(b, streamsOnly(splitGenAI(b)), "explicit", batch)
}

func BenchmarkGenAISpanMetricsExponential(b *testing.B) {
	spanMetrics(b, streamsOnly(splitGenAI(b)), "exponential", batch)
}

// Raw spans, which the connector has to recognise first.

func BenchmarkGenAIRawConnectorExplicit(b *testing.B) {
	streamMetrics(b, payload.GenAI(batch), "explicit", batch)
}

// What the connector costs those who send it everything.

func BenchmarkPlainConnector(b *testing.B) {
	decode, _ := tracesOf(b, payload.Plain(batch))
	c := newConnector(b, streamconnector.NewFactory(), settings{"metrics_flush_interval": "1h"}, &metricsSink{})
	defer func() { require.NoError(b, c.Shutdown(context.Background())) }()
	measure(b, batch, once(decode), consume(b, c))
}
