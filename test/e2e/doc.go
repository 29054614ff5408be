// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e drives the built distribution, dist/otelcol-stream, from outside. Its tests need that binary, and some need
// programs such as Prometheus, so they have the build tag e2e: `make e2e` builds the distribution first and runs them. A tag rather than a
// module of its own, so that they use the versions of the product and can compare with its packages.
package e2e
