// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processortest"
	"golang.org/x/sys/unix"
)

// measure times run and reports the mean, divided by the items (spans, points) of one input, as ns/op. The input comes from fresh, which is not
// timed. A component that changes its input must get a new one each time and not a copy: the slices of a copy have no spare capacity, those
// of decoded data have. For one that changes nothing, fresh is once.
//
// The time is CPU time of the process, which is what a collector is paid for and which other processes on the machine do not lengthen by
// taking turns. Reading it twice costs less than 1 µs against no less than 30 µs of work; testing's StopTimer would stop the world.
//
// Garbage is collected as it comes, so that what allocates pays for it. Where decoding goes on between the timed parts, which of the two a
// collection falls into is chance; over the hundreds of iterations of a round it falls into both by what they allocate and how long they
// take. The same work is then timed once more with the collections in between only, and its median reported as apart-ns/op: less true, but
// free of chance.
func measure[T any](b *testing.B, items int, fresh func() T, run func(T)) {
	b.Helper()
	allocs, bytes := allocations(fresh, run)
	runtime.GC()
	total, rounds := time.Duration(0), 0
	for b.Loop() {
		total += timed(fresh(), run)
		rounds++
	}
	n := float64(items)
	b.ReportAllocs()
	b.ReportMetric(float64(total)/float64(rounds)/n, "ns/op")
	b.ReportMetric(float64(apart(rounds, fresh, run))/n, "apart-ns/op")
	b.ReportMetric(float64(allocs)/n, "allocs/op")
	b.ReportMetric(float64(bytes)/n, "B/op")
}

func timed[T any](in T, run func(T)) time.Duration {
	start := cpuTime()
	run(in)
	return cpuTime() - start
}

// heapBudget is how much apart may allocate between two garbage collections.
const heapBudget = 64 << 20

// apart returns the median time of run with the garbage collector kept out of it.
func apart[T any](rounds int, fresh func() T, run func(T)) time.Duration {
	each := heapUse(fresh, run)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	times := make([]time.Duration, 0, rounds)
	used := uint64(heapBudget)
	for range rounds {
		if used += each; used > heapBudget {
			runtime.GC()
			used = 0
		}
		times = append(times, timed(fresh(), run))
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// once returns the same input every time, for what does not change it.
func once[T any](fresh func() T) func() T {
	in := fresh()
	return func() T { return in }
}

// cpuTime is what all threads of the process have used so far.
func cpuTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// allocations counts what run allocates once it is warm: the least of three, since the runtime now and then allocates for itself.
func allocations[T any](fresh func() T, run func(T)) (allocs, bytes uint64) {
	run(fresh())
	allocs, bytes = ^uint64(0), ^uint64(0)
	for range 3 {
		in := fresh()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		run(in)
		runtime.ReadMemStats(&after)
		allocs = min(allocs, after.Mallocs-before.Mallocs)
		bytes = min(bytes, after.TotalAlloc-before.TotalAlloc)
	}
	return allocs, bytes
}

func heapUse[T any](fresh func() T, run func(T)) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run(fresh())
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// tracesOf returns what decodes a payload.
func tracesOf(b *testing.B, td ptrace.Traces) (decode func() ptrace.Traces, encoded []byte) {
	b.Helper()
	encoded, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	require.NoError(b, err)
	u := &ptrace.ProtoUnmarshaler{}
	return func() ptrace.Traces {
		td, err := u.UnmarshalTraces(encoded)
		if err != nil {
			b.Fatal(err)
		}
		return td
	}, encoded
}

func metricsOf(b *testing.B, md pmetric.Metrics) (decode func() pmetric.Metrics, encoded []byte) {
	b.Helper()
	encoded, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(md)
	require.NoError(b, err)
	u := &pmetric.ProtoUnmarshaler{}
	return func() pmetric.Metrics {
		md, err := u.UnmarshalMetrics(encoded)
		if err != nil {
			b.Fatal(err)
		}
		return md
	}, encoded
}

// tracesSink is the next consumer of processors. It keeps the last batch and counts.
type tracesSink struct {
	last  ptrace.Traces
	spans int
	calls int
}

func (*tracesSink) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: true}
}

func (s *tracesSink) ConsumeTraces(_ context.Context, td ptrace.Traces) error {
	s.last = td
	s.calls++
	s.spans += td.SpanCount()
	return nil
}

// metricsSink is the next consumer of connectors and of processors of metrics.
type metricsSink struct{ last pmetric.Metrics }

func (*metricsSink) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: true}
}

func (s *metricsSink) ConsumeMetrics(_ context.Context, md pmetric.Metrics) error {
	s.last = md
	return nil
}

// settings is a configuration as it would stand in a file.
type settings = map[string]any

// configure makes a component's configuration the way the Collector does.
func configure(b testing.TB, f component.Factory, s settings) component.Config {
	b.Helper()
	cfg := f.CreateDefaultConfig()
	require.NoError(b, confmap.NewFromStringMap(s).Unmarshal(cfg))
	require.NoError(b, confmap.Validate(cfg))
	return cfg
}

func startTraces(b testing.TB, f processor.Factory, s settings, next consumer.Traces) processor.Traces {
	b.Helper()
	p, err := f.CreateTraces(b.Context(), processortest.NewNopSettings(f.Type()), configure(b, f, s), next)
	require.NoError(b, err)
	start(b, p)
	return p
}

func startMetrics(b testing.TB, f processor.Factory, s settings, next consumer.Metrics) processor.Metrics {
	b.Helper()
	p, err := f.CreateMetrics(b.Context(), processortest.NewNopSettings(f.Type()), configure(b, f, s), next)
	require.NoError(b, err)
	start(b, p)
	return p
}

func newConnector(b testing.TB, f connector.Factory, s settings, next consumer.Metrics) connector.Traces {
	b.Helper()
	c, err := f.CreateTracesToMetrics(b.Context(), connectortest.NewNopSettings(f.Type()), configure(b, f, s), next)
	require.NoError(b, err)
	require.NoError(b, c.Start(b.Context(), componenttest.NewNopHost()))
	return c
}

func start(b testing.TB, c component.Component) {
	b.Helper()
	require.NoError(b, c.Start(b.Context(), componenttest.NewNopHost()))
	b.Cleanup(func() { require.NoError(b, c.Shutdown(context.WithoutCancel(b.Context()))) })
}

// consume fails the benchmark when a consumer does.
func consume(b *testing.B, c consumer.Traces) func(ptrace.Traces) {
	b.Helper()
	return func(td ptrace.Traces) {
		if err := c.ConsumeTraces(context.Background(), td); err != nil {
			b.Fatal(err)
		}
	}
}

func consumeMetrics(b *testing.B, c consumer.Metrics) func(pmetric.Metrics) {
	b.Helper()
	return func(md pmetric.Metrics) {
		if err := c.ConsumeMetrics(context.Background(), md); err != nil {
			b.Fatal(err)
		}
	}
}
