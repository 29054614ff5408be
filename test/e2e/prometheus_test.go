// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/test/collector"
	"github.com/otelcol-stream/otelcol-stream/test/prometheus"
)

// Every part of the example's rules is tested alone, on made-up series, by Prometheus's own tool.
func TestPrometheusRules(t *testing.T) {
	rules, err := filepath.Glob(filepath.Join(prometheus.Example(collector.Root()), "rules", "*.yml"))
	require.NoError(t, err)
	tests, err := filepath.Glob(filepath.Join(prometheus.Example(collector.Root()), "tests", "*.yml"))
	require.NoError(t, err)
	require.NotEmpty(t, tests)
	for _, args := range [][]string{
		append([]string{"check", "rules"}, rules...),
		append([]string{"test", "rules"}, tests...),
		{"check", "config", filepath.Join(prometheus.Example(collector.Root()), "prometheus.yml")},
	} {
		out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
}

// The rules run prometheus.Speed times as fast as written. A baseline ends a minute ago then (an hour as written), so the
// first part of the load has to be longer than that, and the second as long as the slowest alert takes to fire.
const (
	baselineTime = 75 * time.Second
	changedTime  = 45 * time.Second
	loadStep     = 250 * time.Millisecond
)

// A cohort is a stretch of traffic with a label of its own. Alerts are per model, or per service where infrastructure
// is meant, so all cohorts run at once and each shows what it alone sets off.
type cohort struct {
	service       string // and the instance
	model         string
	before, after source
	alerts        []string // what fires, sorted; everything else stays silent
}

// source is a capture, replayed some times a second.
type source struct {
	td        ptrace.Traces
	perSecond float64
}

// Overlaid on the example's configuration: the scrape sees what happened a second ago, and the body of an answer gets
// the boundaries that the HTTP convention gives to a request, so that long answers overflow them.
const prometheusOverlay = `
connectors:
  stream:
    metrics_flush_interval: 1s
    histogram:
      boundaries:
        stream.duration: [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
`

func TestPrometheus(t *testing.T) {
	openLLMetry := func(schedule string, perSecond float64) source { return source{recorded(t, schedule), perSecond} }
	steady := openLLMetry("smooth4", 2)
	cohorts := []cohort{
		// Chunks of four tokens become chunks of one, or the other way round, at 50 tokens a second all the time.
		{model: "finer", before: steady, after: openLLMetry("smooth1", 2), alerts: []string{"StreamChunkGranularityFiner"}},
		{model: "coarser", before: openLLMetry("smooth1", 2), after: steady, alerts: []string{"StreamChunkGranularityCoarser"}},
		// What is like it and is not it.
		{model: "steady", before: steady, after: steady},
		{model: "slower", before: steady, after: openLLMetry("slow4", 2)},
		{model: "longer prompt", before: steady, after: openLLMetry("longprompt4", 2)},
		{model: "shorter answers", before: steady, after: openLLMetry("short4", 2)},
		{model: "mix, chunks of four", before: openLLMetry("smooth4", 6), after: steady},
		{model: "mix, chunks of one", before: openLLMetry("smooth1", 2), after: openLLMetry("smooth1", 6)},
		// What a reader feels.
		{model: "bursting", before: steady, after: openLLMetry("headburst", 2), alerts: []string{"StreamHeadBurst"}},
		{
			model: "freezing", before: steady, after: openLLMetry("stall3s", 2),
			alerts: []string{"StreamSLOBurn", "StreamSLOSlowBurn", "StreamStalls"},
		},
		{
			// Half of an answer within the head window and the rest after 50 s of silence is a burst as well, and a long stream.
			model: "starving", service: "near-timeout", before: steady, after: openLLMetry("gap50s", 2),
			alerts: []string{
				"StreamHeadBurst", "StreamHistogramOverflow", "StreamReaderWaits", "StreamSLOBurn", "StreamSLOSlowBurn",
				"StreamSilenceNearIdleTimeout", "StreamStalls", "StreamsNearInstanceLimit",
			},
		},
		{model: "breaking off", before: steady, after: source{captured(t, "openinference-anthropic", "truncated"), 2}, alerts: []string{"StreamsUnfinished"}},
		// What an objective sees.
		{model: "late", before: steady, after: openLLMetry("slowfirst", 2), alerts: []string{"StreamSLOBurn", "StreamSLOSlowBurn"}},
		{model: "refusing", before: steady, after: openLLMetry("http500", 2), alerts: []string{"StreamSLOBurn", "StreamSLOSlowBurn"}},
		// Five answers of 20 s begin every second: a hundred are open.
		{
			model: "long", service: "long", before: openLLMetry("long20s", 1), after: openLLMetry("long20s", 5),
			alerts: []string{"StreamHistogramOverflow", "StreamsNearInstanceLimit"},
		},
	}

	c := collector.StartWith(t, collector.Options{
		Configs: []string{filepath.Join(prometheus.Example(collector.Root()), "config.yaml"), prometheusOverlay},
		Ports:   []string{"PROMETHEUS"},
	})
	server, err := prometheus.Run(t.Context(), prometheus.Options{
		Dir:     prometheus.Example(collector.Root()),
		Targets: map[string]string{"127.0.0.1:9464": c.Endpoints["PROMETHEUS"], "127.0.0.1:8888": c.Endpoints["TELEMETRY"]},
		Work:    t.TempDir(),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, server.Stop())
		if t.Failed() {
			t.Logf("log of Prometheus:\n%s", server.Logs())
		}
	})

	load(t, c, cohorts, baselineTime, func(c cohort) source { return c.before })
	load(t, c, cohorts, changedTime, func(c cohort) source { return c.after })

	t.Run("alerts", func(t *testing.T) { assertFired(t, server, cohorts) })
	t.Run("names", func(t *testing.T) { assertRulesHaveData(t, server) })
	t.Run("dashboards", func(t *testing.T) { testDashboards(t, server) })
	t.Run("autoscaling", func(t *testing.T) { testAutoscaling(t, server) })
}

