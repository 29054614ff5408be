// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamspan

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
	"github.com/otelcol-stream/otelcol-stream/internal/spanlaws"
)

var copied = []string{"gen_ai.request.model", "http.route"}

func options(mode Mode) Options {
	return Options{Mode: mode, Suffix: " stream", CopyAttributes: copied, KeepStalls: 3, StallThreshold: cadence.DefaultSettings().StallThreshold}
}

func newFinder(t testing.TB) *Finder {
	t.Helper()
	table, err := dialect.Compile(dialect.Vocabulary{})
	require.NoError(t, err)
	return NewFinder(table, minSpread, cadence.DefaultSettings())
}

// rewrite does what the processor does with a batch.
func rewrite(finder *Finder, splitter *Splitter, td ptrace.Traces) []Applied {
	var applied []Applied
	var rec Record
	found := finder.Find(td)
	for i := range found {
		finder.Record(&found[i], &rec)
		applied = append(applied, splitter.Apply(&found[i], &rec))
	}
	finder.Release()
	return applied
}

// TestLaws rewrites generated batches in every mode and checks the laws, that a second pass changes nothing, and that the generator does
// reach every outcome.
func TestLaws(t *testing.T) {
	for _, mode := range []Mode{ModeSplit, ModeAnnotate, ModeNest} {
		for _, keep := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s keep=%t", mode, keep), func(t *testing.T) {
				opts := options(mode)
				opts.KeepChunkEvents = keep
				finder, splitter := newFinder(t), NewSplitter(opts)
				settings := spanlaws.Settings{Mode: string(mode), Suffix: opts.Suffix, Copy: copied, Keep: keep}
				var total spanlaws.Tally
				for seed := range uint64(1000) {
					before := spanlaws.Generate(rand.New(rand.NewPCG(seed, 1)))
					after := ptrace.NewTraces()
					before.CopyTo(after)
					rewrite(finder, splitter, after)
					tally, err := spanlaws.Check(before, after, settings)
					require.NoError(t, err, "seed %d", seed)
					total.Split += tally.Split
					total.Whole += tally.Whole
					total.Envelope += tally.Envelope
					total.Untouched += tally.Untouched
					total.Collapsed += tally.Collapsed

					once := spanlaws.Marshal(after)
					rewrite(finder, splitter, after)
					require.Equal(t, once, spanlaws.Marshal(after), "seed %d: a second pass changed the batch", seed)
				}
				assert.Greater(t, total.Untouched, 200)
				assert.Greater(t, total.Whole, 200)
				assert.Equal(t, mode == ModeSplit, total.Split > 200)
				assert.Equal(t, mode == ModeNest, total.Envelope > 200)
				assert.Equal(t, !keep, total.Collapsed > 200)
			})
		}
	}
}
