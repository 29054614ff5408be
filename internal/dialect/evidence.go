// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"math"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// tolerance is how far outside its span an instant may lie and still be taken for one at its edge: clocks differ by that much.
const tolerance = int64(time.Millisecond)

// EventClass says what a span event is to the stream.
type EventClass uint8

const (
	// EventOther is no chunk.
	EventOther EventClass = iota
	// EventChunk is one chunk of the response.
	EventChunk
	// EventEcho is a second event for a chunk that has one already.
	EventEcho
)

// Chunks are the chunk records of one stream, from its own events or from folded chunk spans.
type Chunks struct {
	// Instants are the usable instants in nanoseconds, in the order of the records.
	Instants []int64
	// Classes has one entry for each span event; empty when no event is a chunk.
	Classes []EventClass
	// Events counts those of Classes that are not EventOther.
	Events int
	// Seen counts the records, also those whose instant lies outside the span.
	Seen int64
	// Spans counts those of Seen that were spans.
	Spans int64
	// Sorted says that Instants are in ascending order.
	Sorted bool
	// Bytes is the sum of the sizes; valid when every record has one.
	Bytes      int64
	BytesKnown bool
	// Tokens is the sum of the tokens of the chunks, TokenSource the key that gave them, "" unless every record has tokens.
	Tokens      int64
	TokenSource string

	earliest, latest int64
	source           string
	sourceKey        string
	dialect          string
	bodyWrite        bool
	micros           bool
}

type candidate struct {
	row   *compiledAttr  // of an attribute
	event *compiledEvent // of an event
	at    int64
}

// Evidence is what one pass over a span found. The zero value is none. What it refers to is valid until the Reader's next Reset.
type Evidence struct {
	span  ptrace.Span
	start int64
	end   int64
	// any: something speaks of streaming.
	any    bool
	bad    Reason
	flag   *compiledAttr
	flagOn bool
	// jsonFlag and contentType are set only when they say that the span streams.
	jsonFlag    *compiledAttr
	contentType *compiledAttr
	name        *compiledSpan
	// times holds the best candidate of each class, see class.
	times [classes]candidate
	// invalid says that a first-chunk key holds what is no time.
	invalid bool

	Chunks Chunks
	ended  bool // an end event
	cancel bool // a cancel event
	choice pcommon.Value
	hasCh  bool
	// messages is the last list of output messages that an event carries, as JSON, "" when none does.
	messages string

	details details
}

// class orders the candidates for the first-chunk instant, best first.
type class uint8

const (
	classDuration  class = iota // a duration under a key that only streams write
	classAbsolute               // an absolute time under such a key
	classMargin                 // a key that plain calls write at their end
	classAmbiguous              // a key that plain calls write too
	classMarker                 // a first-chunk event
	classProtocol               // a protocol's first byte
	classes
)

// Reader collects the evidence of spans, one at a time. It is not safe for concurrent use.
type Reader struct {
	table     *Table
	minSpread int64

	instants []int64
	classes  []EventClass

	lastName string
	lastRow  *compiledEvent
	// The scope that was looked up last: the spans of a scope come one after the other.
	scopeName string
	scope     *scopeRow
}

// NewReader returns a Reader. minSpread is the time over which body writes must spread to count as a stream.
func NewReader(t *Table, minSpread time.Duration) *Reader {
	return &Reader{table: t, minSpread: int64(minSpread)}
}

// Reset takes back the instants and classes of all Evidence that was read. Call it between batches.
func (r *Reader) Reset() {
	r.instants, r.classes = r.instants[:0], r.classes[:0]
	r.lastName, r.lastRow = "", nil
	r.scopeName, r.scope = "", nil
}

// Glance says where on a span something may be that speaks of streaming.
type Glance uint8

const (
	// GlanceNothing: nowhere. Nearly all spans are such.
	GlanceNothing Glance = iota
	// GlanceOther: in its name, its events or its times.
	GlanceOther
	// GlanceAttributes: among its attributes, and maybe elsewhere.
	GlanceAttributes
)

