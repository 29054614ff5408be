// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"cmp"
	"math"
	"slices"
)

// idle are the streams of a shard that wait for nothing but time. It tells which of them has been idle the longest, and it does the work
// for that when it is asked, not at each chunk span: a list in the order of the latest chunk spans would have to take a stream out and
// put it at the end each time, which with very many streams waits for the memory of three more of them.
//
// ripe is in the order of touched, but for the streams that were touched since: these are marked, and move to fresh when they come to
// the front. fresh is in no order; nothing in it was touched before what is in ripe and not marked. When ripe runs out and it is asked for
// more, fresh is sorted and takes its place.
//
// Callers read the clock before they wait for the lock of the shard. When two of them overtake each other, the order of their streams is
// wrong by the time between the two.
type idle struct {
	ripe, fresh list
	// since is no later than any touched in fresh. latest is that of the last one in ripe when fresh became it: what is touched after
	// that, marked or in fresh, is not touched before it.
	since, latest int64
}

// push adds a stream that was touched just now.
func (q *idle) push(st *Stream) {
	if q.fresh.first == nil {
		q.since = st.touched
	}
	q.since = min(q.since, st.touched)
	q.fresh.push(st)
}

// insert adds a stream that was touched at some time.
func (q *idle) insert(st *Stream) {
	q.settle()
	if st.touched > q.latest {
		q.push(st)
		return
	}
	q.ripe.insert(st, func(s *Stream) int64 { return s.touched })
}

// settle brings a stream to the front of ripe that is not marked.
func (q *idle) settle() {
	for st := q.ripe.first; st != nil && st.marked; st = q.ripe.first {
		st.unlink()
		q.push(st)
	}
}

// oldest returns the stream that has been idle the longest if it was touched no later than until; nil otherwise.
func (q *idle) oldest(until int64) *Stream {
	q.settle()
	if q.ripe.first == nil && q.fresh.first != nil && q.since <= until {
		q.turn()
	}
	if st := q.ripe.first; st != nil && st.touched <= until {
		return st
	}
	return nil
}

// any returns some stream; nil when there is none.
func (q *idle) any() *Stream {
	if q.ripe.first != nil {
		return q.ripe.first
	}
	return q.fresh.first
}

// bound is no later than any touched, and the latest instant of all when there is no stream.
func (q *idle) bound() int64 {
	q.settle()
	switch {
	case q.ripe.first != nil:
		return q.ripe.first.touched
	case q.fresh.first != nil:
		return q.since
	default:
		return math.MaxInt64
	}
}

// turn sorts fresh and makes it ripe: half a microsecond a stream when there are a million, 10 ms for the largest shard. Streams that stay
// open are sorted once in Limits.Wait, however many chunk spans come, and more often only as far as streams are evicted.
func (q *idle) turn() {
	type at struct {
		touched int64
		st      *Stream
	}
	var all []at
	for st := q.fresh.first; st != nil; st = st.next {
		all = append(all, at{st.touched, st})
	}
	slices.SortStableFunc(all, func(a, b at) int { return cmp.Compare(a.touched, b.touched) })
	q.fresh = list{}
	for _, a := range all {
		a.st.marked = false
		q.ripe.push(a.st)
	}
	q.latest = q.ripe.last.touched
}
