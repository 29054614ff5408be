// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
)

// store holds the running state of all metrics. It is not safe for concurrent use.
type store struct {
	families     []*family
	limit        int // series of a family and resource, and resources; 0 is none
	maxExemplars int
	// start is the time of the export before, from which on new series count. It is what makes the start of a series lie before its first
	// export, and that of one that expired and came again not before the last export of the one it follows.
	start     pcommon.Timestamp
	resources map[resourceKey]*resource
	// generation counts the times that series were dropped.
	generation uint64
	// order keeps the resources as they came, and resource.series the series: an export is in the same order as the one before.
	order []*resource
}

// resourceKey identifies a resource by a hash of 128 bits of the attributes that are kept.
type resourceKey [16]byte

// overflowKey is the key of the resource that takes what is beyond the limit.
var overflowKey = resourceKey{}

type resource struct {
	key        resourceKey
	attributes pcommon.Map
	families   []seriesSet // one per family
}

// seriesSet holds the series of one family and resource.
type seriesSet struct {
	index  map[uint64]*series
	series []*series
}

// series is the state of one set of attributes: a data point for each instrument of its family.
type series struct {
	hash uint64
	next *series // with the same hash
	key  []value // nil for the overflow

	attributes pcommon.Map
	start      pcommon.Timestamp
	lastSeen   time.Time
	histograms []histogram // one per instrument, as are sums; the other is unused
	sums       []sum
	exemplars  reservoir
}

type sum struct {
	integer uint64
	double  float64
	set     bool
}

// seriesKey identifies the series of one family that a stream belongs to. Without values it is the overflow.
type seriesKey struct {
	applies bool
	hash    uint64
	values  []*value
}

// fill computes the key of a stream.
func (k *seriesKey) fill(f *family, s *stream) {
	k.applies = f.applies == nil || f.applies(s)
	if !k.applies {
		return
	}
	k.values = k.values[:0]
	k.hash = 0
	for i := range f.dimensions {
		v := f.dimensions[i].of(s)
		k.values = append(k.values, v)
		k.hash = mix(k.hash, v.hash)
	}
}

func newStore(fs []*family, c *Config, start pcommon.Timestamp) *store {
	st := &store{families: fs, limit: c.AggregationCardinalityLimit, start: start, resources: map[resourceKey]*resource{}}
	if c.Exemplars.Enabled {
		st.maxExemplars = c.Exemplars.MaxPerDataPoint
	}
	return st
}

// find appends the series of a stream, one per family and nil where the family does not record it, and returns how many of them are
// overflows. attributes gives the attributes of a new resource.
func (st *store) find(res resourceKey, attributes func() pcommon.Map, keys []seriesKey, to []*series) (found []*series, overflows int64) {
	r := st.resource(res, attributes)
	for i := range st.families {
		if !keys[i].applies {
			to = append(to, nil)
			continue
		}
		x := st.series(r, i, &keys[i])
		if x.key == nil {
			overflows++
		}
		to = append(to, x)
	}
	return to, overflows
}

// record adds a stream to its series.
func (st *store) record(found []*series, s *stream, span ptrace.Span, now time.Time) {
	for i, x := range found {
		if x == nil {
			continue
		}
		x.lastSeen = now
		x.record(st.families[i], s)
		x.exemplars.offer(st.maxExemplars, span, now, &s.values)
	}
}

func (st *store) resource(key resourceKey, attributes func() pcommon.Map) *resource {
	if r := st.resources[key]; r != nil {
		return r
	}
	// The overflow is one of those that the limit allows, as in the SDK.
	full := st.limit > 0 && len(st.order) >= st.limit-1
	if full {
		if r := st.resources[overflowKey]; r != nil {
			return r
		}
		key = overflowKey
	}
	r := &resource{key: key, families: make([]seriesSet, len(st.families))}
	if full {
		r.attributes = overflowAttributes()
	} else {
		r.attributes = attributes()
	}
	for i := range r.families {
		r.families[i].index = map[uint64]*series{}
	}
	st.resources[key] = r
	st.order = append(st.order, r)
	return r
}

func overflowAttributes() pcommon.Map {
	m := pcommon.NewMap()
	m.PutBool(attrOverflow, true)
	return m
}

