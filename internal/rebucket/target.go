// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package rebucket

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// Target is a list of explicit bounds to convert to. It keeps the plans that it made, and is safe for concurrent use.
type Target struct {
	bounds  []float64
	density Density
	cut     bool

	explicit    cache[*Plan]
	exponential [MaxScale - MinScale + 1]atomic.Pointer[ExponentialPlan]
}

// NewTarget returns a target of bounds, which must be finite, not negative and strictly increasing. With cut, a layout leaves out
// what its source cannot know: bounds above the source's last bound L go and L comes in for them. Without, every layout is the same and
// the observations above L stay above all bounds from L on.
func NewTarget(bounds []float64, density Density, cut bool) (*Target, error) {
	if len(bounds) == 0 {
		return nil, fmt.Errorf("%w: there are none", ErrBounds)
	}
	if !increasing(bounds) || bounds[0] < 0 {
		return nil, fmt.Errorf("%w: %v", ErrBounds, bounds)
	}
	return &Target{bounds: slices.Clone(bounds), density: density, cut: cut}, nil
}

// Explicit returns the plan for a source of explicit bounds, which must be finite, strictly increasing and at least one. It does
// not keep source.
func (t *Target) Explicit(source []float64) *Plan {
	return t.explicit.get(source, func(source []float64) *Plan {
		return planExplicit(source, t.effective(source[len(source)-1]), t.density)
	})
}

// effective are the bounds for a source whose last bound is last.
func (t *Target) effective(last float64) []float64 {
	if !t.cut {
		return t.bounds
	}
	for i, b := range t.bounds {
		if same(b, last) {
			return t.bounds[:i+1]
		}
		if b > last {
			return append(slices.Clone(t.bounds[:i]), last)
		}
	}
	return t.bounds
}

// Exponential returns the plan for a source of base-2 exponential buckets; scale and zeroThreshold must have passed
// [Exponential.Check]. Such a source has no last bound: every target bound stays.
func (t *Target) Exponential(scale int32, zeroThreshold float64) *ExponentialPlan {
	// A stream keeps its zero threshold, in practice all streams the same, so one plan a scale is enough.
	last := &t.exponential[scale-MinScale]
	p := last.Load()
	if p == nil || p.threshold != zeroThreshold {
		p = withZero(planExponential(scale, t.bounds, t.density), zeroThreshold)
		last.Store(p)
	}
	return p
}

// ExponentialTarget is an exponential layout to convert explicit histograms to. It keeps the plans that it made, and is safe for
// concurrent use.
type ExponentialTarget struct {
	density  Density
	size     ExponentialSize
	explicit cache[*ToExponentialPlan]
}

// NewExponentialTarget returns a target of the finest exponential layout that keeps to size.
func NewExponentialTarget(size ExponentialSize, density Density) *ExponentialTarget {
	return &ExponentialTarget{size: size, density: density}
}

// Size is the limit of the layout.
func (t *ExponentialTarget) Size() ExponentialSize { return t.size }

// Explicit returns the plan for a source of explicit bounds, nil if these bounds cannot be an exponential layout.
func (t *ExponentialTarget) Explicit(source []float64) *ToExponentialPlan {
	return t.explicit.get(source, func(source []float64) *ToExponentialPlan {
		return planToExponential(source, t.density, t.size)
	})
}

// maxPlans bounds a cache. Layouts come from code, so there are few; a source that sends a new one with every point costs time, not
// memory.
const maxPlans = 256

// cache keeps plans by source bounds.
type cache[P any] struct {
	last  atomic.Pointer[entry[P]]
	mu    sync.RWMutex
	plans map[uint64]*entry[P] // by hash
}

type entry[P any] struct {
	source []float64
	plan   P
}

// get returns the plan of source, from build if need be. build gets a copy of source that it may keep.
func (c *cache[P]) get(source []float64, build func([]float64) P) P {
	// Most points of a batch have the layout of the point before.
	if last := c.last.Load(); last != nil && slices.Equal(last.source, source) {
		return last.plan
	}
	h := hash(source)
	c.mu.RLock()
	e := c.plans[h]
	c.mu.RUnlock()
	if e == nil || !slices.Equal(e.source, source) {
		source = slices.Clone(source)
		e = &entry[P]{source: source, plan: build(source)}
		c.mu.Lock()
		if c.plans == nil || len(c.plans) >= maxPlans {
			c.plans = make(map[uint64]*entry[P])
		}
		c.plans[h] = e
		c.mu.Unlock()
	}
	c.last.Store(e)
	return e.plan
}

// hash mixes the bits of bounds; the multiplier is that of FNV-1a.
func hash(bounds []float64) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range bounds {
		h = (h ^ math.Float64bits(b)) * 1099511628211
		h ^= h >> 29
	}
	return h
}
