// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/otelcol-stream/otelcol-stream/test/collector"
	"github.com/otelcol-stream/otelcol-stream/test/prometheus"
)

// The examples scale a service called chat on its server spans; the load of this test is that of a service called long,
// which records the client's side.
var autoscaledService = strings.NewReplacer(`exported_job="chat"`, `exported_job="long"`, "SPAN_KIND_SERVER", "SPAN_KIND_CLIENT")

func readYAML(t *testing.T, into any, path ...string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(append([]string{collector.Root()}, path...)...))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(raw, into))
}

// adapterQuery fills the template of the metrics adapter as the adapter does for the autoscaler's selector.
func adapterQuery(t *testing.T) string {
	t.Helper()
	var adapter struct {
		Rules struct {
			External []struct {
				SeriesQuery  string `yaml:"seriesQuery"`
				MetricsQuery string `yaml:"metricsQuery"`
				Name         struct{ As string }
			}
		}
	}
	readYAML(t, &adapter, "examples", "autoscaling", "prometheus-adapter.yaml")
	require.Len(t, adapter.Rules.External, 1)
	rule := adapter.Rules.External[0]

	var hpa struct {
		Spec struct {
			Metrics []struct {
				External struct {
					Metric struct {
						Name     string
						Selector struct {
							MatchLabels map[string]string `yaml:"matchLabels"`
						}
					}
				}
			}
		}
	}
	readYAML(t, &hpa, "examples", "autoscaling", "hpa.yaml")
	require.Len(t, hpa.Spec.Metrics, 1)
	metric := hpa.Spec.Metrics[0].External.Metric
	assert.Equal(t, rule.Name.As, metric.Name, "the autoscaler asks for what the adapter offers")

	var matchers []string
	for label, value := range metric.Selector.MatchLabels {
		matchers = append(matchers, label+`="`+value+`"`)
	}
	series, _, _ := strings.Cut(rule.SeriesQuery, "{")
	var query bytes.Buffer
	require.NoError(t, template.Must(template.New("").Delims("<<", ">>").Parse(rule.MetricsQuery)).Execute(&query, map[string]string{
		"Series": series, "LabelMatchers": strings.Join(matchers, ","), "GroupBy": "",
	}))
	return query.String()
}

func testAutoscaling(t *testing.T, server *prometheus.Server) {
	var keda struct {
		Spec struct {
			Triggers []struct {
				Metadata struct{ Query string }
			}
		}
	}
	readYAML(t, &keda, "examples", "autoscaling", "keda.yaml")
	require.Len(t, keda.Spec.Triggers, 2)

	// Five streams a second that are open for 19.9 s each are 99.5 open at a time. The window holds 25 of them, give or
	// take one, as it would in production hold one more or less than the mean.
	const open, ripple = 99.5, 5.5
	for _, tc := range []struct {
		name, query string
		want        float64
	}{
		{"HPA through the metrics adapter", adapterQuery(t), open},
		{"KEDA, mean", keda.Spec.Triggers[0].Metadata.Query, open},
		{"KEDA, mean and three standard deviations", keda.Spec.Triggers[1].Metadata.Query, open + 3*9.975},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Contains(t, tc.query, "SPAN_KIND_SERVER", "both kinds together count every stream twice")
			result, err := server.Query(t.Context(), prometheus.Accelerate(autoscaledService.Replace(tc.query)))
			require.NoError(t, err)
			require.Len(t, result, 1)
			assert.InDelta(t, tc.want, float64(result[0].Value), ripple)
		})
	}
}
