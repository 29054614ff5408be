// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"testing"

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