// Glance dismisses nearly all spans on which Read finds nothing, at the price of one look at each key. It stands apart from Read, whose
// loops do more with a key than look at it, so that this one fits into registers: for spans of 15 attributes that is a quarter of the time.
func (r *Reader) Glance(span ptrace.Span) Glance {
	t := r.table
	for key := range span.Attributes().All() {
		if t.signalFilter.may(key) {
			return GlanceAttributes
		}
	}
	if span.Events().Len() > 0 || t.mayStreamByName(span.Name()) || badSpan(span) != "" {
		return GlanceOther
	}
	return GlanceNothing
}

// Phase returns the text of a span's stream.phase. ok tells whether there is such an attribute: then the span went through this component
// before, and is not to be read again whatever else it carries. Of spans for which a glance does not give GlanceAttributes it is false.
func Phase(span ptrace.Span) (phase string, ok bool) {
	for key, v := range span.Attributes().All() {
		if key == phaseKey {
			return v.Str(), true
		}
	}
	return "", false
}

// Read fills in the evidence of a span, which is zero before, and reports whether there is any. g is what a glance at the span told. It goes
// over the attributes once, whatever it looks for there.
func (r *Reader) Read(span ptrace.Span, g Glance, ev *Evidence) bool {
	if g == GlanceNothing {
		return false
	}
	if g == GlanceAttributes {
		r.readAttributes(ev, span)
	}
	if n := span.Name(); r.table.mayStreamByName(n) {
		r.readName(ev, n)
	}
	if span.Events().Len() > 0 {
		r.readEvents(ev, span)
	}
	if bad := badSpan(span); bad != "" {
		ev.bad, ev.any = bad, true
	}
	if !ev.any {
		return false
	}
	if g == GlanceOther {
		r.readAttributes(ev, span) // for the details
	}
	r.begin(ev, span)
	return true
}

// aiStream begins the names of the AI SDK's spans; it appends a space and the function's name when it has one.
const aiStream = "ai.stream"

func (t *Table) mayStreamByName(name string) bool {
	return t.spanFilter.may(name) || strings.HasPrefix(name, aiStream)
}

// readAttributes takes in what shows that the span streams and what else is of interest if it does.
func (r *Reader) readAttributes(ev *Evidence, span ptrace.Span) {
	t := r.table
	for key, v := range span.Attributes().All() {
		if !t.detailFilter.may(key) {
			continue
		}
		if row := t.attr(key); row != nil {
			if row.signal {
				r.signal(ev, span, row, v)
			}
			ev.details.take(row, v)
		}
	}
}

// WithChunks adds the chunk spans that were folded for a span to its evidence; known is what Read said of it. A stream that recorded its
// chunks as events too is not counted twice: the richer record of the two counts.
func (r *Reader) WithChunks(span ptrace.Span, ev *Evidence, known bool, c *Chunks) {
	if !known {
		r.readAttributes(ev, span) // if Read did so already, the second time changes nothing
		r.begin(ev, span)
	}
	if c.Seen >= ev.Chunks.Seen {
		classes, events := ev.Chunks.Classes, ev.Chunks.Events
		ev.Chunks = *c
		ev.Chunks.Classes, ev.Chunks.Events = classes, events
	}
}

func (r *Reader) begin(ev *Evidence, span ptrace.Span) {
	ev.any = true
	ev.span = span
	ev.start, ev.end = int64(span.StartTimestamp()), int64(span.EndTimestamp())
}

// badSpan returns why a span cannot be worked with, "" when it can.
func badSpan(span ptrace.Span) Reason {
	start, end := span.StartTimestamp(), span.EndTimestamp()
	switch {
	case end < start:
		return ReasonEndBeforeStart
	case end > math.MaxInt64:
		return ReasonTimeOutOfRange
	case span.SpanID().IsEmpty() || span.TraceID().IsEmpty():
		return ReasonZeroID
	default:
		return ""
	}
}

