// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

func traceID(r *rand.Rand) (id pcommon.TraceID) {
	binary.BigEndian.PutUint64(id[:8], r.Uint64())
	binary.BigEndian.PutUint64(id[8:], r.Uint64())
	return id
}

func TestWholeWeights(t *testing.T) {
	var w weigher
	id := pcommon.TraceID{15: 1}
	for state, want := range map[string]uint64{
		"":                                1,
		"ot=th:0":                         1,
		"ot=th:8":                         2,
		"ot=th:c":                         4,
		"ot=th:c;rv:ffffffffffffff":       4,
		"vendor=1,ot=th:ff":               256,
		"ot=rv:ffffffffffffff":            1,
		"ot=th:ffffffffffffff":            maxWeight, // 2^56
		"vendor=th:c":                     1,
		"ot=th:xyz":                       1,
		"ot=th:c,=broken":                 1,
		"robot=th:c":                      1,
		"ot=th:ffffff":                    maxWeight,
		"vendor=a,other=b,ot=p:8;th:fff0": 4096,
	} {
		assert.Equal(t, want, w.weight(state, id), state)
		assert.Equal(t, want, w.weight(state, id), "%s again", state)
	}
}

// th:55555555555555 keeps two thirds of the traces: each stands for 1.5. Of the traces that are kept, half must count 1 and half 2, and the
// same trace always the same. 6,000 traces, 4,000 kept: 6,000 in all to within five standard deviations of 32.
func TestFractionalWeightsAreRightOnAverage(t *testing.T) {
	const threshold = 0x55555555555555
	r := rand.New(rand.NewPCG(9, 9))
	var w weigher
	kept, total := 0, uint64(0)
	for kept < 4000 {
		id := traceID(r)
		if binary.BigEndian.Uint64(id[8:])&(1<<56-1) < threshold {
			continue // sampled away
		}
		kept++
		n := w.weight("ot=th:55555555555555", id)
		assert.Contains(t, []uint64{1, 2}, n)
		other := weigher{}
		assert.Equal(t, n, other.weight("ot=th:55555555555555", id))
		total += n
	}
	assert.InDelta(t, 6000, total, 160)

	// With explicit randomness the trace id does not matter. The kept ones are 0x555… to 0xfff…: the lower half rounds up.
	assert.EqualValues(t, 2, w.weight("ot=th:55555555555555;rv:55555555555556", traceID(r)))
	assert.EqualValues(t, 1, w.weight("ot=th:55555555555555;rv:ffffffffffffff", traceID(r)))
	// A trace below its own threshold was kept for another reason.
	assert.Contains(t, []uint64{1, 2}, w.weight("ot=th:55555555555555;rv:00000000000001", traceID(r)))
}
