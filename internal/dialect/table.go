// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Table is a compiled vocabulary. It is immutable and safe for concurrent use.
type Table struct {
	// attrs holds every row; signalFilter dismisses keys that cannot by themselves speak of streaming, detailFilter keys of no row.
	attrs        map[string]*compiledAttr
	bySketch     [256][]*compiledAttr // the rows of attrs by the sketch of their key, see attr
	signalFilter filter
	detailFilter filter

	events        map[string]*compiledEvent
	eventPrefixes []*compiledEvent
	eventFilter   filter

	spans        map[string][]*compiledSpan
	spanSuffixes []*compiledSpan
	spanFilter   filter
	// suffixLast holds the last bytes of the suffixes, so that most names are dismissed by one look.
	suffixLast [256]bool
	chunkSpans bool
}

type compiledAttr struct {
	AttributeRow
	key   string
	rank  int
	genAI bool
	trust bool
	// signal: the role is one of signalRoles.
	signal bool
}

// users reports whether the row is one of the configuration: those come before all built-in ones.
func (a *compiledAttr) users() bool { return a.rank < 0 }

type compiledEvent struct {
	EventRow
	key   string
	rank  int
	genAI bool
	trust bool
	// plain: a chunk of which nothing but the instant is of interest.
	plain bool
}

type compiledSpan struct {
	SpanRow
	key string
	// where is Where as a list: to walk over a map of one takes longer than to look at the attribute.
	where []condition
}

// condition is an attribute that a span must have with this value.
type condition struct{ key, want string }

// filter dismisses strings that are no key of a map by their length, first and last byte, in this order: nearly every attribute of an
// ordinary span costs two loads, often one and none of the key's text, instead of a hash of the whole key. The last byte is for spans
// whose keys all begin alike, as those of GenAI calls do. It holds, for each length, a bit for each first and each last byte; all three
// wrap around at 64.
type filter struct {
	first, last [64]uint64
}

func (f *filter) add(s string) {
	f.first[len(s)%64] |= 1 << (s[0] % 64)
	f.last[len(s)%64] |= 1 << (s[len(s)-1] % 64)
}

func (f *filter) may(s string) bool {
	m := f.first[len(s)%64]
	return m != 0 && s != "" && m&(1<<(s[0]%64)) != 0 && f.last[len(s)%64]&(1<<(s[len(s)-1]%64)) != 0
}

// isGenAIKey reports whether a key belongs to one of the GenAI namespaces.
func isGenAIKey(key string) bool {
	return strings.HasPrefix(key, "gen_ai.") || strings.HasPrefix(key, "llm.") || strings.HasPrefix(key, "ai.")
}

var (
	attributeRoles = []Role{RoleStreamFlag, RoleTimeToFirstChunk, RoleFirstChunkTime, RoleOutputTokens, RoleFinishReason, RoleChunkCount}
	eventRoles     = []Role{RoleFirstChunk, RoleChunk, RoleEnd}
	spanRoles      = []Role{RoleChunk}
	units          = []Unit{UnitAuto, UnitSeconds, UnitMilliseconds, UnitMicroseconds, UnitNanoseconds}
)

// Compile adds the user's rows to the built-in ones. A user's row replaces a built-in row of the same key and comes first in precedence.
// Errors name the setting and the value.
func Compile(v Vocabulary) (*Table, error) {
	if err := v.Validate(); err != nil {
		return nil, err
	}
	t := &Table{attrs: map[string]*compiledAttr{}, events: map[string]*compiledEvent{}, spans: map[string][]*compiledSpan{}}
	for i, key := range slices.Sorted(maps.Keys(v.Attributes)) {
		t.addAttr(key, v.Attributes[key], i-len(v.Attributes))
	}
	for i, key := range slices.Sorted(maps.Keys(v.Events)) {
		t.addEvent(key, v.Events[key], i-len(v.Events))
	}
	for _, key := range slices.Sorted(maps.Keys(v.Spans)) {
		t.addSpan(key, v.Spans[key])
	}
	for i, e := range builtinAttributes {
		if !slices.Contains(v.Disable, e.key) {
			t.addAttr(e.key, e.row, i)
		}
	}
	for i, e := range builtinEvents {
		if !slices.Contains(v.Disable, e.key) {
			t.addEvent(e.key, e.row, i)
		}
	}
	for _, e := range builtinSpans {
		if _, replaced := v.Spans[e.key]; !replaced && !slices.Contains(v.Disable, e.key) {
			t.addSpan(e.key, e.row)
		}
	}
	for _, key := range v.Trust {
		if a := t.attrs[key]; a != nil {
			a.trust = true
		}
		if e := t.events[key]; e != nil {
			e.trust = true
		}
	}
	return t, nil
}