// load replays each cohort's source at its rate. The time is the clock's: Prometheus stamps what it scrapes itself.
func load(t *testing.T, c *collector.Process, cohorts []cohort, length time.Duration, phase func(cohort) source) {
	t.Helper()
	owed := make([]float64, len(cohorts))
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	tick := time.NewTicker(loadStep)
	defer tick.Stop()
	for previous := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			batch := ptrace.NewTraces()
			for i, cohort := range cohorts {
				source := phase(cohort)
				for owed[i] += source.perSecond * now.Sub(previous).Seconds(); owed[i] >= 1; owed[i]-- {
					service := cmp.Or(cohort.service, "shop-assistant")
					replay(source.td, now, service, service+"-"+cohort.model, cohort.model).ResourceSpans().MoveAndAppendTo(batch.ResourceSpans())
				}
			}
			previous = now
			if batch.SpanCount() > 0 {
				require.NoError(t, c.PostTraces(t.Context(), batch))
			}
		}
	}
}

// assertFired compares what fired at any time of the run with what each cohort should set off.
func assertFired(t *testing.T, server *prometheus.Server, cohorts []cohort) {
	fired, err := server.Query(t.Context(), `max_over_time(ALERTS{alertstate="firing"}[10m])`)
	require.NoError(t, err)
	got, jobs := map[string][]string{}, map[string][]string{}
	for _, series := range fired {
		alert := string(series.Metric["alertname"])
		if name, ok := series.Metric["gen_ai_request_model"]; ok {
			got[string(name)] = append(got[string(name)], alert)
		} else {
			job := string(series.Metric["exported_job"])
			jobs[job] = append(jobs[job], alert)
		}
	}
	for _, cohort := range cohorts {
		all := slices.Clone(got[cohort.model])
		if cohort.service != "" {
			all = append(all, jobs[cohort.service]...)
		}
		slices.Sort(all)
		assert.Equal(t, cohort.alerts, slices.Compact(all), cohort.model)
	}
	assert.Empty(t, jobs["shop-assistant"], "nothing is wrong with the service that the other cohorts share")
}

// assertRulesHaveData: a rule over a series that does not exist is silent for ever, and no other test would tell.
func assertRulesHaveData(t *testing.T, server *prometheus.Server) {
	rules, err := server.API.Rules(t.Context())
	require.NoError(t, err)
	// Metrics of others than the connector, for whoever has them.
	foreign := map[string]bool{
		"http_server_request_duration_seconds": true, "gen_ai_client_operation_duration_seconds": true,
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			record, ok := rule.(v1.RecordingRule)
			if !ok || foreign[string(record.Labels["metric"])] {
				continue
			}
			selector := record.Name + record.Labels.String()
			if len(record.Labels) == 0 {
				selector = record.Name
			}
			result, err := server.Query(t.Context(), selector)
			require.NoError(t, err)
			assert.NotEmpty(t, result, selector)
			assert.Equal(t, "ok", string(record.Health), record.LastError)
		}
	}
}

// Exponential histograms become native ones, when Prometheus asks for them.
func TestPrometheusNativeHistograms(t *testing.T) {
	c := collector.StartWith(t, collector.Options{
		Configs: []string{filepath.Join(prometheus.Example(collector.Root()), "config.yaml"), `
connectors:
  stream:
    metrics_flush_interval: 1s
    histogram:
      type: exponential
      boundaries: null
`},
		Ports: []string{"PROMETHEUS"},
	})
	server, err := prometheus.Run(t.Context(), prometheus.Options{
		Dir:      prometheus.Example(collector.Root()),
		Targets:  map[string]string{"127.0.0.1:9464": c.Endpoints["PROMETHEUS"], "127.0.0.1:8888": c.Endpoints["TELEMETRY"]},
		Work:     t.TempDir(),
		Features: "native-histograms",
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop()) })

	// 24 gaps of about 80 ms and two of less than a millisecond, each time: the median gap is about 80 ms.
	td := recorded(t, "smooth4")
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		require.NoError(collect, c.PostTraces(t.Context(), replay(td, time.Now(), "", "", "")))
		median, err := server.Query(t.Context(), `histogram_quantile(0.5, sum(stream_chunk_gap_seconds))`)
		require.NoError(collect, err)
		require.Len(collect, median, 1)
		assert.InDelta(collect, 0.080, float64(median[0].Value), 0.004)
		// 27 chunks: 26 gaps for every stream, as counted in the native histogram itself.
		perStream, err := server.Query(t.Context(), `sum(histogram_count(stream_chunk_gap_seconds)) / sum(stream_count_total)`)
		require.NoError(collect, err)
		require.Len(collect, perStream, 1)
		assert.Equal(collect, model.SampleValue(26), perStream[0].Value)
	}, 30*time.Second, 500*time.Millisecond)
}