// series finds or makes the series of a key.
func (st *store) series(r *resource, family int, key *seriesKey) *series {
	set := &r.families[family]
	first := set.index[key.hash]
	for x := first; x != nil && key.values != nil; x = x.next {
		if x.is(key.values) {
			return x
		}
	}
	f := st.families[family]
	if key.values == nil || st.limit > 0 && len(set.series) >= st.limit-1 {
		for x := set.index[0]; x != nil; x = x.next {
			if x.key == nil {
				return x
			}
		}
		x := &series{next: set.index[0], attributes: overflowAttributes()}
		st.add(set, f, x)
		return x
	}
	x := &series{hash: key.hash, next: first, key: make([]value, len(key.values)), attributes: pcommon.NewMap()}
	x.attributes.EnsureCapacity(len(key.values))
	for i, v := range key.values {
		x.key[i] = v.owned()
		x.key[i].put(x.attributes, f.dimensions[i].key)
	}
	st.add(set, f, x)
	return x
}

// is reports whether the series has these attributes.
func (x *series) is(key []*value) bool {
	for i := range x.key {
		if x.key[i] != *key[i] {
			return false
		}
	}
	return x.key != nil
}

func (st *store) add(set *seriesSet, f *family, x *series) {
	x.start = st.start
	x.histograms = make([]histogram, len(f.instruments))
	x.sums = make([]sum, len(f.instruments))
	// One piece of memory for the counts of all histograms.
	size := 0
	for _, l := range f.layouts {
		if l != nil && l.explicit() {
			size += len(l.bounds) + 1
		}
	}
	counts := make([]uint64, size)
	for i, l := range f.layouts {
		if l != nil && l.explicit() {
			n := len(l.bounds) + 1
			x.histograms[i].counts, counts = counts[:n:n], counts[n:]
		}
	}
	set.index[x.hash] = x
	set.series = append(set.series, x)
}

// record adds one stream.
func (x *series) record(f *family, s *stream) {
	for i := range f.recorders {
		r := &f.recorders[i]
		v := s.values[r.value]
		switch {
		case v != v: // NaN
		case r.gaps:
			if s.gapsKnown() {
				r.layout.recordGaps(&x.histograms[i], s)
			}
		case r.layout != nil:
			r.layout.record(&x.histograms[i], v, s.weight)
		case r.integer:
			x.sums[i].integer += uint64(v) * s.weight
			x.sums[i].set = true
		default:
			x.sums[i].double += v * float64(s.weight)
			x.sums[i].set = true
		}
	}
}

// gapsKnown says that there is a histogram of gaps with a mean, without which there is no sum.
func (s *stream) gapsKnown() bool {
	return s.gapCount > 0 && sensible(s.record.Cadence.GapMean)
}

func sensible(v cadence.Value) bool { return v.OK && v.V >= 0 && v.V <= maxValue }

// groups returns the number of series in memory.
func (st *store) groups() (n int64) {
	for _, r := range st.order {
		for i := range r.families {
			n += int64(len(r.families[i].series))
		}
	}
	return n
}

// expire drops the series that were last seen before the given time, and the resources without series.
func (st *store) expire(before time.Time) {
	for _, r := range st.order {
		for i := range r.families {
			if r.families[i].expire(before) {
				st.generation++
			}
		}
	}
	st.order = slices.DeleteFunc(st.order, func(r *resource) bool {
		for i := range r.families {
			if len(r.families[i].series) > 0 {
				return false
			}
		}
		delete(st.resources, r.key)
		return true
	})
}

// expire reports whether it dropped any.
func (set *seriesSet) expire(before time.Time) bool {
	kept := slices.DeleteFunc(set.series, func(x *series) bool { return x.lastSeen.Before(before) })
	if len(kept) == len(set.series) {
		return false
	}
	set.series = kept
	set.index = make(map[uint64]*series, len(kept))
	for _, x := range kept {
		x.next = set.index[x.hash]
		set.index[x.hash] = x
	}
	return true
}

// clearExemplars begins a new sample of exemplars.
func (st *store) clearExemplars() {
	for x := range st.all {
		x.exemplars.reset()
	}
}

// reset sets all values to zero and keeps the series for the next interval.
func (st *store) reset() {
	for x, f := range st.all {
		for i, l := range f.layouts {
			if l != nil {
				x.histograms[i].reset(l)
			}
		}
		clear(x.sums)
		x.exemplars.reset()
	}
}

// all visits every series with its family.
func (st *store) all(visit func(*series, *family) bool) {
	for _, r := range st.order {
		for i := range r.families {
			for _, x := range r.families[i].series {
				if !visit(x, st.families[i]) {
					return
				}
			}
		}
	}
}

// merge adds the values of o, a store of the same families.
func (st *store) merge(o *store) {
	for _, from := range o.order {
		to := st.resource(from.key, func() pcommon.Map { return from.attributes })
		for i := range from.families {
			for _, x := range from.families[i].series {
				key := seriesKey{hash: x.hash}
				for j := range x.key {
					key.values = append(key.values, &x.key[j])
				}
				y := st.series(to, i, &key)
				y.merge(st.families[i], x, st.maxExemplars)
			}
		}
	}
}

