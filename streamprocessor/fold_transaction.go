// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
	"github.com/otelcol-stream/otelcol-stream/internal/fold"
)

// transaction is what one batch does to the store.
type transaction struct {
	f      *foldingProcessor
	counts chunkCounts

	scopes []scopeGroup
	// refs are the chunk spans of the batch, in its order.
	refs   []chunkRef
	groups map[fold.Key]*chunkGroup
	// order has the groups in the order in which they turned up, so that the outcome does not hang on a map's.
	order []*chunkGroup
	// byID finds the chunk spans by their own ids.
	byID  map[fold.Key]int
	joins joins
	// held says that the spans of holds have left the batch.
	held bool
	// marks are parents that leave before any of their chunk spans came.
	marks []fold.Key
	holds []hold
	now   int64
}

type scopeGroup struct {
	rs     ptrace.ResourceSpans
	ss     ptrace.ScopeSpans
	writer writer
	origin *fold.Origin
}

type chunkRef struct {
	span  ptrace.Span
	group *chunkGroup
	index int // in the batch of the group
	scope int
}

// fate is what becomes of the chunk spans of one stream that are in a batch.
type fate uint8

const (
	fateStay fate = iota // they pass as they are
	fateStore
	fateJoin
)

type chunkGroup struct {
	key   fold.Key
	batch fold.Batch
	scope int // of the first
	fate  fate
	join  *join
	// whole says that the chunk spans themselves must be kept.
	whole bool
	// left says that they are no longer in the batch.
	left bool
}

type hold struct {
	key   fold.Key
	span  ptrace.Span
	scope int
}

// maxPooledRefs bounds what a transaction keeps for the next batch.
const maxPooledRefs = 1 << 16

func newTransaction(f *foldingProcessor) *transaction {
	return &transaction{f: f, groups: map[fold.Key]*chunkGroup{}, byID: map[fold.Key]int{}}
}

// reset releases what the transaction shares and forgets everything. What rollback or commit moved on is out of it by then.
func (tx *transaction) reset() {
	for i := range tx.scopes {
		if o := tx.scopes[i].origin; o != nil {
			o.Release()
		}
	}
	if cap(tx.refs) > maxPooledRefs {
		*tx = *newTransaction(tx.f)
		return
	}
	clear(tx.scopes)
	clear(tx.refs)
	clear(tx.order)
	clear(tx.holds)
	clear(tx.groups)
	clear(tx.byID)
	tx.joins.reset()
	tx.held = false
	tx.scopes, tx.refs, tx.order, tx.holds, tx.marks = tx.scopes[:0], tx.refs[:0], tx.order[:0], tx.holds[:0], tx.marks[:0]
	tx.counts = chunkCounts{}
}

// process takes the chunk spans out of a batch, and what came before for the parents in it out of the store. It reports whether nothing is
// left to send on.
func (tx *transaction) process(ctx context.Context, td ptrace.Traces) (emptied bool) {
	tx.now = tx.f.clock()
	before := tx.scan(td)
	tx.leaveNested()
	tx.findParents(td)
	tx.decide()
	tx.remove(td)

	w := tx.f.traces.worker()
	defer tx.f.traces.release(ctx, w)
	found := tx.joins.find(w.finder, td)
	out := spansByOrigin{td: td}
	for _, j := range tx.joins.order {
		j.settle(w.finder, &out, tx.f.suffix, &tx.counts)
	}
	tx.settleGroups()
	tx.remove(td)
	for i := range found {
		// A chunk span that carries evidence of its own has left with the others.
		if ref, ok := tx.byID[keyOf(found[i].Span)]; !ok || tx.refs[ref].span != found[i].Span || !tx.refs[ref].group.left {
			w.apply(&found[i])
		}
	}
	return before > 0 && td.SpanCount() == 0
}

// scan collects the chunk spans and counts all spans.
func (tx *transaction) scan(td ptrace.Traces) (spans int) {
	var last *chunkGroup
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			name := ss.Scope().Name()
			at := len(tx.scopes)
			tx.scopes = append(tx.scopes, scopeGroup{rs: rs, ss: ss, writer: tx.f.writers.of(name)})
			learned := false
			for _, span := range ss.Spans().All() {
				spans++
				c, bad, ok := tx.f.traces.table.ChunkSpan(name, span)
				if !ok {
					if bad != "" {
						tx.counts.spans[spanRefused]++
					}
					continue
				}
				if !learned {
					learned = true
					tx.f.writers.learn(name, c)
				}
				key := fold.Key{Trace: span.TraceID(), Parent: span.ParentSpanID()}
				if last == nil || last.key != key {
					last = tx.group(key, at, span, &c)
				}
				tx.byID[keyOf(span)] = len(tx.refs)
				tx.refs = append(tx.refs, chunkRef{span: span, group: last, index: len(last.batch.Chunks), scope: at})
				last.batch.Totals.Add(&c)
				last.batch.Chunks = append(last.batch.Chunks, fold.Chunk{ChunkSpan: c, ID: span.SpanID()})
			}
		}
	}
	return spans
}

