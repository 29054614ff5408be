// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package cadence

import "time"

// Beyond accounts, in bounded memory, for the chunks of one stream after those whose instants are kept: the chunk count, the gaps as a
// histogram, their sum and maximum and the stalls go on; what needs the instants themselves (percentiles, jitter, standard deviation)
// stays that of the kept window.
//
// Set Last to the newest kept instant before the first Add.
type Beyond struct {
	// Last is the newest instant seen.
	Last int64
	// Chunks is the number of chunks added.
	Chunks int64
	// Gaps holds the gaps that end in an added chunk.
	Gaps Histogram

	sum    int64 // ns
	stalls stallTotals
}

// Add accounts for one chunk. A chunk older than Last is counted without a gap: what it would split has already been counted whole.
func (b *Beyond) Add(instant int64, stallThreshold time.Duration) {
	b.Chunks++
	if instant < b.Last {
		return
	}
	gap := gapBetween(b.Last, instant)
	b.Gaps.Observe(seconds(gap))
	b.sum = addSaturated(b.sum, gap)
	b.stalls.observe(gap, b.Last, int64(stallThreshold))
	b.Last = instant
}

// stallTotals follows the longest gap and the stalls over gaps in time order. All times are in ns.
type stallTotals struct {
	longest      int64 // the longest gap, stall or not
	longestStart int64 // since the epoch; the first of equals
	count        int64
	duration     int64
}

// observe takes the next gap. A gap of 0 is no stall, whatever the threshold.
func (t *stallTotals) observe(gap, start, threshold int64) {
	if gap > t.longest {
		t.longest, t.longestStart = gap, start
	}
	if gap >= max(threshold, 1) {
		t.count++
		t.duration = addSaturated(t.duration, gap)
	}
}

// follow adds the totals of later gaps.
func (t *stallTotals) follow(later *stallTotals) {
	if later.longest > t.longest {
		t.longest, t.longestStart = later.longest, later.longestStart
	}
	t.count += later.count
	t.duration = addSaturated(t.duration, later.duration)
}
