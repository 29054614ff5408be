// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLookUpsAgreeWithTheMap holds the ways round a map against the map: the filters must let every key of theirs through, and attr must find what the map
// finds, for every key of the table and for keys that differ from one in a byte, in length or in nothing that a sketch looks at.
func TestLookUpsAgreeWithTheMap(t *testing.T) {
	table, err := Compile(Vocabulary{Attributes: map[string]AttributeRow{
		"x": {Role: RoleStreamFlag}, "my.flag": {Role: RoleStreamFlag}, "my.tokens": {Role: RoleOutputTokens},
	}})
	require.NoError(t, err)
	check := func(key string) {
		row := table.attrs[key]
		if key != "" {
			assert.Same(t, row, table.attr(key), key)
		}
		if row != nil {
			assert.True(t, table.detailFilter.may(key), key)
			assert.Equal(t, signalRoles[row.Role], row.signal, key)
		}
		if row != nil && row.signal {
			assert.True(t, table.signalFilter.may(key), key)
		}
	}
	assert.False(t, table.signalFilter.may(""))
	assert.False(t, table.detailFilter.may(""))
	for key := range table.attrs {
		check(key)
		for i := range key {
			check(key[:i])
			check(key[i:])
			changed := []byte(key)
			changed[i] ^= 1
			check(string(changed))
			check(key[:i] + "." + key[i:])
		}
	}
	for name := range table.events {
		if row := table.events[name]; !row.Prefix {
			assert.Same(t, row, table.event(name), name)
		}
	}
}
