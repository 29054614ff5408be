// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/otelcol-stream/otelcol-stream/streamconnector/internal/metadatatest"
)

func TestTelemetry(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.AggregationCardinalityLimit = 2 })
	other := stalling()
	other.model = "other"
	h.send(t, raw(stalling(), other)) // the second overflows in three families
	h.send(t, streamSpan(map[string]any{"stream.nested": true}))
	h.send(t, raw(stalling()))
	h.refuse = errRefused
	require.Error(t, h.flush(context.Background()))
	h.refuse = nil

	tel := h.streamConnector.telemetry
	require.NotNil(t, tel)
	ignore := metricdatatest.IgnoreTimestamp()
	metadatatest.AssertEqualConnectorStreamStreams(t, h.telemetry, []metricdata.DataPoint[int64]{
		{Value: 3, Attributes: attribute.NewSet(attribute.String("result", "recorded"))},
		{Value: 1, Attributes: attribute.NewSet(attribute.String("result", "nested"))},
	}, ignore)
	metadatatest.AssertEqualConnectorStreamOverflowedObservations(t, h.telemetry, []metricdata.DataPoint[int64]{{Value: 3}}, ignore)
	metadatatest.AssertEqualConnectorStreamFlushFailures(t, h.telemetry, []metricdata.DataPoint[int64]{{Value: 1}}, ignore)
	// Three families, each with one series and the overflow.
	metadatatest.AssertEqualConnectorStreamSeries(t, h.telemetry, []metricdata.DataPoint[int64]{{Value: 6}}, ignore)
	// What a second connector holds is added.
	second, err := newConnector(metadatatest.NewSettings(h.telemetry), createDefaultConfig().(*Config), consumertest.NewNop())
	require.NoError(t, err)
	require.NoError(t, second.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, second.ConsumeTraces(t.Context(), raw(stalling())))
	metadatatest.AssertEqualConnectorStreamSeries(t, h.telemetry, []metricdata.DataPoint[int64]{{Value: 9}}, ignore)
	require.NoError(t, second.Shutdown(t.Context()))
	metadatatest.AssertEqualConnectorStreamSeries(t, h.telemetry, []metricdata.DataPoint[int64]{{Value: 6}}, ignore)

	h = newHarness(t)
	h.send(t, streamSpan(map[string]any{"stream.time_to_first_chunk": -1.0, "stream.fluidity": 1e300, "stream.duration": 1.0}))
	metadatatest.AssertEqualConnectorStreamRefusedValues(t, h.telemetry, []metricdata.DataPoint[int64]{{Value: 2}}, ignore)
}
