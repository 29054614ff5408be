// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package cadence

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/lightstep/go-expohisto/mapping/logarithm"
	"github.com/stretchr/testify/require"
)

func randomStream(n int) Stream {
	r := rand.New(rand.NewPCG(1, 2))
	s := Stream{First: 1_700_000_000_000_000_000, FirstKnown: true, Tokens: int64(2 * n), TokensKnown: true}
	at := s.First
	for range n {
		s.Instants = append(s.Instants, at)
		at += 5_000_000 + r.Int64N(40_000_000)
	}
	s.End = at
	return s
}

func BenchmarkSummarize(b *testing.B) {
	for _, n := range []int{2, 10, 100, 1_000, 10_000, 100_000} {
		b.Run("chunks="+strconv.Itoa(n), func(b *testing.B) {
			c, s := NewCalculator(DefaultSettings()), randomStream(n)
			var sum Summary
			c.Summarize(s, &sum)
			require.EqualValues(b, n-1, sum.Histogram.Count())
			b.ReportAllocs()
			for b.Loop() {
				c.Summarize(s, &sum)
			}
		})
	}
}

func BenchmarkPercentiles(b *testing.B) {
	gaps := AppendGaps(nil, randomStream(100).Instants)
	scratch := make([]int64, len(gaps))
	b.Run("buckets", func(b *testing.B) {
		var d denseBuckets
		var h Histogram
		d.count(gaps, &h)
		for b.Loop() {
			d.percentiles(gaps, &h)
		}
	})
	b.Run("selection", func(b *testing.B) {
		for b.Loop() {
			copy(scratch, gaps)
			selectedPercentiles(scratch)
		}
	})
	b.Run("sort", func(b *testing.B) {
		for b.Loop() {
			copy(scratch, gaps)
			slices.Sort(scratch)
		}
	})
}

func BenchmarkIndex(b *testing.B) {
	gaps := AppendGaps(nil, randomStream(100).Instants)
	mapping, err := logarithm.NewMapping(MaxScale)
	require.NoError(b, err)
	var sink int
	b.Run("tables", func(b *testing.B) {
		for b.Loop() {
			for _, g := range gaps {
				sink += IndexOf(seconds(g))
			}
		}
	})
	b.Run("logarithm", func(b *testing.B) {
		for b.Loop() {
			for _, g := range gaps {
				sink += int(mapping.MapToIndex(seconds(g)))
			}
		}
	})
	_ = sink
}
