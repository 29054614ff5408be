// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Verdict is what was decided of a span.
type Verdict uint8

const (
	// NotStreaming: nothing says that the span streams, or something says that it does not.
	NotStreaming Verdict = iota
	// Refused: the data makes no sense; the span passes unchanged.
	Refused
	// Streaming: the span describes a streamed response.
	Streaming
)

// Reason says why a span was refused or a streaming span has no first-chunk instant. It is a value of the attribute `reason` of the
// component's own telemetry.
type Reason string

// Reasons.
const (
	ReasonEndBeforeStart   Reason = "end_before_start"
	ReasonTimeOutOfRange   Reason = "time_out_of_range"
	ReasonZeroID           Reason = "zero_id"
	ReasonInvalidValue     Reason = "invalid_first_chunk"
	ReasonOutOfSpan        Reason = "first_chunk_out_of_span"
	ReasonEndStamped       Reason = "end_stamped"
	ReasonFirstDropped     Reason = "first_chunk_dropped"
	ReasonWrongOrigin      Reason = "wrong_origin"
	ReasonNoFirstChunk     Reason = "no_first_chunk"
	ReasonFailedBeforeData Reason = "failed_before_first_chunk"
)

// The margin by which the instant of a margin key must lie before the end.
const (
	marginTime  = int64(100 * time.Millisecond)
	marginShare = 20 // one twentieth is 5 %
)

// Decision is what the evidence comes to.
type Decision struct {
	Verdict Verdict
	// Reason is set when the span was refused or streams without a first-chunk instant.
	Reason Reason
	// First is the first-chunk instant f in nanoseconds, FirstKnown false when none can be trusted.
	First      int64
	FirstKnown bool
	// Source is the attribute key or event name that gave f.
	Source string
	// SourceKey is the key of the table's row behind Source: the same but for rows that match by prefix or suffix, so that their number is bounded.
	SourceKey string
	// Clamped says that f lay up to 1 ms outside the span.
	Clamped bool
	// Dialect is the instrumentation.
	Dialect string

	scope *scopeRow
}

// Decide applies the precedence: first whether the span streams, then where its first chunk lies.
func (r *Reader) Decide(ev *Evidence, res pcommon.Resource, scope pcommon.InstrumentationScope) Decision {
	if ev.bad != "" {
		return Decision{Verdict: Refused, Reason: ev.bad}
	}
	if name := scope.Name(); name != r.scopeName {
		r.scopeName, r.scope = name, lookupScope(name)
	}
	d := Decision{scope: r.scope}
	if !r.streams(ev, d.scope) {
		d.Reason = ev.refusal(d.scope)
		if d.Reason != "" {
			d.Verdict = Refused
		}
		return d
	}
	d.Verdict = Streaming
	r.locate(ev, res, &d)
	d.Dialect = ev.dialect(d.scope)
	return d
}

// streams is the decision: the first rule that applies wins.
func (r *Reader) streams(ev *Evidence, scope *scopeRow) bool {
	records := &ev.Chunks
	chunks := showStream(records.Seen, records.earliest, records.latest, records.bodyWrite, r.minSpread)
	if ev.flag != nil {
		return ev.flagOn || chunks
	}
	if chunks || ev.name != nil || ev.jsonFlag != nil || ev.contentType != nil {
		return true
	}
	for c := range classes {
		n := ev.times[c]
		if n.row == nil && n.event == nil {
			continue
		}
		f, _, ok := ev.place(n.at)
		if !ok || wrongOrigin(scope, n) {
			continue
		}
		switch c {
		case classDuration, classAbsolute:
			// A value the user vouches for is still no first chunk when it is the whole duration.
			if !n.row.trust || !ev.endStamped(f) {
				return true
			}
		case classMarker:
			if !n.event.trust || !ev.endStamped(f) {
				return true
			}
		case classMargin:
			if ev.end-f >= marginTime && ev.end-f >= (ev.end-ev.start)/marginShare {
				return true
			}
		default:
		}
	}
	return false
}

// refusal says why evidence that only streams write did not decide: its value makes no sense. "" when there was none.
func (ev *Evidence) refusal(scope *scopeRow) Reason {
	if ev.flag != nil {
		return ""
	}
	if ev.invalid {
		return ReasonInvalidValue
	}
	for _, c := range []class{classDuration, classAbsolute, classMarker} {
		n := ev.times[c]
		if n.row == nil && n.event == nil || wrongOrigin(scope, n) {
			continue
		}
		if _, _, ok := ev.place(n.at); !ok {
			return ReasonOutOfSpan
		}
	}
	return ""
}

// endStamped reports whether an instant is so close to the end that it was probably stamped there.
func (ev *Evidence) endStamped(f int64) bool {
	return ev.end-f <= max(int64(time.Millisecond), (ev.end-ev.start)/1000)
}

