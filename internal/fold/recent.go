// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package fold

// recent remembers keys for at least one period and at most two, but no more than twice limit of them: in two generations, of which the
// older is forgotten as a whole.
type recent struct {
	young, old map[uint64]struct{}
	turned     int64
	period     int64
	limit      int
}

func (r *recent) add(key uint64, now int64) {
	if now-r.turned >= r.period || len(r.young) >= r.limit {
		r.turn(now)
	}
	if r.young == nil {
		r.young = map[uint64]struct{}{}
	}
	r.young[key] = struct{}{}
}

func (r *recent) turn(now int64) {
	r.old, r.young = r.young, nil
	if now-r.turned >= 2*r.period {
		r.old = nil
	}
	r.turned = now
}

func (r *recent) has(key uint64, now int64) bool {
	if now-r.turned >= r.period && len(r.young)+len(r.old) > 0 {
		r.turn(now)
	}
	if _, ok := r.young[key]; ok {
		return true
	}
	_, ok := r.old[key]
	return ok
}

func (r *recent) remove(key uint64) {
	delete(r.young, key)
	delete(r.old, key)
}

const recentSize = 24 // an entry in memory: a key and the share of empty slots

func (r *recent) bytes() int64 { return int64(len(r.young)+len(r.old)) * recentSize }
