// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"slices"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
)

// The buckets of a gap histogram at its finest scale: a gap is 1 ns or more and less than 2^34 s.
const (
	leastGapIndex = -30 << cadence.MaxScale
	gapIndexes    = 64 << cadence.MaxScale
)

// maxCells is the most cells of a gapTable.
const maxCells = 256

// gapTable has the cell of every bucket that a gap histogram has at its finest scale. The cells are the buckets of a histogram with the
// bounds of all explicit histograms of gaps together. A stream brings dozens of buckets, each of which would be a search in each of those
// histograms. Into cells they are counted once, by table, and cells are few.
type gapTable [gapIndexes]uint8

// newGapTable returns the table for the layouts of families and tells them what the cells are. It is nil when there would be too many, or
// when no histogram of gaps is explicit.
func newGapTable(fs []*family) *gapTable {
	var layouts []*layout
	var bounds []float64
	for _, f := range fs {
		for i, l := range f.layouts {
			if f.instruments[i].gaps && l.explicit() {
				layouts = append(layouts, l)
				bounds = append(bounds, l.bounds...)
			}
		}
	}
	slices.Sort(bounds)
	bounds = slices.Compact(bounds)
	if len(bounds) == 0 || len(bounds) >= maxCells {
		return nil
	}
	all, t := explicitLayout(bounds), &gapTable{}
	for i := range t {
		t[i] = uint8(all.bucket(cadence.Midpoint(i+leastGapIndex, cadence.MaxScale)))
	}
	for _, l := range layouts {
		for _, b := range bounds {
			l.ofCell = append(l.ofCell, uint16(l.bucket(b)))
		}
		l.ofCell = append(l.ofCell, uint16(len(l.bounds)))
	}
	return t
}

// gapCells are the gaps of one stream that are longer than 0 s, by cell.
type gapCells struct {
	known       bool
	first, last uint8
	counts      [maxCells]int64 // from first to last
}

// fill counts the buckets of a gap histogram. It leaves the cells unknown when the histogram is coarser, or wider, than the table.
//
// It notes how many gaps there are up to each cell, and takes the differences in a second pass. To count each cell up would make every
// addition wait for the one before, and to add in a register until the cell changes takes a jump that the processor does not foresee.
func (c *gapCells) fill(t *gapTable, gh *cadence.Histogram) {
	c.known = false
	last := len(gh.Buckets) - 1
	if t == nil || last < 0 || gh.Scale != cadence.MaxScale {
		return
	}
	if gh.Buckets[0].Index < leastGapIndex || gh.Buckets[last].Index >= leastGapIndex+gapIndexes {
		return
	}
	c.known = true
	c.first, c.last = t[gh.Buckets[0].Index-leastGapIndex], t[gh.Buckets[last].Index-leastGapIndex]
	counts := c.counts[c.first : int(c.last)+1]
	clear(counts)
	upTo := int64(0)
	for _, b := range gh.Buckets {
		upTo += b.Count
		c.counts[t[b.Index-leastGapIndex]] = upTo
	}
	before := int64(0)
	for i := range counts {
		upTo := max(counts[i], before)
		counts[i] = upTo - before
		before = upTo
	}
}

// addCells adds the gaps of a stream to the explicit buckets.
func (l *layout) addCells(h *histogram, zero int64, c *gapCells, weight uint64) {
	h.counts[0] += uint64(zero) * weight
	for cell := int(c.first); cell <= int(c.last); cell++ {
		h.counts[l.ofCell[cell]] += uint64(c.counts[cell]) * weight
	}
}