// leaveNested leaves chunk spans below chunk spans where they are: what they tell has been told.
func (tx *transaction) leaveNested() {
	for _, g := range tx.order {
		if _, nested := tx.byID[g.key]; nested {
			delete(tx.groups, g.key)
		}
	}
}

func (tx *transaction) group(key fold.Key, scope int, span ptrace.Span, c *dialect.ChunkSpan) *chunkGroup {
	g := tx.groups[key]
	if g == nil {
		g = &chunkGroup{key: key, scope: scope, batch: fold.Batch{
			Name: c.ParentName(span.Name()), TraceState: span.TraceState().AsRaw(), Flags: span.Flags(),
		}}
		tx.groups[key] = g
		tx.order = append(tx.order, g)
	}
	return g
}

// findParents finds the spans of the batch that chunk spans lie below, or may.
func (tx *transaction) findParents(td ptrace.Traces) {
	store := tx.f.store
	next, at := 0, -1
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			at++
			w := tx.scopes[at].writer
			if len(tx.groups) == 0 && store.Open() == 0 && !w.ok {
				continue
			}
			for _, span := range ss.Spans().All() {
				if next < len(tx.refs) && tx.refs[next].span == span {
					next++
					continue
				}
				key := keyOf(span)
				g := tx.groups[key]
				open := false
				if store.Open() > 0 {
					open, _ = store.Has(key)
				}
				writes := w.parent(span)
				switch {
				case g == nil && !open && !writes:
				case store.Limits().ParentWait > 0:
					// A span that makes no sense, or is one of ours, is the parent of nothing: one that is held may have its ids.
					if dialect.CanHold(span) {
						tx.holds = append(tx.holds, hold{key: key, span: span, scope: at})
					}
				case g != nil || open:
					tx.join(key, span, g)
				default:
					tx.marks = append(tx.marks, key)
				}
			}
		}
	}
	for _, key := range tx.marks {
		// Chunk spans may have come since the look above.
		if st := store.Take(key, true, tx.now); st != nil {
			store.Untake(key, st)
		}
	}
}

func (tx *transaction) join(key fold.Key, span ptrace.Span, g *chunkGroup) {
	if tx.joins.of(key) != nil {
		return // another span of the batch had these ids first
	}
	store := tx.f.store
	j := &join{key: key, span: span, stream: store.Take(key, true, tx.now), limits: store.Limits()}
	if g != nil {
		j.batch, g.join, g.fate = &g.batch, j, fateJoin
		j.duplicate = j.stream != nil && j.stream.Knows(j.batch)
	}
	tx.joins.add(j)
}

// decide decides what becomes of the chunk spans whose parent is not in the batch.
func (tx *transaction) decide() {
	store := tx.f.store
	for _, h := range tx.holds {
		if g := tx.groups[h.key]; g != nil {
			g.fate = fateStore
		}
	}
	for _, g := range tx.order {
		if tx.groups[g.key] != g || g.fate == fateJoin {
			continue
		}
		n := int64(len(g.batch.Chunks))
		if g.fate != fateStore && store.Gone(g.key, tx.now) {
			tx.counts.spans[spanLate] += n
			continue
		}
		_, known := store.Has(g.key)
		g.whole = !known && !g.batch.Totals.Stream(int64(store.Limits().MinSpread))
		if g.whole && n > fold.MaxKept {
			tx.counts.spans[spanNoStream] += n
			g.fate = fateStay
			continue
		}
		g.fate = fateStore
		g.batch.Origin = tx.origin(g.scope)
	}
}

func (tx *transaction) origin(scope int) *fold.Origin {
	s := &tx.scopes[scope]
	if s.origin == nil {
		s.origin = tx.f.store.Origin(s.rs, s.ss)
	}
	return s.origin
}

