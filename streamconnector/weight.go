// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/sampling"
)

// maxWeight bounds what one span may stand for. A sampling probability below one in 16 million is a broken trace state.
const maxWeight = 1 << 24

// weigher turns the sampling threshold of a trace state into the number of spans that a span stands for, its adjusted count 2^56/(2^56−T)
// (OpenTelemetry, "TraceState: Probability Sampling").
//
// That number is seldom whole and the counts of histograms are. It is rounded up for as many traces as its fraction says, so that totals
// are right on average, as spanmetricsconnector does it. What decides is not a generator of random numbers but the randomness of the
// trace: among the sampled traces it is uniform from T on. So a retried span and every collector behind a balancer round alike, and all
// metrics of a stream have the same weight.
type weigher struct {
	state      string // the trace state that was read last; the spans of a batch often share it
	threshold  uint64
	randomness uint64
	explicit   bool // randomness is from the trace state, not from the trace id
}

func (w *weigher) weight(state string, id pcommon.TraceID) uint64 {
	if state == "" {
		return 1
	}
	if state != w.state {
		w.read(state)
	}
	if w.threshold == 0 {
		return 1
	}
	sampled := sampling.MaxAdjustedCount - w.threshold
	n, rest := sampling.MaxAdjustedCount/sampled, sampling.MaxAdjustedCount%sampled
	if n >= maxWeight {
		return maxWeight
	}
	if rest == 0 {
		return n
	}
	r := w.randomness
	if !w.explicit {
		r = sampling.TraceIDToRandomness(id).Unsigned()
	}
	// A trace that its own threshold would have dropped was kept for another reason; its randomness below T serves as well.
	if (r-w.threshold)%sampled < rest {
		n++
	}
	return n
}

// read takes threshold and randomness from a trace state. One that cannot be read means a weight of 1.
func (w *weigher) read(state string) {
	*w = weigher{state: state}
	if !strings.Contains(state, "ot=") {
		return
	}
	parsed, err := sampling.NewW3CTraceState(state)
	if err != nil {
		return
	}
	if t, ok := parsed.OTelValue().TValueThreshold(); ok && t.Unsigned() < sampling.MaxAdjustedCount {
		w.threshold = t.Unsigned()
	}
	if r, ok := parsed.OTelValue().RValueRandomness(); ok {
		w.randomness, w.explicit = r.Unsigned(), true
	}
}