// Validate returns an error that names the first key or value of the vocabulary that makes no sense.
func (v Vocabulary) Validate() error {
	for _, key := range slices.Sorted(maps.Keys(v.Attributes)) {
		row := v.Attributes[key]
		if key == "" {
			return errors.New("vocabulary::attributes: a key must not be empty")
		}
		if key == phaseKey {
			return fmt.Errorf("vocabulary::attributes: %q marks the spans that went through this component and has no other meaning", key)
		}
		if !slices.Contains(attributeRoles, row.Role) {
			return fmt.Errorf("vocabulary::attributes::%s::role: %q is none of %v", key, row.Role, attributeRoles)
		}
		if !slices.Contains(units, row.Unit) {
			return fmt.Errorf("vocabulary::attributes::%s::unit: %q is none of s, ms, us, ns", key, row.Unit)
		}
		if row.Unit != UnitAuto && row.Role != RoleTimeToFirstChunk {
			return fmt.Errorf("vocabulary::attributes::%s::unit: %q is set, but only the role %s has a unit", key, row.Unit, RoleTimeToFirstChunk)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(v.Events)) {
		if key == "" {
			return errors.New("vocabulary::events: a name must not be empty")
		}
		if role := v.Events[key].Role; !slices.Contains(eventRoles, role) {
			return fmt.Errorf("vocabulary::events::%s::role: %q is none of %v", key, role, eventRoles)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(v.Spans)) {
		if key == "" {
			return errors.New("vocabulary::spans: a name must not be empty")
		}
		if role := v.Spans[key].Role; !slices.Contains(spanRoles, role) {
			return fmt.Errorf("vocabulary::spans::%s::role: %q is none of %v", key, role, spanRoles)
		}
	}
	for _, key := range v.Trust {
		_, attr := v.Attributes[key]
		_, event := v.Events[key]
		if !attr && !event && !isBuiltin(key) {
			return fmt.Errorf("vocabulary::trust: %q is no key of the table", key)
		}
	}
	for _, key := range v.Disable {
		if key == phaseKey {
			return fmt.Errorf("vocabulary::disable: without %q a span would be split twice", key)
		}
		if !isBuiltin(key) {
			return fmt.Errorf("vocabulary::disable: %q is no key of the built-in table", key)
		}
	}
	return nil
}

func isBuiltin(key string) bool {
	return slices.ContainsFunc(builtinAttributes, func(e attrEntry) bool { return e.key == key }) ||
		slices.ContainsFunc(builtinEvents, func(e eventEntry) bool { return e.key == key }) ||
		slices.ContainsFunc(builtinSpans, func(e spanEntry) bool { return e.key == key })
}

func (t *Table) addAttr(key string, row AttributeRow, rank int) {
	if _, ok := t.attrs[key]; ok {
		return
	}
	a := &compiledAttr{AttributeRow: row, key: key, rank: rank, genAI: isGenAIKey(key), signal: signalRoles[row.Role]}
	t.attrs[key] = a
	t.bySketch[sketch(key)] = append(t.bySketch[sketch(key)], a)
	t.detailFilter.add(key)
	if a.signal {
		t.signalFilter.add(key)
	}
}

// attr returns the row of a key. It is what attrs would give, at a third of the price: a streaming span has a dozen keys with a row, and
// a map hashes each to the last byte.
func (t *Table) attr(key string) *compiledAttr {
	for _, a := range t.bySketch[sketch(key)] {
		if a.key == key {
			return a
		}
	}
	return nil
}

// sketch is a hash of what it costs nothing to look at in a string that is not empty: its length, its last byte and one from the middle.
func sketch(s string) uint8 {
	return uint8(len(s)) + 31*s[len(s)/2] + 113*s[len(s)-1]
}

// signalRoles are the roles of attributes that can show that a span streams. The others are read only of spans that do.
var signalRoles = map[Role]bool{
	rolePhase: true, RoleStreamFlag: true, RoleTimeToFirstChunk: true, RoleFirstChunkTime: true, roleJSONFlag: true, roleContentType: true,
}

func (t *Table) addEvent(key string, row EventRow, rank int) {
	if _, ok := t.events[key]; ok {
		return
	}
	e := &compiledEvent{EventRow: row, key: key, rank: rank, genAI: isGenAIKey(key)}
	e.plain = row.Role == RoleChunk && row.direction == directionNone && !row.micros && !row.bodyWrite && len(row.bytesKeys) == 0
	t.events[key] = e
	if row.Prefix {
		t.eventPrefixes = append(t.eventPrefixes, e)
		return
	}
	t.eventFilter.add(key)
}

func (t *Table) addSpan(key string, row SpanRow) {
	s := &compiledSpan{SpanRow: row, key: key}
	for _, attr := range slices.Sorted(maps.Keys(row.Where)) {
		s.where = append(s.where, condition{attr, row.Where[attr]})
	}
	t.chunkSpans = t.chunkSpans || row.Role == RoleChunk
	if row.Suffix {
		t.spanSuffixes = append(t.spanSuffixes, s)
		t.suffixLast[key[len(key)-1]] = true
		return
	}
	t.spans[key] = append(t.spans[key], s)
	t.spanFilter.add(key)
}

func (t *Table) event(name string) *compiledEvent {
	if t.eventFilter.may(name) {
		if e := t.events[name]; e != nil && !e.Prefix {
			return e
		}
	}
	for _, e := range t.eventPrefixes {
		if strings.HasPrefix(name, e.key) {
			return e
		}
	}
	return nil
}
