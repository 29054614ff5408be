// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/otelcol-stream/otelcol-stream/internal/rebucket"
)

// What the picture shows: body times, which the HTTP layout was not made for, on the boundaries that were.
const pictured = "exp-2 body"

var (
	grey   = color.RGBA{R: 90, G: 90, B: 90, A: 255}
	blue   = color.RGBA{R: 0, G: 90, B: 181, A: 255}
	orange = color.RGBA{R: 213, G: 94, B: 0, A: 255}
	shade  = color.NRGBA{R: 213, G: 94, B: 0, A: 36}
)

// drawPicture draws the true distribution, what a re-bucketed HTTP histogram says of it, and what spans say.
func drawPicture(path string) error {
	data, err := readData()
	if err != nil {
		return err
	}
	s := data[pictured]
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%d streamed bodies, recorded with HTTP boundaries, re-bucketed to powers of two", len(s.values))
	p.X.Label.Text, p.Y.Label.Text = "duration (s)", "share of observations at or below"
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0.1, 300, 0, 1
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs, p.Legend.YOffs = vg.Points(8), vg.Points(-8)
	p.Add(plotter.NewGrid())

	last := http14[len(http14)-1]
	unknown, err := plotter.NewPolygon(plotter.XYs{{X: last, Y: 0}, {X: p.X.Max, Y: 0}, {X: p.X.Max, Y: 1}, {X: last, Y: 1}})
	if err != nil {
		return err
	}
	unknown.Color, unknown.LineStyle.Width = shade, 0

	truth, err := plotter.NewLine(distribution(s, p.X.Min, p.X.Max))
	if err != nil {
		return err
	}
	truth.Color, truth.Width = grey, vg.Points(1.5)

	ladder := make([]float64, 0, 16)
	for k := -3; k <= 8; k++ {
		ladder = append(ladder, math.Ldexp(1, k))
	}
	known, guessed, ranges, err := reBucketed(s, ladder)
	if err != nil {
		return err
	}
	exact, err := scatter(known, draw.CircleGlyph{}, blue, 3.5)
	if err != nil {
		return err
	}
	guess, err := scatter(guessed, draw.RingGlyph{}, blue, 3.5)
	if err != nil {
		return err
	}
	bars, err := plotter.NewYErrorBars(ranges)
	if err != nil {
		return err
	}
	bars.Color, bars.Width = blue, vg.Points(0.8)

	var fromSpans plotter.XYs
	for _, b := range ladder {
		fromSpans = append(fromSpans, plotter.XY{X: b, Y: s.below(b)})
	}
	spans, err := scatter(fromSpans, draw.SquareGlyph{}, orange, 4)
	if err != nil {
		return err
	}

	p.Add(unknown, truth, bars, exact, guess, spans)
	p.Legend.Add("true distribution", truth)
	p.Legend.Add("re-bucketed: a boundary of the source, exact", exact)
	p.Legend.Add("re-bucketed: inside a source bucket, off by at most the bar", guess)
	p.Legend.Add("built from spans by the connector, exact", spans)
	share := 1 - s.below(last)
	labels, err := plotter.NewLabels(plotter.XYLabels{
		XYs:    plotter.XYs{{X: 11, Y: 0.12}, {X: 11, Y: 0.07}},
		Labels: []string{fmt.Sprintf("overflow: %.0f %% lie above %.0f s.", 100*share, last), "No conversion can tell where."},
	})
	if err != nil {
		return err
	}
	p.Add(labels)
	return p.Save(20*vg.Centimeter, 12*vg.Centimeter, path)
}

func scatter(points plotter.XYs, shape draw.GlyphDrawer, c color.Color, radius vg.Length) (*plotter.Scatter, error) {
	s, err := plotter.NewScatter(points)
	if err != nil {
		return nil, err
	}
	s.Shape, s.Color, s.Radius = shape, c, radius
	return s, nil
}

// distribution is the cumulative distribution at 400 places, evenly over the logarithm.
func distribution(s series, from, to float64) plotter.XYs {
	const places = 400
	points := make(plotter.XYs, places+1)
	for i := range points {
		x := from * math.Pow(to/from, float64(i)/places)
		points[i] = plotter.XY{X: x, Y: s.below(x)}
	}
	return points
}

// reBucketed are the cumulative shares of the re-bucketed HTTP histogram: those that are exact, and those inside of a source bucket with
// the range that this leaves.
func reBucketed(s series, ladder []float64) (known, guessed plotter.XYs, ranges rangesOf, err error) {
	h := count(layout{bounds: http14}, s)
	t, err := rebucket.NewTarget(ladder, rebucket.Auto, true)
	if err != nil {
		return nil, nil, ranges, err
	}
	plan := t.Explicit(http14)
	counts := make([]uint64, plan.Size())
	plan.Apply(counts, rebucket.TotalsOf(h.counts...), nil)
	total, below := float64(h.total), 0.0
	for j, b := range plan.Bounds() {
		below += float64(counts[j]) / total
		point := plotter.XY{X: b, Y: below}
		source, exact := plan.Holder(j)
		if exact {
			known = append(known, point)
			continue
		}
		guessed = append(guessed, point)
		ranges.XYs = append(ranges.XYs, point)
		low := s.below(http14[source-1])
		high := s.below(http14[source])
		ranges.YErrors = append(ranges.YErrors, struct{ Low, High float64 }{below - low, high - below})
	}
	return known, guessed, ranges, nil
}

// rangesOf is what plotter.NewYErrorBars reads.
type rangesOf struct {
	plotter.XYs
	plotter.YErrors
}