func (x *series) merge(f *family, o *series, maxExemplars int) {
	for i, l := range f.layouts {
		if l != nil {
			l.merge(&x.histograms[i], &o.histograms[i])
		}
		x.sums[i].integer += o.sums[i].integer
		x.sums[i].double += o.sums[i].double
		x.sums[i].set = x.sums[i].set || o.sums[i].set
	}
	if o.lastSeen.After(x.lastSeen) {
		x.lastSeen = o.lastSeen
	}
	x.exemplars.merge(&o.exemplars, maxExemplars)
}

// metrics writes everything that has a value. Series of delta temporality begin where the store does.
func (st *store) metrics(now pcommon.Timestamp, temporality pmetric.AggregationTemporality, scope func(pcommon.InstrumentationScope)) pmetric.Metrics {
	md := pmetric.NewMetrics()
	for _, r := range st.order {
		sm := pmetric.NewScopeMetrics()
		for i, f := range st.families {
			w := writer{f, r.families[i].series, now, temporality, st.start}
			for j := range f.instruments {
				w.metric(sm.Metrics(), j)
			}
		}
		if sm.Metrics().Len() == 0 {
			continue
		}
		rm := md.ResourceMetrics().AppendEmpty()
		r.attributes.CopyTo(rm.Resource().Attributes())
		scope(sm.Scope())
		sm.MoveTo(rm.ScopeMetrics().AppendEmpty())
	}
	return md
}

// writer writes the series of one family and resource.
type writer struct {
	family      *family
	series      []*series
	now         pcommon.Timestamp
	temporality pmetric.AggregationTemporality
	start       pcommon.Timestamp // of delta series
}

// metric writes the data points of one instrument, if there are any.
func (w *writer) metric(ms pmetric.MetricSlice, i int) {
	in, l := &w.family.instruments[i], w.family.layouts[i]
	var m pmetric.Metric
	begun := false
	for _, x := range w.series {
		if l != nil && x.histograms[i].count == 0 || l == nil && !x.sums[i].set {
			continue
		}
		if !begun {
			m, begun = ms.AppendEmpty(), true
			m.SetName(w.family.name(i))
			m.SetUnit(in.unit)
			m.SetDescription(in.description)
		}
		switch {
		case l == nil:
			w.sum(m, x, i)
		case l.explicit():
			w.explicit(m, x, i)
		default:
			w.exponential(m, x, i)
		}
	}
}

// startOf is the start of a data point.
func (w *writer) startOf(x *series) pcommon.Timestamp {
	if w.temporality == pmetric.AggregationTemporalityDelta {
		return w.start
	}
	return x.start
}

func (w *writer) sum(m pmetric.Metric, x *series, i int) {
	if m.Type() == pmetric.MetricTypeEmpty {
		m.SetEmptySum().SetIsMonotonic(true)
		m.Sum().SetAggregationTemporality(w.temporality)
	}
	dp := m.Sum().DataPoints().AppendEmpty()
	dp.SetStartTimestamp(w.startOf(x))
	dp.SetTimestamp(w.now)
	x.attributes.CopyTo(dp.Attributes())
	if w.family.instruments[i].integer {
		dp.SetIntValue(int64(x.sums[i].integer))
	} else {
		dp.SetDoubleValue(x.sums[i].double)
	}
}

func (w *writer) explicit(m pmetric.Metric, x *series, i int) {
	if m.Type() == pmetric.MetricTypeEmpty {
		m.SetEmptyHistogram().SetAggregationTemporality(w.temporality)
	}
	dp := m.Histogram().DataPoints().AppendEmpty()
	dp.SetStartTimestamp(w.startOf(x))
	dp.SetTimestamp(w.now)
	x.attributes.CopyTo(dp.Attributes())
	w.family.layouts[i].explicitPoint(&x.histograms[i], dp)
	x.exemplars.write(dp.Exemplars(), w.family.instruments[i].value, w.startOf(x), w.now)
}

func (w *writer) exponential(m pmetric.Metric, x *series, i int) {
	if m.Type() == pmetric.MetricTypeEmpty {
		m.SetEmptyExponentialHistogram().SetAggregationTemporality(w.temporality)
	}
	dp := m.ExponentialHistogram().DataPoints().AppendEmpty()
	dp.SetStartTimestamp(w.startOf(x))
	dp.SetTimestamp(w.now)
	x.attributes.CopyTo(dp.Attributes())
	x.histograms[i].exponentialPoint(dp)
	x.exemplars.write(dp.Exemplars(), w.family.instruments[i].value, w.startOf(x), w.now)
}