// signal takes in one attribute that can show that the span streams.
func (r *Reader) signal(ev *Evidence, span ptrace.Span, row *compiledAttr, v pcommon.Value) {
	r.begin(ev, span)
	switch row.Role {
	case RoleStreamFlag:
		if on, ok := boolOf(v); ok && (ev.flag == nil || row.rank < ev.flag.rank) {
			ev.flag, ev.flagOn = row, on
		}
	case RoleTimeToFirstChunk:
		if d, ok := durationOf(v, row, ev.end-ev.start); ok {
			ev.offer(classOf(row, v), candidate{row: row, at: ev.start + d})
		} else {
			ev.invalid = true
		}
	case RoleFirstChunkTime:
		if at, ok := instantOf(v); ok {
			ev.offer(classOf(row, v), candidate{row: row, at: at})
		} else {
			ev.invalid = true
		}
	case roleJSONFlag:
		if v.Type() == pcommon.ValueTypeStr {
			if on, ok := jsonFlag(v.Str()); ok && on {
				ev.jsonFlag = row
			}
		}
	case roleContentType:
		if isStreamingType(v) {
			ev.contentType = row
		}
	default:
	}
}

func classOf(row *compiledAttr, v pcommon.Value) class {
	switch {
	case row.trust:
		// The user vouches for the key, so it is as good as one that only streams write.
	case row.intMillis && v.Type() == pcommon.ValueTypeInt:
		return classMargin
	case row.strength == strengthMargin:
		return classMargin
	case row.strength == strengthAmbiguous:
		return classAmbiguous
	}
	if row.Role == RoleFirstChunkTime {
		return classAbsolute
	}
	return classDuration
}

// offer keeps a candidate when it is the best of its class: a valid one before one that is not, then the better row, then the earlier
// instant, since events need not stand in the order of time.
func (ev *Evidence) offer(c class, n candidate) {
	old := ev.times[c]
	if old.row == nil && old.event == nil {
		ev.times[c] = n
		return
	}
	_, _, oldOK := ev.place(old.at)
	_, _, newOK := ev.place(n.at)
	if newOK != oldOK {
		if newOK {
			ev.times[c] = n
		}
		return
	}
	if n.rank() < old.rank() || n.rank() == old.rank() && n.at < old.at {
		ev.times[c] = n
	}
}

func (c candidate) rank() int {
	if c.row != nil {
		return c.row.rank
	}
	return c.event.rank
}

// place moves an instant that lies up to the tolerance outside the span to its edge. ok is false when it lies further out.
func (ev *Evidence) place(at int64) (f int64, clamped, ok bool) {
	switch {
	case at >= ev.start && at <= ev.end:
		return at, false, true
	// Unsigned, since a start plus a senseless duration wraps round and two int64 can lie further apart than an int64 holds.
	case at < ev.start && uint64(ev.start-at) <= uint64(tolerance):
		return ev.start, true, true
	case at > ev.end && uint64(at-ev.end) <= uint64(tolerance):
		return ev.end, true, true
	default:
		return 0, false, false
	}
}

// Holds reports whether an instant lies in the span, up to the tolerance. Instants that do not are no instants of the stream.
func (ev *Evidence) Holds(at int64) bool {
	_, _, ok := ev.place(at)
	return ok
}

func (r *Reader) readName(ev *Evidence, name string) {
	if i := strings.IndexByte(name, ' '); i > 0 && strings.HasPrefix(name, aiStream) {
		name = name[:i]
	}
	for _, row := range r.table.spans[name] {
		if row.Role == roleStreamingRPC {
			ev.name, ev.any = row, true
		}
	}
}

