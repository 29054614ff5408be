// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package rebucket

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strconv"
)

// Density is the assumption about how observations lie inside a bucket.
type Density uint8

const (
	// Auto is Linear for explicit and Log for exponential sources: what Prometheus' histogram_quantile assumes for classic and
	// for native histograms. A bucket of the output then holds what a query of the source would have answered at its bounds.
	Auto Density = iota
	// Linear spreads the observations evenly between the bounds.
	Linear
	// Log spreads them evenly over the logarithm. A bucket that begins at or below 0 is Linear nevertheless.
	Log
)

// share is a number in (0, 1): hi in units of 2^-64, lo in units of 2^-128. It is rounded up, so that 0.7 of 5 observations are the 4
// that 5·0.7 + ½ has, not 3 because 0.7 has no finite binary form. With this many bits ⌊n·p + ½⌋ is right for every n of 64 bits and
// every fraction p with a denominator below 2^63.
type share struct{ hi, lo uint64 }

// of is ⌊n·s + ½⌋; it never exceeds n.
func (s share) of(n uint64) uint64 {
	whole, part := bits.Mul64(n, s.hi)
	low, _ := bits.Mul64(n, s.lo)
	part, carry := bits.Add64(part, low, 0)
	return whole + carry + part>>63
}

// spread is how observations lie between two bounds: at tells what part of those in (lo, hi] lies at or below x.
type spread func(lo, hi, x float64) share

func linear(lo, hi, x float64) share {
	a := decimal(lo)
	whole := decimal(hi)
	whole.Sub(whole, a)
	part := decimal(x)
	part.Sub(part, a)
	return toShare(part.Quo(part, whole))
}

func logarithmic(lo, hi, x float64) share {
	return toShare(ratio(logRatio(x, lo), logRatio(hi, lo)))
}

// onScale is for bounds given by their position on the axis of exponential buckets, where even over the logarithm is linear.
func onScale(lo, hi, x float64) share {
	return toShare(ratio(x-lo, hi-lo))
}

// logRatio is log2(x/lo). The quotient keeps more digits than a difference of logarithms, unless it leaves the range.
func logRatio(x, lo float64) float64 {
	if q := x / lo; q > 0 && !math.IsInf(q, 1) {
		return math.Log2(q)
	}
	return math.Log2(x) - math.Log2(lo)
}

func ratio(part, whole float64) *big.Rat {
	q := part / whole
	if !(q > 0) { // also NaN: two bounds that float64 cannot hold apart
		return new(big.Rat)
	}
	return new(big.Rat).SetFloat64(math.Min(q, 1))
}

// toShare rounds r up to a share, within (0, 1).
func toShare(r *big.Rat) share {
	num := new(big.Int).Lsh(r.Num(), 128)
	quo, rem := num.QuoRem(num, r.Denom(), new(big.Int))
	if rem.Sign() > 0 {
		quo.Add(quo, big.NewInt(1))
	}
	switch {
	case quo.Sign() <= 0:
		return share{lo: 1}
	case quo.BitLen() > 128:
		return share{hi: math.MaxUint64, lo: math.MaxUint64}
	}
	lo := new(big.Int).And(quo, new(big.Int).SetUint64(math.MaxUint64))
	return share{hi: new(big.Int).Rsh(quo, 64).Uint64(), lo: lo.Uint64()}
}

// decimal reads a bound as the shortest decimal that denotes it, which is what its author wrote: 0.3 lies in the middle of 0.1
// and 0.5, although the float64 do not. x is finite.
func decimal(x float64) *big.Rat {
	r, ok := new(big.Rat).SetString(strconv.FormatFloat(x, 'g', -1, 64))
	if !ok {
		panic(fmt.Sprintf("rebucket: bound %v is not finite", x))
	}
	return r
}

// Scale returns bounds times factor, each rounded once from the decimals that were written: 0.07 s are 70 ms, where the product of
// the float64 is 70.00000000000001.
func Scale(bounds []float64, factor int64) []float64 {
	out := make([]float64, len(bounds))
	for i, b := range bounds {
		r := decimal(b)
		out[i], _ = r.Mul(r, new(big.Rat).SetInt64(factor)).Float64()
	}
	return out
}
