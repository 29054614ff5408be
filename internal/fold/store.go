// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Limits are the bounds of a Store.
type Limits struct {
	// Wait is how long a stream stays open after its last chunk span, and at least how long a parent that has gone is remembered.
	Wait time.Duration
	// ParentWait is how long a parent is held.
	ParentWait time.Duration
	// MaxStreams bounds the open streams, MaxChunks the instants kept of one.
	MaxStreams, MaxChunks int
	// MinSpread is the time over which body writes must spread to be a stream.
	MinSpread time.Duration
	// StallThreshold is the shortest gap that is a stall, for the chunks beyond MaxChunks.
	StallThreshold time.Duration
}

// keptBudget bounds the memory of whole chunk spans, over all streams: what most of them need is far less than 1 KiB.
func (l *Limits) keptBudget() int64 { return max(64<<20, int64(l.MaxStreams)*1024) }

// MaxKept bounds the whole chunk spans kept of one stream. No real stream writes that many before it shows that it is one; and what is a
// few bytes each here is a whole span again when it goes out.
const MaxKept = 4096

// shards is the number of parts of a Store with a lock of their own: many times the cores of a collector, so that they seldom meet.
const shards = 64

// Store holds the open streams. It is safe for concurrent use.
type Store struct {
	limits  Limits
	seed    [4]uint64
	origins origins
	streams atomic.Int64
	bytes   atomic.Int64 // of the streams
	kept    atomic.Int64 // of the whole chunk spans among them
	shards  [shards]shard
}

type shard struct {
	mu   sync.Mutex
	open openTable
	idle idle // streams without a parent
	held list // streams with one, first due first
	gone recent
	// oldest is no later than when the longest untouched stream was touched, to choose a shard by without its lock.
	oldest atomic.Int64
	_      [64]byte // shards that two cores work on shall not share a cache line
}

// list is a doubly linked list through the streams.
type list struct{ first, last *Stream }

func (l *list) push(s *Stream) {
	s.list, s.prev, s.next = l, l.last, nil
	if l.last != nil {
		l.last.next = s
	} else {
		l.first = s
	}
	l.last = s
}

func (s *Stream) unlink() {
	l := s.list
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		l.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		l.last = s.prev
	}
	s.list, s.prev, s.next, s.marked = nil, nil, nil, false
}

// NewStore returns an empty Store.
func NewStore(limits Limits) *Store {
	s := &Store{limits: limits, origins: origins{byProto: map[string]*Origin{}}}
	for i := range s.seed {
		s.seed[i] = rand.Uint64()
	}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.open = newOpenTable(minSlots)
		// The whole store remembers about as many parents as it may have streams.
		sh.gone = recent{period: int64(limits.Wait), limit: max(64, limits.MaxStreams/shards)}
		sh.oldest.Store(math.MaxInt64)
	}
	return s
}

// Limits returns the bounds.
func (s *Store) Limits() *Limits { return &s.limits }

// Origin returns the shared resource and scope of spans. The caller releases it.
func (s *Store) Origin(rs ptrace.ResourceSpans, ss ptrace.ScopeSpans) *Origin {
	return s.origins.of(rs, ss)
}

// Hash returns what the store finds a key by, and what it remembers one by that has gone: 64 bits that hang on a seed of the process, so
// that two keys meet once in ages and not at the will of a sender. It is wyhash's step, which Go's maps use on machines without AES
// instructions, with every word of the seed a secret; for keys of this length it takes a fourth of the time of hash/maphash.
func (s *Store) Hash(k *Key) uint64 {
	hi, lo := bits.Mul64(binary.LittleEndian.Uint64(k.Trace[:])^s.seed[0], binary.LittleEndian.Uint64(k.Trace[8:])^s.seed[1])
	hi, lo = bits.Mul64(hi^lo^s.seed[2], binary.LittleEndian.Uint64(k.Parent[:])^s.seed[3])
	return hi ^ lo
}

// lock returns the shard of a key, locked, and the hash of the key.
func (s *Store) lock(k *Key) (*shard, uint64) {
	h := s.Hash(k)
	sh := &s.shards[h%shards]
	sh.mu.Lock()
	return sh, h
}

// Open returns the number of open streams.
func (s *Store) Open() int64 { return s.streams.Load() }