// settleGroups settles the chunk spans whose parent is in the batch, now that it is known whether that streams.
func (tx *transaction) settleGroups() {
	for _, g := range tx.order {
		if g.fate != fateJoin {
			continue
		}
		n := int64(len(g.batch.Chunks))
		switch {
		case !g.join.streams:
			tx.counts.spans[spanNoStream] += n
		case g.join.duplicate:
			tx.counts.spans[spanDuplicate] += n
		default:
			tx.counts.spans[spanFolded] += n
			if g.join.stream == nil {
				tx.counts.streams[streamJoined]++
			}
		}
	}
}

// leaving reports whether the chunk spans of a group are to leave the batch now.
func (g *chunkGroup) leaving() bool {
	return !g.left && (g.fate == fateStore || g.fate == fateJoin && g.join.streams)
}

// remove takes the chunk spans out of the batch that are to leave it now, and the parents that are held.
func (tx *transaction) remove(td ptrace.Traces) {
	leaving := len(tx.holds) > 0 && !tx.held
	for _, g := range tx.order {
		leaving = leaving || g.leaving()
	}
	if !leaving {
		return
	}
	holds := tx.holds
	if tx.held {
		holds = nil
	}
	refs := tx.refs
	td.ResourceSpans().RemoveIf(func(rs ptrace.ResourceSpans) bool {
		hadScopes := rs.ScopeSpans().Len() > 0
		rs.ScopeSpans().RemoveIf(func(ss ptrace.ScopeSpans) bool {
			hadSpans := ss.Spans().Len() > 0
			ss.Spans().RemoveIf(func(span ptrace.Span) bool {
				for len(refs) > 0 && refs[0].group.left {
					refs = refs[1:]
				}
				if len(refs) > 0 && refs[0].span == span {
					ref := &refs[0]
					refs = refs[1:]
					if ref.group.leaving() {
						tx.take(ref)
						return true
					}
				}
				tx.moveUp(span)
				if len(holds) > 0 && holds[0].span == span {
					tx.hold(&holds[0])
					holds = holds[1:]
					return true
				}
				return false
			})
			return hadSpans && ss.Spans().Len() == 0
		})
		return hadScopes && rs.ScopeSpans().Len() == 0
	})
	for _, g := range tx.order {
		g.left = g.left || g.leaving()
	}
	tx.held = true
}

// take moves a chunk span out of the batch, as far as it is needed.
func (tx *transaction) take(ref *chunkRef) {
	if g := ref.group; g.fate == fateStore && g.whole {
		c := &g.batch.Chunks[ref.index]
		c.Span, c.Origin = moved(ref.span), tx.origin(ref.scope)
	}
}

func (tx *transaction) hold(h *hold) {
	h.span = moved(h.span)
	tx.origin(h.scope)
}

// moved returns a span of its own with what the given one holds: a slice may reuse the spans that are removed from it.
func moved(span ptrace.Span) ptrace.Span {
	s := ptrace.NewSpan()
	span.MoveTo(s)
	return s
}

// moveUp gives a span below a chunk span that leaves a parent that will be there: the span above.
func (tx *transaction) moveUp(span ptrace.Span) {
	if ref, ok := tx.byID[fold.Key{Trace: span.TraceID(), Parent: span.ParentSpanID()}]; ok {
		if g := tx.refs[ref].group; g.leaving() {
			span.SetParentSpanID(g.key.Parent)
		}
	}
}

// commit brings to the store what the batch left for it. It returns streams that have to go out at once.
func (tx *transaction) commit() (spilled []*fold.Stream) {
	store, now := tx.f.store, tx.f.clock()
	for _, j := range tx.joins.order {
		if j.stream != nil {
			j.stream.Release()
		}
	}
	for _, g := range tx.order {
		if g.fate != fateStore {
			continue
		}
		duplicate, st := store.Add(g.key, &g.batch, now)
		if duplicate {
			tx.counts.spans[spanDuplicate] += int64(len(g.batch.Chunks))
		}
		if st != nil {
			spilled = append(spilled, st)
		}
	}
	for i := range tx.holds {
		h := &tx.holds[i]
		store.Hold(h.key, h.span, tx.origin(h.scope), now)
	}
	return spilled
}

// rollback leaves the store as it was.
func (tx *transaction) rollback() {
	for _, j := range tx.joins.order {
		tx.f.store.Untake(j.key, j.stream)
	}
	for _, key := range tx.marks {
		tx.f.store.Untake(key, nil)
	}
}
