// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package rebucket

import "testing"

func BenchmarkExponential160To16(b *testing.B) {
	t := target(b, Auto, true, vllmBounds[:16]...)
	counts := make([]uint64, 160)
	for i := range counts {
		counts[i] = uint64(i)
	}
	x := Exponential{Scale: 5, Positive: Buckets{Offset: -100, Counts: TotalsOf(counts...)}}
	dst := make([]uint64, 17)
	b.ReportAllocs()
	for b.Loop() {
		t.Exponential(x.Scale, 0).ApplyExponential(dst, &x, nil)
	}
	if sum(dst) != 159*160/2 {
		b.Fatal(dst)
	}
}

func BenchmarkExplicit(b *testing.B) {
	for name, carry := range map[string]*Carry{"cumulative": nil, "delta": NewCarry(golden)} {
		b.Run(name, func(b *testing.B) {
			t := target(b, Auto, true, vllmBounds...)
			counts := TotalsOf(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
			dst := make([]uint64, 40)
			b.ReportAllocs()
			for b.Loop() {
				p := t.Explicit(httpBounds)
				p.Apply(dst[:p.Size()], counts, carry)
			}
			if sum(dst) != 14*15/2 {
				b.Fatal(dst)
			}
		})
	}
}

func BenchmarkPlan(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		planExplicit(genAIBounds, vllmBounds, Auto)
	}
}