// Bytes estimates the memory that the store holds.
func (s *Store) Bytes() int64 {
	n := s.bytes.Load() + s.origins.size()
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		n += sh.gone.bytes()
		sh.mu.Unlock()
	}
	return n
}

// Full reports whether streams must leave before new ones may come.
func (s *Store) Full() bool {
	return s.streams.Load() > int64(s.limits.MaxStreams) || s.kept.Load() > s.limits.keptBudget()
}

// Has reports whether a stream is open.
func (s *Store) Has(k Key) bool {
	sh, h := s.lock(&k)
	defer sh.mu.Unlock()
	return sh.open.get(h, &k) != nil
}

// Gone reports whether the parent of a stream has been there and left.
func (s *Store) Gone(k Key, now int64) bool {
	sh, h := s.lock(&k)
	defer sh.mu.Unlock()
	return sh.gone.has(h, now)
}

// Take removes a stream for its parent, which leaves now: nil when none is open. The parent is remembered as gone when a stream was open
// or mark is set.
func (s *Store) Take(k Key, mark bool, now int64) *Stream {
	sh, h := s.lock(&k)
	defer sh.mu.Unlock()
	st := sh.open.get(h, &k)
	if st != nil {
		s.remove(sh, h, st)
	}
	if st != nil || mark {
		sh.gone.add(h, now)
	}
	return st
}

// Untake undoes a Take: st is what it returned, nil included.
func (s *Store) Untake(k Key, st *Stream) {
	if st != nil {
		s.Return(st)
		return
	}
	sh, h := s.lock(&k)
	defer sh.mu.Unlock()
	sh.gone.remove(h)
}

// Add takes in the chunk spans of one stream in one batch. duplicate means that the same chunk spans came before, and that they are not
// counted again. spilled is a stream that must go out at once because whole chunk spans take too much memory.
func (s *Store) Add(k Key, b *Batch, now int64) (duplicate bool, spilled *Stream) {
	sh, h := s.lock(&k)
	defer sh.mu.Unlock()
	return s.add(sh, h, s.stream(sh, h, &k, now), b, now)
}

func (s *Store) add(sh *shard, h uint64, st *Stream, b *Batch, now int64) (duplicate bool, spilled *Stream) {
	fingerprint := b.fingerprint()
	if len(b.Chunks) > 0 && st.knows(fingerprint) {
		duplicate = true
	} else if st.add(b, fingerprint, &s.limits) {
		s.resize(st)
	}
	st.touched, st.marked = now, true
	if st.list == nil {
		sh.idle.push(st)
	}
	if !st.folded && (st.keptN() > MaxKept || st.kept != nil && s.kept.Load() > s.limits.keptBudget()) {
		s.remove(sh, h, st)
		sh.gone.add(h, now)
		return duplicate, st
	}
	return duplicate, nil
}

// Hold takes in a parent, which is held until it is due.
func (s *Store) Hold(k Key, span ptrace.Span, origin *Origin, now int64) {
	sh, h := s.lock(&k)
	defer sh.mu.Unlock()
	st := s.stream(sh, h, &k, now)
	st.Parents = append(st.Parents, Held{Span: span, Origin: origin.keep(), size: spanSize(span)})
	if len(st.Parents) == 1 {
		st.touched, st.due = now, now+int64(s.limits.ParentWait)
		if st.list != nil {
			st.unlink()
		}
		sh.held.push(st)
	}
	s.resize(st)
}

// stream returns the open stream of a key, a new one when there is none.
func (s *Store) stream(sh *shard, h uint64, k *Key, now int64) *Stream {
	st := sh.open.get(h, k)
	if st == nil {
		st = &Stream{Key: *k, touched: now, late: sh.gone.has(h, now)}
		sh.put(h, st)
		s.streams.Add(1)
		s.resize(st)
	}
	return st
}

// put adds a stream that is going to be in one of the lists.
func (sh *shard) put(h uint64, st *Stream) {
	sh.open.put(h, st)
	if st.touched < sh.oldest.Load() {
		sh.oldest.Store(st.touched)
	}
}

