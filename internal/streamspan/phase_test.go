// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamspan

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

// phaseAt is n attributes, of which that of the given number, counted from 1, is the phase.
func phaseAt(at, n int) pcommon.Map {
	m := pcommon.NewMap()
	for i := 1; i <= n; i++ {
		if i == at {
			m.PutStr("stream.phase", "request")
		} else {
			m.PutInt(fmt.Sprint("attribute.", i), 1)
		}
	}
	return m
}

func TestPhases(t *testing.T) {
	var p phases
	of := func(m pcommon.Map) Phase {
		phase, ok := p.of(m)
		assert.Equal(t, ok, phase != PhaseNone)
		return phase
	}
	assert.Empty(t, of(phaseAt(5, 9)), "nothing is known")
	p.learn(phaseAt(5, 9))
	p.learn(phaseAt(10, 10))
	assert.Equal(t, PhaseRequest, of(phaseAt(5, 9)))
	assert.Equal(t, PhaseRequest, of(phaseAt(10, 10)))
	assert.Empty(t, of(phaseAt(4, 9)), "elsewhere")
	assert.Empty(t, of(phaseAt(0, 9)), "nowhere")
	assert.Empty(t, of(phaseAt(5, 11)), "another number of attributes")
	assert.Equal(t, PhaseRequest, of(phaseAt(5, 9+len(p))), "shares the prediction")
	p.learn(phaseAt(70, 9+len(p)))
	assert.Empty(t, of(phaseAt(5, 9)), "now it is beyond the last")
	p.learn(phaseAt(4, 9))
	assert.Equal(t, PhaseRequest, of(phaseAt(4, 9)))

	p = phases{}
	p.learn(phaseAt(0, 9))
	p.learn(phaseAt(300, 300))
	assert.Equal(t, phases{}, p, "no phase, or one too far")
	assert.Empty(t, of(pcommon.NewMap()))

	m := phaseAt(5, 9)
	m.PutInt("stream.phase", 1)
	p.learn(m)
	phase, ok := p.of(m)
	assert.Empty(t, phase)
	assert.True(t, ok, "a phase that is no text is one")
}
