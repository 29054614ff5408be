// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAccelerateDividesTimeAndNothingElse(t *testing.T) {
	for written, want := range map[string]string{
		"rate(x_bucket[5m])":                           "rate(x_bucket[5s])",
		"avg_over_time(model:x:rate15m[1d] offset 1h)": "avg_over_time(model:x:rate15m[24m] offset 1m)",
		"for: 10m": "for: 10s",
		"expr: vector(60) # proxy_read_timeout is 60 s":  "expr: vector(60) # proxy_read_timeout is 60 s",
		"sum by (le) (rate(x[90s])) > 14.4 * budget{}":   "sum by (le) (rate(x[1s500ms])) > 14.4 * budget{}",
		"record: model:stream_slo_errors:ratio_rate3d":   "record: model:stream_slo_errors:ratio_rate3d",
		"increase(stream_count_total[15m]) > 0 for 30 m": "increase(stream_count_total[15s]) > 0 for 30 m",
	} {
		assert.Equal(t, want, Accelerate(written))
	}
}