// wrongOrigin reports whether an instrumentation is known to count from elsewhere. Of a row of their own users know better.
func wrongOrigin(scope *scopeRow, n candidate) bool {
	return scope != nil && scope.wrongOrigin && n.row != nil && !n.row.users()
}

// locate finds the first-chunk instant: the first valid candidate wins.
func (r *Reader) locate(ev *Evidence, res pcommon.Resource, d *Decision) {
	reason := ReasonNoFirstChunk
	if ev.invalid {
		reason = ReasonInvalidValue
	}
	accept := func(at int64, source, key string) bool {
		f, clamped, ok := ev.place(at)
		if !ok {
			reason = ReasonOutOfSpan
			return false
		}
		d.First, d.FirstKnown, d.Clamped, d.Source, d.SourceKey = f, true, clamped, source, key
		return true
	}
	flagged := ev.flag != nil && ev.flagOn || ev.jsonFlag != nil
	for _, c := range []class{classDuration, classAbsolute, classMargin, classAmbiguous} {
		n := ev.times[c]
		switch {
		case n.row == nil:
		case wrongOrigin(d.scope, n):
			reason = ReasonWrongOrigin
		case c == classAmbiguous && !flagged:
		case accept(n.at, n.row.key, n.row.key):
			return
		}
	}
	if n := ev.times[classMarker]; n.event != nil {
		if f, _, ok := ev.place(n.at); ok && ev.endStamped(f) {
			reason = ReasonEndStamped
		} else if accept(n.at, n.event.key, n.event.key) {
			return
		}
	}
	if c := &ev.Chunks; c.Seen > 0 {
		// With events dropped the earliest that is left is the first chunk only when the SDK drops the newest.
		if ev.span.DroppedEventsCount() > 0 && c.Spans == 0 && keeps(res) != survivorsOldest {
			reason = ReasonFirstDropped
		} else if accept(c.earliest, c.source, c.sourceKey) {
			return
		}
	}
	if n := ev.times[classProtocol]; n.event != nil {
		if f, _, ok := ev.place(n.at); ok && !ev.endStamped(f) && accept(n.at, n.event.key, n.event.key) {
			return
		}
	}
	d.Reason = reason
}

func keeps(res pcommon.Resource) survivors {
	v, ok := res.Attributes().Get("telemetry.sdk.language")
	if !ok || v.Type() != pcommon.ValueTypeStr {
		return survivorsUnknown
	}
	return sdkSurvivors[v.Str()]
}

// dialect names the instrumentation: by its scope, else by the most telling key.
func (ev *Evidence) dialect(scope *scopeRow) string {
	best := ""
	take := func(s string) {
		if best == "" {
			best = s
		}
	}
	genAI := false
	take(ev.Chunks.dialect)
	for c, n := range ev.times {
		if n.row != nil {
			take(n.row.dialect)
			genAI = genAI || n.row.genAI
		}
		if n.event != nil && class(c) != classProtocol {
			take(n.event.dialect)
		}
	}
	if ev.name != nil {
		take(ev.name.dialect)
	}
	for _, row := range []*compiledAttr{ev.jsonFlag, ev.flag} {
		if row != nil {
			take(row.dialect)
			genAI = genAI || row.genAI
		}
	}
	// A content type only says that it is HTTP; the event of a first byte says whose.
	if n := ev.times[classProtocol]; n.event != nil {
		take(n.event.dialect)
	}
	if ev.contentType != nil {
		take(ev.contentType.dialect)
	}
	if scope != nil && (!scope.genAIOnly || genAI || best == "openllmetry") {
		return scope.dialect
	}
	if best == "" {
		return "custom"
	}
	return best
}

// dropped is the number of chunk events that the SDK dropped; 0 when that cannot be told from other events.
func (ev *Evidence) dropped() int64 {
	n := int64(ev.span.DroppedEventsCount())
	if n == 0 || ev.Chunks.Seen == 0 || ev.Chunks.Spans > 0 {
		return 0
	}
	for _, c := range ev.Chunks.Classes {
		if c != EventChunk {
			return 0
		}
	}
	return n
}

// Window says how much of the chunks' instants is there: missing is the number of chunks known to have none, truncated says that an
// unknown number is lost, newest that those that are there are the newest.
func (ev *Evidence) Window(res pcommon.Resource) (missing int64, truncated, newest bool) {
	c := &ev.Chunks
	missing = c.Seen - int64(len(c.Instants)) + ev.dropped()
	// When events of another kind survive too, how many of the dropped ones were chunks is not known; that some were must be assumed.
	truncated = missing == 0 && c.Seen > 0 && c.Spans == 0 && ev.span.DroppedEventsCount() > 0
	return missing, truncated, c.Spans > 0 || keeps(res) == survivorsNewest
}

// Span returns the span that was read.
func (ev *Evidence) Span() ptrace.Span { return ev.span }
