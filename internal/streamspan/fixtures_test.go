// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamspan

import "time"

const minSpread = 100 * time.Millisecond
