// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
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
	refs []chunkRef
	// order has the groups in the order in which they turned up. Those behind its length are of earlier batches, to be used again.
	order []*chunkGroup
	// groups finds them by key, byID the chunk spans by their own ids.
	groups, byID hashIndex
	// nested is the number of groups that are left alone.
	nested int
	// indexed says that byID is complete.
	indexed bool
	// chunks are the chunks of the groups, side by side.
	chunks []fold.Chunk
	// entries are the groups that the store is asked for, and later those that it gets.
	entries fold.Entries
	joins   joins
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
	span    ptrace.Span
	group   *chunkGroup
	instant int64
	id      pcommon.SpanID
	own     uint64 // hash of below
	index   int32  // in the batch of the group
	scope   int32
}

// below is the key of spans below the chunk span. The span itself may have left the batch, and then tells nothing.
func (r *chunkRef) below() fold.Key { return fold.Key{Trace: r.group.Key.Trace, Parent: r.id} }

// fate is what becomes of the chunk spans of one stream that are in a batch.
type fate uint8

const (
	fateStay fate = iota // they pass as they are
	fateStore
	fateJoin
)

type chunkGroup struct {
	fold.Entry
	size  int // chunk spans
	scope int // of the first
	fate  fate
	join  *join
	// nested says that the group lies below a chunk span.
	nested bool
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
	return &transaction{f: f}
}

// reset releases what the transaction shares and forgets everything. What rollback or commit moved on is out of it by then.
func (tx *transaction) reset() {
	for i := range tx.scopes {
		if o := tx.scopes[i].origin; o != nil {
			o.Release()
		}
	}
	if max(cap(tx.refs), len(tx.groups.slots)/2) > maxPooledRefs {
		*tx = *newTransaction(tx.f)
		return
	}
	clear(tx.scopes)
	clear(tx.refs)
	clear(tx.chunks)
	clear(tx.holds)
	for _, g := range tx.order {
		*g = chunkGroup{}
	}
	tx.entries.Reset()
	tx.joins.reset()
	tx.held, tx.indexed, tx.nested = false, false, 0
	tx.scopes, tx.refs, tx.order, tx.holds, tx.marks = tx.scopes[:0], tx.refs[:0], tx.order[:0], tx.holds[:0], tx.marks[:0]
	tx.counts = chunkCounts{}
}

// process takes the chunk spans out of a batch, and what came before for the parents in it out of the store. It reports whether nothing is
// left to send on.
func (tx *transaction) process(ctx context.Context, td ptrace.Traces) (emptied bool) {
	tx.now = tx.f.clock()
	before := tx.scan(td)
	tx.sortChunks()
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
		key := keyOf(found[i].Span)
		if ref := tx.refOf(&key); ref == nil || ref.span != found[i].Span || !ref.group.left {
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
				if len(tx.refs) == 0 {
					tx.groups.start(td.SpanCount())
				}
				if last == nil || last.Key != key {
					last = tx.group(&key, at, span, &c)
				}
				own := keyOf(span)
				tx.refs = append(tx.refs, chunkRef{
					span: span, group: last, instant: c.Instant, id: own.Parent, own: tx.f.store.Hash(&own),
					index: int32(last.size), scope: int32(at),
				})
				last.size++
				last.Batch.Totals.Add(&c)
			}
		}
	}
	return spans
}

// refOf returns the chunk span with these ids, the last of several; nil when there is none. Most batches never ask.
func (tx *transaction) refOf(key *fold.Key) *chunkRef {
	if len(tx.refs) == 0 {
		return nil
	}
	if !tx.indexed {
		tx.indexed = true
		tx.byID.start(len(tx.refs))
		for i := range tx.refs {
			ref := &tx.refs[i]
			key := ref.below()
			slot, _ := tx.findRef(ref.own, &key)
			slot.set(ref.own, i)
		}
	}
	if slot, ok := tx.findRef(tx.f.store.Hash(key), key); ok {
		return &tx.refs[slot.position()]
	}
	return nil
}

func (tx *transaction) findRef(hash uint64, key *fold.Key) (*hashSlot, bool) {
	return tx.byID.find(hash, func(at int) bool { return tx.refs[at].below() == *key })
}

