// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/otelcol-stream/otelcol-stream/streamprocessor/internal/metadatatest"
)

// spanCount is one point of otelcol_processor_stream_spans.
type spanCount struct {
	result, reason string
	n              int64
}

func (h *harness) assertSpans(t *testing.T, want ...spanCount) {
	t.Helper()
	points := make([]metricdata.DataPoint[int64], len(want))
	for i, w := range want {
		points[i] = metricdata.DataPoint[int64]{Value: w.n, Attributes: attribute.NewSet(attribute.String("result", w.result), attribute.String("reason", w.reason))}
	}
	metadatatest.AssertEqualProcessorStreamSpans(t, h.tel, points, metricdatatest.IgnoreTimestamp())
}

func (h *harness) assertClamped(t *testing.T, want bool) {
	t.Helper()
	if !want {
		_, err := h.tel.GetMetric("otelcol_processor_stream_first_chunk_clamped")
		require.Error(t, err, "nothing was clamped")
		return
	}
	metadatatest.AssertEqualProcessorStreamFirstChunkClamped(t, h.tel, []metricdata.DataPoint[int64]{{Value: 1}}, metricdatatest.IgnoreTimestamp())
}

// TestTelemetry: every instrument over two batches of a mix.
func TestTelemetry(t *testing.T) {
	h := newHarness(t)
	stall := readCase(t, "14-mid-stream-stall")
	h.send(t, stall)
	h.send(t, stall)
	h.send(t, readCase(t, "02-ttft-on-non-streaming"))
	for _, in := range readCapture(t, "openinference-anthropic", "smooth4") {
		out := h.send(t, in)
		h.send(t, out)
	}
	h.assertSpans(t,
		spanCount{"split", "", 3}, spanCount{"whole", "no_first_chunk", 1}, spanCount{"not_streaming", "", 2}, spanCount{"already_processed", "", 3})
	ignore := metricdatatest.IgnoreTimestamp()
	metadatatest.AssertEqualProcessorStreamFirstChunk(t, h.tel, []metricdata.DataPoint[int64]{
		{Value: 2, Attributes: attribute.NewSet(attribute.String("source", "gen_ai.content.completion.chunk"))},
		{Value: 1, Attributes: attribute.NewSet(attribute.String("source", "gen_ai.response.time_to_first_chunk"))},
	}, ignore)
	metadatatest.AssertEqualProcessorStreamChunkEventsCollapsed(t, h.tel, []metricdata.DataPoint[int64]{{Value: 16}}, ignore)
	metadatatest.AssertEqualProcessorStreamNested(t, h.tel, []metricdata.DataPoint[int64]{{Value: 1}}, ignore)
}

// TestTelemetryOfPlainSpans: spans without evidence are not counted, so that an ordinary pipeline pays nothing.
func TestTelemetryOfPlainSpans(t *testing.T) {
	h := newHarness(t)
	td, _ := newSpan(time.Second)
	h.send(t, td)
	_, err := h.tel.GetMetric("otelcol_processor_stream_spans")
	require.Error(t, err)
}

// TestTelemetryOfChunkNumbers: MLflow numbers its chunk events; the source that is counted is the row and not each name.
func TestTelemetryOfChunkNumbers(t *testing.T) {
	h := newHarness(t)
	for _, first := range []string{"mlflow.chunk.item.0", "mlflow.chunk.item.3"} {
		td, s := newSpan(time.Second)
		event(s, first, 100*ms)
		event(s, "mlflow.chunk.item.9", 200*ms)
		assertAttrs(t, spansOf(h.send(t, td))[0], attrs{"stream.first_chunk.source": first})
	}
	metadatatest.AssertEqualProcessorStreamFirstChunk(t, h.tel, []metricdata.DataPoint[int64]{
		{Value: 2, Attributes: attribute.NewSet(attribute.String("source", "mlflow.chunk.item."))},
	}, metricdatatest.IgnoreTimestamp())
}
