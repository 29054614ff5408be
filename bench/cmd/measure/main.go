// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

// Measure runs the benchmarks of this module, the growth series and the end-to-end load, and writes RESULTS.md from what they printed.
// Run it in the folder bench:
//
//	measure [-rounds N] [-load-rounds N] [-growth-rounds N] [-out RESULTS.md] [-check]
//
// 0 rounds leave a part out; its last recording in results/ stays and goes into the report.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

// Recordings, all in the text format of Go benchmarks, so that benchstat reads them too.
const (
	benchmarksFile = "results/benchmarks.txt"
	growthFile     = "results/growth.txt"
	loadFile       = "results/load.txt"
	benchstatFile  = "results/benchstat.txt"
)

func main() {
	rounds := flag.Int("rounds", 5, "rounds of the benchmarks")
	growth := flag.Int("growth-rounds", 1, "rounds of the growth series")
	load := flag.Int("load-rounds", 4, "rounds of the end-to-end load")
	spans := flag.Int("load-spans", 100_000, "spans of one turn of the end-to-end load")
	benchtime := flag.Duration("benchtime", 250*time.Millisecond, "time for one benchmark, decoding included")
	run := flag.String("run", ".", "which benchmarks to run")
	out := flag.String("out", "RESULTS.md", "the report")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measure(ctx, options{*rounds, *growth, *load, *spans, *benchtime, *run, *out}); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		stop()
		os.Exit(1)
	}
}

type options struct {
	rounds, growth, load, loadSpans int
	benchtime                       time.Duration
	run, out                        string
}

func measure(ctx context.Context, o options) error {
	if err := os.MkdirAll("results", 0o755); err != nil {
		return err
	}
	if o.rounds > 0 || o.growth > 0 {
		temp, err := os.MkdirTemp("", "bench")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temp)
		binary := filepath.Join(temp, "bench.test")
		fmt.Println("Compiling the benchmarks ...")
		if err := build(ctx, binary); err != nil {
			return err
		}
		if o.rounds > 0 {
			if err := runBenchmarks(ctx, binary, o); err != nil {
				return err
			}
		}
		if o.growth > 0 {
			if err := runGrowth(ctx, binary, o.growth); err != nil {
				return err
			}
		}
	}
	if o.load > 0 {
		if err := runLoad(ctx, o.load, o.loadSpans); err != nil {
			return err
		}
	}
	return report(ctx, o.out)
}
