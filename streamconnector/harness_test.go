// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"

	"github.com/otelcol-stream/otelcol-stream/streamconnector/internal/metadatatest"
	"github.com/otelcol-stream/otelcol-stream/streamprocessor"
)

// epoch is when the connectors of these tests start, and t0 a minute before is when the spans do.
var (
	epoch = time.Unix(1_790_000_000, 0)
	t0    = epoch.Add(-time.Minute)
)

// harness is a connector whose clock and next consumer the test holds. Its own ticker never fires.
type harness struct {
	*streamConnector
	telemetry *componenttest.Telemetry
	elapsed   atomic.Int64 // since epoch, by the clock of the connector; it may go back
	sink      consumertest.MetricsSink
	refuse    error
}

func newHarness(t testing.TB, change ...func(*Config)) *harness {
	t.Helper()
	return newHarnessAt(t, 0, change...)
}

// newHarnessAt starts a connector some time after epoch.
func newHarnessAt(t testing.TB, since time.Duration, change ...func(*Config)) *harness {
	t.Helper()
	cfg := createDefaultConfig().(*Config)
	cfg.MetricsFlushInterval = 24 * time.Hour
	for _, c := range change {
		c(cfg)
	}
	require.NoError(t, cfg.Validate())
	h := &harness{telemetry: componenttest.NewTelemetry()}
	h.pass(since)
	next, err := consumer.NewMetrics(func(ctx context.Context, md pmetric.Metrics) error {
		if h.refuse != nil {
			return h.refuse
		}
		return h.sink.ConsumeMetrics(ctx, md)
	})
	require.NoError(t, err)
	h.streamConnector, err = newConnector(metadatatest.NewSettings(h.telemetry), cfg, next)
	require.NoError(t, err)
	h.now = func() time.Time { return epoch.Add(time.Duration(h.elapsed.Load())) }
	require.NoError(t, h.Start(context.Background(), componenttest.NewNopHost()))
	t.Cleanup(func() {
		h.refuse = nil
		require.NoError(t, h.Shutdown(context.Background()))
		require.NoError(t, h.telemetry.Shutdown(context.Background()))
	})
	return h
}

func (h *harness) send(t testing.TB, tds ...ptrace.Traces) {
	t.Helper()
	for _, td := range tds {
		require.NoError(t, h.ConsumeTraces(context.Background(), td))
	}
}

// pass moves the clock.
func (h *harness) pass(d time.Duration) { h.elapsed.Add(int64(d)) }

// export lets a minute pass and returns what the flush gave; empty metrics when there was nothing to give.
func (h *harness) export(t testing.TB) pmetric.Metrics {
	t.Helper()
	h.pass(time.Minute)
	h.sink.Reset()
	require.NoError(t, h.flush(context.Background()))
	if all := h.sink.AllMetrics(); len(all) > 0 {
		require.Len(t, all, 1)
		return all[0]
	}
	return pmetric.NewMetrics()
}

var errRefused = errors.New("queue is full")

// chunked is a span that an instrumentation with one event per chunk would write. Times are seconds after t0.
type chunked struct {
	model      string
	end        float64
	chunks     []float64
	tokens     int64
	traceState string
	attributes map[string]any
	status     ptrace.StatusCode
	kind       ptrace.SpanKind // CLIENT unless set
	id         byte
}

func at(seconds float64) pcommon.Timestamp {
	return pcommon.Timestamp(t0.UnixNano() + int64(seconds*1e9+0.5))
}

func (c chunked) fill(s ptrace.Span) {
	s.SetTraceID(pcommon.TraceID{0xaa, 15: c.id + 1})
	s.SetSpanID(pcommon.SpanID{0xbb, 7: c.id + 1})
	s.SetName("openai.chat")
	s.SetKind(ptrace.SpanKindClient)
	if c.kind != ptrace.SpanKindUnspecified {
		s.SetKind(c.kind)
	}
	s.SetStartTimestamp(at(0))
	s.SetEndTimestamp(at(c.end))
	s.TraceState().FromRaw(c.traceState)
	s.Status().SetCode(c.status)
	a := s.Attributes()
	a.PutBool("gen_ai.is_streaming", true)
	a.PutStr("gen_ai.system", "openai")
	if c.model != "" {
		a.PutStr("gen_ai.request.model", c.model)
	}
	if c.tokens > 0 {
		a.PutInt("gen_ai.usage.output_tokens", c.tokens)
	}
	for k, v := range c.attributes {
		if err := a.PutEmpty(k).FromRaw(v); err != nil {
			panic(err)
		}
	}
	for _, chunk := range c.chunks {
		e := s.Events().AppendEmpty()
		e.SetName("gen_ai.content.completion.chunk")
		e.SetTimestamp(at(chunk))
	}
}