// sortChunks gives each group its chunks. Chunk spans below chunk spans are left where they are: what they tell has been told.
func (tx *transaction) sortChunks() {
	tx.chunks = slices.Grow(tx.chunks[:0], len(tx.refs))[:len(tx.refs)]
	at := 0
	for _, g := range tx.order {
		g.Batch.Chunks = tx.chunks[at : at+g.size : at+g.size]
		at += g.size
	}
	for i := range tx.refs {
		ref := &tx.refs[i]
		ref.group.Batch.Chunks[ref.index] = fold.Chunk{Instant: ref.instant, ID: ref.id}
		slot, ok := tx.groups.find(ref.own, func(at int) bool { return tx.order[at].Key == ref.below() })
		if ok && !tx.order[slot.position()].nested {
			tx.order[slot.position()].nested = true
			tx.nested++
		}
	}
}

// groupOf returns the group of a key that is not nested; nil when there is none.
func (tx *transaction) groupOf(key *fold.Key) *chunkGroup {
	if len(tx.order) == tx.nested {
		return nil
	}
	slot, ok := tx.groups.find(tx.f.store.Hash(key), func(at int) bool { return tx.order[at].Key == *key })
	if !ok || tx.order[slot.position()].nested {
		return nil
	}
	return tx.order[slot.position()]
}

// group returns the group of a key, a new one when there is none.
func (tx *transaction) group(key *fold.Key, scope int, span ptrace.Span, c *dialect.ChunkSpan) *chunkGroup {
	hash := tx.f.store.Hash(key)
	slot, ok := tx.groups.find(hash, func(at int) bool { return tx.order[at].Key == *key })
	if ok {
		return tx.order[slot.position()]
	}
	slot.set(hash, len(tx.order))
	g := tx.nextGroup()
	g.Key, g.Hash, g.scope = *key, hash, scope
	g.Batch.Name, g.Batch.TraceState, g.Batch.Flags = c.ParentName(span.Name()), span.TraceState().AsRaw(), span.Flags()
	return g
}

// nextGroup appends an empty group to the order, one of an earlier batch if there is one.
func (tx *transaction) nextGroup() *chunkGroup {
	if n := len(tx.order); n < cap(tx.order) {
		tx.order = tx.order[:n+1]
		if g := tx.order[n]; g != nil {
			return g
		}
		tx.order = tx.order[:n]
	}
	g := &chunkGroup{}
	tx.order = append(tx.order, g)
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
			if len(tx.order) == tx.nested && store.Open() == 0 && !w.ok {
				continue
			}
			for _, span := range ss.Spans().All() {
				if next < len(tx.refs) && tx.refs[next].span == span {
					next++
					continue
				}
				key := keyOf(span)
				g := tx.groupOf(&key)
				open := store.Open() > 0 && store.Has(key)
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
		j.batch, g.join, g.fate = &g.Batch, j, fateJoin
		j.duplicate = j.stream != nil && j.stream.Knows(j.batch)
	}
	tx.joins.add(j)
}

// decide decides what becomes of the chunk spans whose parent is not in the batch.
func (tx *transaction) decide() {
	store := tx.f.store
	for _, h := range tx.holds {
		if g := tx.groupOf(&h.key); g != nil {
			g.fate = fateStore
		}
	}
	for _, g := range tx.order {
		if !g.nested && g.fate != fateJoin {
			tx.entries.Add(&g.Entry)
		}
	}
	store.Ask(&tx.entries, tx.now)
	for _, g := range tx.order {
		if g.nested || g.fate == fateJoin {
			continue
		}
		n := int64(g.size)
		if g.fate != fateStore && g.Gone {
			tx.counts.spans[spanLate] += n
			continue
		}
		g.whole = !g.Known && !g.Batch.Totals.Stream(int64(store.Limits().MinSpread))
		if g.whole && n > fold.MaxKept {
			tx.counts.spans[spanNoStream] += n
			g.fate = fateStay
			continue
		}
		g.fate = fateStore
		g.Wanted = true
		g.Batch.Origin = tx.origin(g.scope)
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
		n := int64(g.size)
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
		c := &g.Batch.Chunks[ref.index]
		c.Span, c.Origin = moved(ref.span), tx.origin(int(ref.scope))
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
	above := fold.Key{Trace: span.TraceID(), Parent: span.ParentSpanID()}
	if ref := tx.refOf(&above); ref != nil && ref.group.leaving() {
		span.SetParentSpanID(ref.group.Key.Parent)
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
	store.AddAll(&tx.entries, now)
	for _, g := range tx.order {
		if g.Duplicate {
			tx.counts.spans[spanDuplicate] += int64(g.size)
		}
		if g.Spilled != nil {
			spilled = append(spilled, g.Spilled)
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
