// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamspan

import "go.opentelemetry.io/collector/pdata/pcommon"

// phases predicts where stream.phase stands among the attributes of a processed span: its position, counted from 1, by their number. On
// request spans, which an Observer only has to dismiss, it is one of the last. To look at the keys before it twice, which nobody has touched
// since they were decoded, took as long as to read a whole stream span.
type phases [64]uint8

// of returns the phase of a span if it stands where it did on the last span with as many attributes.
func (p *phases) of(attrs pcommon.Map) (phase Phase, ok bool) {
	at := int(p[attrs.Len()%len(p)])
	if at == 0 {
		return "", false
	}
	i := 0
	// The same as a range over the iterator, without the checks that go with it.
	attrs.All()(func(key string, v pcommon.Value) bool {
		i++
		if i < at {
			return true // without a look at what the key refers to
		}
		if ok = key == AttrPhase; ok {
			phase = Phase(v.Str())
		}
		return false
	})
	return phase, ok
}

// learn notes where the phase stands on a span that has one.
func (p *phases) learn(attrs pcommon.Map) {
	i := 0
	for key := range attrs.All() {
		i++
		if key == AttrPhase && i < 1<<8 {
			p[attrs.Len()%len(p)] = uint8(i)
			return
		}
	}
}