// raw is a batch of such spans under one resource.
func raw(spans ...chunked) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "chat")
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("opentelemetry.instrumentation.openai.v1")
	for i, c := range spans {
		if c.id == 0 {
			c.id = byte(i)
		}
		c.fill(ss.Spans().AppendEmpty())
	}
	return td
}

// process passes a copy of the batch through a processor.
func process(t testing.TB, td ptrace.Traces, change ...func(*streamprocessor.Config)) ptrace.Traces {
	t.Helper()
	return newProcessor(t, change...)(td)
}

// newProcessor returns a processor as a function of a batch, of which it takes a copy.
func newProcessor(t testing.TB, change ...func(*streamprocessor.Config)) func(ptrace.Traces) ptrace.Traces {
	t.Helper()
	var sink consumertest.TracesSink
	f := streamprocessor.NewFactory()
	cfg := f.CreateDefaultConfig().(*streamprocessor.Config)
	for _, c := range change {
		c(cfg)
	}
	p, err := f.CreateTraces(context.Background(), processortest.NewNopSettings(f.Type()), cfg, &sink)
	require.NoError(t, err)
	require.NoError(t, p.Start(context.Background(), componenttest.NewNopHost()))
	t.Cleanup(func() { require.NoError(t, p.Shutdown(context.Background())) })
	return func(td ptrace.Traces) ptrace.Traces {
		own := ptrace.NewTraces()
		td.CopyTo(own)
		sink.Reset()
		require.NoError(t, p.ConsumeTraces(context.Background(), own))
		require.Len(t, sink.AllTraces(), 1)
		return sink.AllTraces()[0]
	}
}

// point is a data point of any kind, with what the tests ask of it.
type point struct {
	attributes    map[string]any
	resource      map[string]any
	start, time   pcommon.Timestamp
	count         uint64 // of a histogram, or the value of a sum of integers
	sum           float64
	bounds        []float64
	counts        []uint64
	min, max      float64
	scale, offset int32
	zero          uint64
	exemplars     pmetric.ExemplarSlice
}

// points returns the data points of a metric by name.
func points(md pmetric.Metrics, name string) (ps []point) {
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if m.Name() != name {
					continue
				}
				from := len(ps)
				switch m.Type() {
				case pmetric.MetricTypeSum:
					for _, dp := range m.Sum().DataPoints().All() {
						ps = append(ps, point{attributes: dp.Attributes().AsRaw(), start: dp.StartTimestamp(), time: dp.Timestamp(), count: uint64(dp.IntValue()), sum: dp.DoubleValue()})
					}
				case pmetric.MetricTypeHistogram:
					for _, dp := range m.Histogram().DataPoints().All() {
						ps = append(ps, point{
							attributes: dp.Attributes().AsRaw(), start: dp.StartTimestamp(), time: dp.Timestamp(), count: dp.Count(), sum: dp.Sum(),
							bounds: dp.ExplicitBounds().AsRaw(), counts: dp.BucketCounts().AsRaw(), min: dp.Min(), max: dp.Max(), exemplars: dp.Exemplars(),
						})
					}
				case pmetric.MetricTypeExponentialHistogram:
					for _, dp := range m.ExponentialHistogram().DataPoints().All() {
						ps = append(ps, point{
							attributes: dp.Attributes().AsRaw(), start: dp.StartTimestamp(), time: dp.Timestamp(), count: dp.Count(), sum: dp.Sum(),
							counts: dp.Positive().BucketCounts().AsRaw(), min: dp.Min(), max: dp.Max(), exemplars: dp.Exemplars(),
							scale: dp.Scale(), offset: dp.Positive().Offset(), zero: dp.ZeroCount(),
						})
					}
				}
				for i := from; i < len(ps); i++ {
					ps[i].resource = rm.Resource().Attributes().AsRaw()
				}
			}
		}
	}
	return ps
}

// only returns the one data point of a metric.
func only(t testing.TB, md pmetric.Metrics, name string) point {
	t.Helper()
	ps := points(md, name)
	require.Len(t, ps, 1, name)
	return ps[0]
}

// names returns the names of all metrics in order.
func names(md pmetric.Metrics) (all []string) {
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				all = append(all, m.Name())
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// bucketOf is where a histogram counts v, by the definition.
func bucketOf(bounds []float64, v float64) int {
	for i, b := range bounds {
		if v <= b {
			return i
		}
	}
	return len(bounds)
}
