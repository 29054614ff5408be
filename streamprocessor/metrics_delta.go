// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatautil"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelcol-stream/otelcol-stream/internal/rebucket"
)

// streamKey identifies a stream: the hash of rule, resource, scope and metric, and the hash of the point's attributes.
type streamKey struct{ metric, point [16]byte }

// metricIdentity computes stream keys, the part that all points of a metric share at most once.
type metricIdentity struct {
	resource pcommon.Resource
	scope    pcommon.InstrumentationScope
	metric   pmetric.Metric

	rule  int
	known bool
	hash  [16]byte
}

func (id *metricIdentity) stream(rule int, attributes pcommon.Map) streamKey {
	if !id.known || id.rule != rule {
		id.known, id.rule = true, rule
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(rule))
		id.hash = pdatautil.Hash(
			pdatautil.WithMap(id.resource.Attributes()),
			pdatautil.WithString(id.scope.Name()),
			pdatautil.WithString(id.scope.Version()),
			pdatautil.WithMap(id.scope.Attributes()),
			pdatautil.WithString(id.metric.Name()),
			pdatautil.WithString(id.metric.Unit()),
			pdatautil.WithString(string(n[:])),
		)
	}
	return streamKey{metric: id.hash, point: pdatautil.MapHash(attributes)}
}

// phase is where a stream begins whose past is not known: evenly distributed over streams, the same on every try, and another one when
// a stream comes back after its remainders had to go.
func (k *streamKey) phase(start pcommon.Timestamp) uint64 {
	var text [40]byte
	copy(text[:16], k.metric[:])
	copy(text[16:32], k.point[:])
	binary.LittleEndian.PutUint64(text[32:], uint64(start))
	return xxhash.Sum64(text[:])
}

const (
	// maxCarriedStreams bounds the delta streams whose remainders are kept. With the longest preset, 23 boundaries, a stream takes about 500 bytes.
	maxCarriedStreams = 100_000
	// maxCarriedSlots bounds their remainders, of 16 bytes each, for layouts with many boundaries.
	maxCarriedSlots = 4_000_000
	carryShards     = 16
)

// carries keeps the remainders of delta streams, those last used.
type carries struct {
	shards  [carryShards]carryShard
	kept    atomic.Int64
	evicted atomic.Int64
}

// carryShard forgets by generations: when the young one is full it becomes the old one, and what is still in the old one goes. A
// stream in use moves to the young one. That costs no list to keep in order, and forgets only what was not used for at least as many
// other streams as a generation holds.
type carryShard struct {
	mu         sync.Mutex
	young, old map[streamKey]*rebucket.Carry
	slots      int // of the young generation
	maxStreams int // of a generation
}

func newCarries(maxStreams int) *carries {
	c := &carries{}
	for i := range c.shards {
		c.shards[i].young = make(map[streamKey]*rebucket.Carry)
		c.shards[i].maxStreams = max(1, maxStreams/carryShards/2)
	}
	return c
}

// get returns the remainders of a stream, of which there will be slots, and the lock that it holds on them.
func (c *carries) get(key streamKey, start pcommon.Timestamp, slots int) (*rebucket.Carry, *sync.Mutex) {
	s := &c.shards[(key.metric[0]^key.point[0])%carryShards]
	s.mu.Lock()
	carry, ok := s.young[key]
	if !ok {
		if carry, ok = s.old[key]; ok {
			delete(s.old, key)
		} else {
			carry = rebucket.NewCarry(key.phase(start))
			c.kept.Add(1)
		}
		if len(s.young) >= s.maxStreams || s.slots >= maxCarriedSlots/carryShards/2 {
			c.kept.Add(-int64(len(s.old)))
			c.evicted.Add(int64(len(s.old)))
			s.old, s.young, s.slots = s.young, make(map[streamKey]*rebucket.Carry, len(s.young)), 0
		}
		s.young[key] = carry
		s.slots += slots
	}
	return carry, &s.mu
}