// readEvents takes in the events of a span. The evidence of an ordinary span stays untouched until an event of the table turns up.
func (r *Reader) readEvents(ev *Evidence, span ptrace.Span) {
	events := span.Events()
	inbound := isInbound(span)
	start, end := int64(span.StartTimestamp()), int64(span.EndTimestamp())
	var (
		c       *Chunks
		classAt = len(r.classes)
		instAt  = len(r.instants)
		sized   int64
	)
	begun := false
	var counted *compiledEvent // the row of the chunk before
	for i := 0; i < events.Len(); i++ {
		e := events.At(i)
		row := r.lastRow
		if name := e.Name(); name != r.lastName || row == nil {
			if row = r.table.event(name); row == nil {
				row = typedMessage(e)
			}
			if row == nil {
				continue
			}
			r.lastName, r.lastRow = name, row
		}
		if !begun {
			r.begin(ev, span)
			begun = true
		}
		switch row.Role {
		case RoleChunk, roleChunkEcho:
			if !isResponse(row, e, inbound) {
				continue
			}
			if c == nil {
				c = &ev.Chunks
				*c = Chunks{Sorted: true, bodyWrite: true, earliest: math.MaxInt64, latest: math.MinInt64}
				r.classes = append(r.classes, make([]EventClass, events.Len())...)
			}
			if row.Role == roleChunkEcho {
				r.classes[classAt+i] = EventEcho
				c.Events++
				continue
			}
			if row.plain {
				c.bodyWrite = false
				i += r.chunkRun(ev, events, i, r.classes[classAt:], instAt) - 1
				continue
			}
			r.classes[classAt+i] = EventChunk
			c.Events++
			c.Seen++
			at := repaired(row.micros, e.Timestamp(), start, end)
			if at < c.earliest {
				c.earliest, c.source, c.sourceKey, c.dialect = at, e.Name(), row.key, row.dialect
			}
			c.latest = max(c.latest, at)
			if row != counted {
				counted = row
				c.micros = c.micros || row.micros
				c.bodyWrite = c.bodyWrite && row.bodyWrite
			}
			// An instant outside the span cannot be right; the chunk counts, its instant does not.
			if _, _, ok := ev.place(at); ok {
				if n := len(r.instants); n > instAt && at < r.instants[n-1] {
					c.Sorted = false
				}
				r.instants = append(r.instants, at)
			}
			if len(row.bytesKeys) > 0 {
				if size, ok := sizeOf(row, e); ok {
					c.Bytes += size
					sized++
				}
			}
		case RoleFirstChunk:
			r.firstChunkEvent(ev, row, e)
		case roleProtocol:
			ev.offer(protocolClass(row), candidate{event: row, at: clampInt64(e.Timestamp())})
		case RoleEnd:
			ev.ended = true
		case roleCancel:
			ev.cancel = true
		case roleChoice:
			if v, ok := e.Attributes().Get("finish_reason"); ok {
				ev.choice, ev.hasCh = v, true
			}
		case roleDetails:
			// The prompt may be on an event of the same name.
			if v, ok := e.Attributes().Get("gen_ai.output.messages"); ok && v.Type() == pcommon.ValueTypeStr {
				ev.messages = v.Str()
			}
		default:
		}
	}
	if c != nil {
		c.Instants = r.instants[instAt:len(r.instants):len(r.instants)]
		c.Classes = r.classes[classAt:len(r.classes):len(r.classes)]
		c.BytesKnown = sized == c.Seen
	}
}

// chunkRun takes in the chunks from event `from` on that have the same name and of which nothing but the instant is of interest, and returns
// their number. Nearly every chunk event is one of such a run, which is why they have a loop of their own without the questions that other
// events raise: a third of the time of a span of 100 chunks is for reading its events.
func (r *Reader) chunkRun(ev *Evidence, events ptrace.SpanEventSlice, from int, classes []EventClass, instAt int) int {
	c, row := &ev.Chunks, r.lastRow
	name := events.At(from).Name()
	instants := slices.Grow(r.instants, events.Len()-from)
	last, sorted := int64(math.MinInt64), c.Sorted
	if len(instants) > instAt {
		last = instants[len(instants)-1]
	}
	earliest, latest := int64(math.MaxInt64), int64(math.MinInt64)
	n := 0
	for i := from; i < events.Len(); i++ {
		e := events.At(i)
		if e.Name() != name {
			break
		}
		n++
		classes[i] = EventChunk
		at := clampInt64(e.Timestamp())
		earliest, latest = min(earliest, at), max(latest, at)
		// An instant outside the span cannot be right; the chunk counts, its instant does not.
		if at >= ev.start && at <= ev.end || ev.Holds(at) {
			sorted = sorted && at >= last
			last = at
			instants = append(instants, at)
		}
	}
	r.instants = instants
	c.Events += n
	c.Seen += int64(n)
	c.Sorted = sorted
	if earliest < c.earliest {
		c.earliest, c.source, c.sourceKey, c.dialect = earliest, name, row.key, row.dialect
	}
	c.latest = max(c.latest, latest)
	return n
}