// resize brings the sums up to date.
func (s *Store) resize(st *Stream) {
	size, kept := st.bytes(), st.keptSize()
	s.bytes.Add(size - st.size)
	s.kept.Add(kept - st.countedKept)
	st.size, st.countedKept = size, kept
}

func (s *Store) remove(sh *shard, h uint64, st *Stream) {
	sh.open.remove(h, st)
	if st.list != nil {
		st.unlink()
	}
	s.streams.Add(-1)
	s.bytes.Add(-st.size)
	s.kept.Add(-st.countedKept)
	st.size, st.countedKept = 0, 0
}

// Due removes and returns up to limit streams that have waited long enough: for their parent, or with it for chunk spans.
func (s *Store) Due(now int64, limit int) []*Stream {
	return s.collect(limit, now, func(sh *shard) *Stream {
		if st := sh.held.first; st != nil && st.due <= now {
			return st
		}
		return sh.idle.oldest(now - int64(s.limits.Wait))
	})
}

// All removes and returns up to limit streams.
func (s *Store) All(now int64, limit int) []*Stream {
	return s.collect(limit, now, func(sh *shard) *Stream {
		if sh.held.first != nil {
			return sh.held.first
		}
		return sh.idle.any()
	})
}

func (s *Store) collect(limit int, now int64, next func(*shard) *Stream) []*Stream {
	var out []*Stream
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for len(out) < limit {
			st := next(sh)
			if st == nil {
				break
			}
			s.pop(sh, st, now)
			out = append(out, st)
		}
		sh.mu.Unlock()
	}
	return out
}

// pop removes a stream that goes out by itself.
func (s *Store) pop(sh *shard, st *Stream, now int64) {
	h := s.Hash(&st.Key)
	s.remove(sh, h, st)
	if len(st.Parents) > 0 {
		sh.gone.add(h, now)
	}
}

// Oldest removes and returns the stream that has been idle the longest; nil when none is open.
func (s *Store) Oldest(now int64) *Stream {
	for {
		at, bound := 0, int64(math.MaxInt64)
		for i := range s.shards {
			if t := s.shards[i].oldest.Load(); t < bound {
				at, bound = i, t
			}
		}
		if bound == math.MaxInt64 {
			return nil
		}
		if st := s.oldestOf(&s.shards[at], bound, now); st != nil {
			return st
		}
	}
}

// oldestOf removes and returns the longest idle stream of a shard if it was touched no later than bound. Otherwise the shard says no more
// that it had such a stream.
func (s *Store) oldestOf(sh *shard, bound, now int64) *Stream {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	st := sh.idle.oldest(bound)
	if h := sh.held.first; h != nil && h.touched <= bound && (st == nil || h.touched < st.touched) {
		st = h
	}
	if st != nil {
		s.pop(sh, st, now)
	}
	sh.publish()
	return st
}

// publish raises oldest as far as is known without sorting. That it falls is for put to say.
func (sh *shard) publish() {
	oldest := sh.idle.bound()
	if sh.held.first != nil {
		oldest = min(oldest, sh.held.first.touched)
	}
	sh.oldest.Store(oldest)
}

// Return puts back a stream that was removed and could not be sent. Chunk spans that came meanwhile join it.
func (s *Store) Return(st *Stream) {
	sh, h := s.lock(&st.Key)
	defer sh.mu.Unlock()
	sh.gone.remove(h)
	st.late = false
	if other := sh.open.get(h, &st.Key); other != nil {
		s.remove(sh, h, other)
		st.join(other, &s.limits)
	}
	sh.put(h, st)
	s.streams.Add(1)
	s.resize(st)
	if len(st.Parents) > 0 {
		sh.held.insert(st, func(s *Stream) int64 { return s.due })
	} else {
		sh.idle.insert(st)
	}
}

// insert puts a stream where a list in ascending order of by has it.
func (l *list) insert(s *Stream, by func(*Stream) int64) {
	if at := l.first; at != nil && by(s) <= by(at) {
		s.list, s.prev, s.next = l, nil, at
		at.prev, l.first = s, s
		return
	}
	at := l.last
	for at != nil && by(at) > by(s) {
		at = at.prev
	}
	if at == nil || at.next == nil {
		l.push(s)
		return
	}
	s.list, s.prev, s.next = l, at, at.next
	at.next.prev, at.next = s, s
}
