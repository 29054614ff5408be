// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-stream/otelcol-stream/test/collector"
	"github.com/otelcol-stream/otelcol-stream/test/prometheus"
)

type dataSource struct{ Type, UID string }

// dashboard is what the tests need of Grafana's format.
type dashboard struct {
	ID         *int
	Templating struct {
		List []struct {
			Name, Type, Definition string
			DataSource             dataSource
		}
	}
	Panels []struct {
		Type, Title, Description string
		DataSource               dataSource
		Targets                  []struct {
			Expr       string
			DataSource dataSource
		}
	}
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(collector.Root(), "examples", "dashboards", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	all := map[string]dashboard{}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		var d dashboard
		require.NoError(t, json.Unmarshal(raw, &d), path)
		all[filepath.Base(path)] = d
	}
	return all
}

var dashboardVariable = regexp.MustCompile(`\$\{?\w+\}?`)

// With every variable at "All", which is allValue ".*", as when a dashboard is opened for the first time.
var dashboardValues = map[string]string{
	"$__rate_interval": "15s", "$job": ".*", "$kind": ".*", "$provider": ".*", "$model": ".*",
}

func TestDashboardsFitAnyGrafana(t *testing.T) {
	for name, d := range dashboards(t) {
		assert.Nil(t, d.ID, "%s: ids are given by the Grafana that imports it", name)
		declared := map[string]bool{"$__rate_interval": true}
		for _, variable := range d.Templating.List {
			declared["$"+variable.Name] = true
			if variable.Type == "query" {
				assert.Equal(t, dataSource{"prometheus", "${datasource}"}, variable.DataSource, "%s: %s", name, variable.Name)
			}
		}
		assert.True(t, declared["$datasource"], name)
		for _, panel := range d.Panels {
			if panel.Type == "row" {
				continue
			}
			assert.Equal(t, dataSource{"prometheus", "${datasource}"}, panel.DataSource, "%s: %s", name, panel.Title)
			for _, target := range panel.Targets {
				assert.Equal(t, dataSource{"prometheus", "${datasource}"}, target.DataSource, "%s: %s", name, panel.Title)
				for _, variable := range dashboardVariable.FindAllString(target.Expr, -1) {
					assert.True(t, declared[variable], "%s: %s uses %s", name, panel.Title, variable)
				}
			}
		}
	}
}

// testDashboards asks what Grafana would: the values of every variable, and every query of every panel.
func testDashboards(t *testing.T, server *prometheus.Server) {
	for name, d := range dashboards(t) {
		for _, variable := range d.Templating.List {
			if variable.Type != "query" {
				continue
			}
			metric, label, ok := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(variable.Definition, "label_values("), ")"), ", ")
			require.True(t, ok, variable.Definition)
			values, warnings, err := server.API.LabelValues(t.Context(), label, []string{metric}, time.Now().Add(-time.Hour), time.Now())
			require.NoError(t, err)
			assert.Empty(t, warnings)
			assert.NotEmpty(t, values, "%s: variable %s", name, variable.Name)
		}
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				query := dashboardVariable.ReplaceAllStringFunc(target.Expr, func(variable string) string { return dashboardValues[variable] })
				result, err := server.Query(t.Context(), query)
				require.NoError(t, err, "%s: %s", name, panel.Title)
				numbers := 0
				for _, sample := range result {
					if !math.IsNaN(float64(sample.Value)) { // Grafana draws it as nothing
						numbers++
					}
				}
				assert.NotZero(t, numbers, "%s: %s: %s", name, panel.Title, query)
			}
		}
	}
}
