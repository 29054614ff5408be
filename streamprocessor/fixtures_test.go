// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"
	"errors"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processortest"

	"github.com/otelcol-stream/otelcol-stream/streamprocessor/internal/metadata"
)

var errNext = errors.New("the next consumer refuses")

type failingConsumer struct{}

func (failingConsumer) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (failingConsumer) ConsumeTraces(context.Context, ptrace.Traces) error { return errNext }

func nopSettings() processor.Settings { return processortest.NewNopSettings(metadata.Type) }