func protocolClass(row *compiledEvent) class {
	if row.trust {
		return classMarker
	}
	return classProtocol
}

// firstChunkEvent takes in a marker. A number on the event beats the event's stamp, which some write when the span ends.
func (r *Reader) firstChunkEvent(ev *Evidence, row *compiledEvent, e ptrace.SpanEvent) {
	for key, v := range e.Attributes().All() {
		if !r.table.signalFilter.may(key) {
			continue
		}
		if a := r.table.attr(key); a != nil && a.Role == RoleTimeToFirstChunk && a.strength == strengthMarker {
			if d, ok := durationOf(v, a, ev.end-ev.start); ok {
				ev.offer(classDuration, candidate{row: a, at: ev.start + d})
			}
		}
	}
	ev.offer(classMarker, candidate{event: row, at: repaired(row.micros, e.Timestamp(), ev.start, ev.end)})
}

func clampInt64(ts pcommon.Timestamp) int64 {
	return int64(min(ts, math.MaxInt64))
}

// repaired returns the stamp of an event in nanoseconds. Old MLflow releases handed microseconds on as nanoseconds, which puts the event
// into January 1970.
func repaired(micros bool, ts pcommon.Timestamp, start, end int64) int64 {
	at := clampInt64(ts)
	if micros && at < start && at <= math.MaxInt64/1000 {
		if us := at * 1000; us >= start-tolerance && us <= end+tolerance {
			return us
		}
	}
	return at
}

// EventTime returns the stamp of one of the span's events in nanoseconds, repaired where its writer is known to use the wrong unit.
func (ev *Evidence) EventTime(e ptrace.SpanEvent) int64 {
	return repaired(ev.Chunks.micros, e.Timestamp(), ev.start, ev.end)
}

// isInbound reports whether the response comes in on this span (a client's) or goes out (a server's).
func isInbound(span ptrace.Span) bool {
	switch span.Kind() {
	case ptrace.SpanKindServer:
		return false
	case ptrace.SpanKindClient:
		return true
	default:
		return !strings.HasPrefix(span.Name(), "Recv.")
	}
}

func isResponse(row *compiledEvent, e ptrace.SpanEvent, inbound bool) bool {
	switch row.direction {
	case directionIn:
		return inbound
	case directionOut:
		return !inbound
	case directionAttr:
		v, ok := messageType(e)
		if !ok {
			return false
		}
		if inbound {
			return strings.EqualFold(v, "RECEIVED")
		}
		return strings.EqualFold(v, "SENT")
	default:
		return true
	}
}

func messageType(e ptrace.SpanEvent) (string, bool) {
	for _, key := range []string{"message.type", "rpc.message.type"} {
		if v, ok := e.Attributes().Get(key); ok && v.Type() == pcommon.ValueTypeStr {
			return v.Str(), true
		}
	}
	return "", false
}

// typedRow is the row of .NET's message events, which are named after the message's type and known by their attributes alone.
var typedRow = &compiledEvent{EventRow: EventRow{Role: RoleChunk, dialect: "dotnet-grpc-core", direction: directionAttr, bytesKeys: grpcSizes}, key: "message"}

func typedMessage(e ptrace.SpanEvent) *compiledEvent {
	if e.Attributes().Len() < 2 {
		return nil
	}
	if v, ok := e.Attributes().Get("name"); !ok || v.Type() != pcommon.ValueTypeStr || v.Str() != "message" {
		return nil
	}
	if _, ok := messageType(e); !ok {
		return nil
	}
	return typedRow
}

func sizeOf(row *compiledEvent, e ptrace.SpanEvent) (int64, bool) {
	for _, key := range row.bytesKeys {
		if v, ok := e.Attributes().Get(key); ok {
			return countOf(v)
		}
	}
	return 0, false
}
