// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
)

const (
	second = int64(time.Second)
	epoch  = int64(1_764_000_000) * int64(time.Second)
)

func limits() Limits {
	return Limits{
		Wait: 30 * time.Second, ParentWait: 5 * time.Second, MaxStreams: 100, MaxChunks: 1000,
		MinSpread: 100 * time.Millisecond, StallThreshold: time.Second,
	}
}

func key(n int) (k Key) {
	binary.BigEndian.PutUint64(k.Trace[8:], uint64(n+1))
	k.Parent = pcommon.SpanID{1}
	return k
}

var table = func() *dialect.Table {
	t, err := dialect.Compile(dialect.Vocabulary{})
	if err != nil {
		panic(err)
	}
	return t
}()

// export builds an export with chunk spans of SGLang at these offsets from the epoch.
func export(k Key, firstID int, offsets ...time.Duration) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "sglang")
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("sglang server")
	for i, at := range offsets {
		s := ss.Spans().AppendEmpty()
		s.SetTraceID(k.Trace)
		s.SetParentSpanID(k.Parent)
		var id pcommon.SpanID
		binary.BigEndian.PutUint64(id[:], uint64(firstID+i))
		s.SetSpanID(id)
		s.SetName("decode_loop")
		s.SetStartTimestamp(pcommon.Timestamp(epoch + int64(at)))
		s.SetEndTimestamp(s.StartTimestamp() + 1000)
	}
	return td
}

// batch reads an export as the processor does.
func batch(t testing.TB, s *Store, td ptrace.Traces) *Batch {
	t.Helper()
	rs := td.ResourceSpans().At(0)
	ss := rs.ScopeSpans().At(0)
	o := s.Origin(rs, ss)
	t.Cleanup(o.Release)
	b := &Batch{Name: "decode_loop", Origin: o}
	for _, span := range ss.Spans().All() {
		c, _, ok := table.ChunkSpan(ss.Scope().Name(), span)
		require.True(t, ok)
		own := ptrace.NewSpan()
		span.CopyTo(own)
		b.Totals.Add(&c)
		b.Chunks = append(b.Chunks, Chunk{Instant: c.Instant, ID: span.SpanID(), Span: own, Origin: o})
	}
	return b
}

func add(t testing.TB, s *Store, k Key, now int64, firstID int, offsets ...time.Duration) bool {
	t.Helper()
	duplicate, spilled := s.Add(k, batch(t, s, export(k, firstID, offsets...)), now)
	require.Nil(t, spilled)
	return duplicate
}

func TestInstants(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	extremes := []int64{math.MinInt64, -1, 0, 1, math.MaxInt64}
	for range 200 {
		var s instants
		var want []int64
		for range rng.IntN(50) {
			at := epoch + rng.Int64N(second)
			if rng.IntN(4) == 0 {
				at = extremes[rng.IntN(len(extremes))]
			}
			s.add(at)
			want = append(want, at)
		}
		require.Equal(t, want, s.appendTo(nil))
		require.Equal(t, len(want), s.n)
		require.LessOrEqual(t, len(s.coded)+int(s.used), 10*len(want))
	}
}

// TestInstantsAreSmall: what memory is planned with.
func TestInstantsAreSmall(t *testing.T) {
	var s instants
	at := epoch
	for range 1000 {
		at += 30 * int64(time.Millisecond)
		s.add(at)
	}
	// 30 ms are 3·10^7 ns, with the sign 26 bits: four groups of seven. The first instant has 61 bits and takes nine.
	assert.Equal(t, 999*4+9, len(s.coded)+int(s.used))
}

func TestKeptSpansComeBackAsTheyCame(t *testing.T) {
	s := NewStore(limits())
	k := key(1)
	td := export(k, 1, 0, 40*time.Millisecond, 10*time.Millisecond)
	ss := td.ResourceSpans().At(0).ScopeSpans().At(0)
	odd := ss.Spans().AppendEmpty()
	ss.Spans().At(0).CopyTo(odd)
	odd.SetSpanID(pcommon.SpanID{9})
	odd.SetStartTimestamp(1)
	odd.SetEndTimestamp(math.MaxInt64)
	for i, change := range []func(ptrace.Span){
		func(s ptrace.Span) { s.SetName("other") },
		func(s ptrace.Span) { s.SetFlags(1) },
		func(s ptrace.Span) { s.TraceState().FromRaw("a=b") },
		func(s ptrace.Span) { s.Status().SetMessage("m") },
		func(s ptrace.Span) { s.Attributes().PutInt("n", 1) },
		func(s ptrace.Span) { s.Attributes().PutInt("n", 1) },
		func(s ptrace.Span) { s.Attributes().PutStr("n", "1") },
		func(s ptrace.Span) { s.Events().AppendEmpty().SetName("e") },
		func(s ptrace.Span) { s.Links().AppendEmpty() },
		func(s ptrace.Span) { s.SetDroppedAttributesCount(1) },
	} {
		span := ss.Spans().AppendEmpty()
		ss.Spans().At(0).CopyTo(span)
		span.SetSpanID(pcommon.SpanID{10, byte(i)})
		change(span)
	}
	o := s.Origin(td.ResourceSpans().At(0), ss)
	st := Stream{Key: k}
	for _, span := range ss.Spans().All() {
		own := ptrace.NewSpan()
		span.CopyTo(own)
		st.keep(o, own)
	}
	assert.Less(t, len(st.kept.kinds), ss.Spans().Len(), "alike ones share")
	assert.Equal(t, ss.Spans().Len(), st.Kept())

	out := ptrace.NewTraces()
	var spans *ptrace.SpanSlice
	st.AppendKept(func(from *Origin) ptrace.SpanSlice {
		require.Same(t, o, from)
		if spans == nil {
			slice := from.Spans(out)
			spans = &slice
		}
		return *spans
	})
	byID := func(td ptrace.Traces) map[string]ptrace.Span {
		m := map[string]ptrace.Span{}
		for _, span := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
			m[span.SpanID().String()] = span
		}
		return m
	}
	marshal := func(span ptrace.Span) string {
		one := ptrace.NewTraces()
		span.CopyTo(one.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty())
		raw, err := (&ptrace.JSONMarshaler{}).MarshalTraces(one)
		require.NoError(t, err)
		return string(raw)
	}
	want, got := byID(td), byID(out)
	require.Len(t, got, len(want))
	for id := range want {
		assert.Equal(t, marshal(want[id]), marshal(got[id]))
	}
	assert.Equal(t, td.ResourceSpans().At(0).Resource().Attributes().AsRaw(), out.ResourceSpans().At(0).Resource().Attributes().AsRaw())
	st.Release()
	o.Release()
	assert.Empty(t, s.origins.byProto)
	assert.Zero(t, s.origins.size())
}

func TestAttributesAreComparedInOrder(t *testing.T) {
	build := func(keys ...string) pcommon.Map {
		// The wire allows what PutStr does not: a key twice.
		m := pcommon.NewMap()
		for i, k := range keys {
			m.PutStr(fmt.Sprint(k, i), "v")
		}
		return m
	}
	assert.True(t, sameAttributes(build("a", "b"), build("a", "b")))
	assert.False(t, sameAttributes(build("a", "b"), build("b", "a")))
	assert.False(t, sameAttributes(build("a"), build("a", "b")))
	assert.True(t, sameAttributes(build(), build()))
}

func TestOriginsAreShared(t *testing.T) {
	s := NewStore(limits())
	a, b := export(key(1), 1, 0), export(key(2), 1, 0)
	other := export(key(3), 1, 0)
	other.ResourceSpans().At(0).SetSchemaUrl("https://opentelemetry.io/schemas/1.9.0")
	of := func(td ptrace.Traces) *Origin {
		return s.Origin(td.ResourceSpans().At(0), td.ResourceSpans().At(0).ScopeSpans().At(0))
	}
	o1, o2, o3 := of(a), of(b), of(other)
	assert.Same(t, o1, o2)
	assert.NotSame(t, o1, o3)
	o1.Release()
	assert.Len(t, s.origins.byProto, 2)
	o2.Release()
	o3.Release()
	assert.Empty(t, s.origins.byProto)
	assert.NotNil(t, of(a), "and again")
}

func TestIdleStreamsAreDue(t *testing.T) {
	s := NewStore(limits())
	add(t, s, key(1), 0, 1, 0, time.Second)
	add(t, s, key(2), 5*second, 1, 0, time.Second)
	add(t, s, key(1), 10*second, 3, 2*time.Second) // still alive
	assert.Empty(t, s.Due(34*second, 10))
	due := s.Due(35*second, 10)
	require.Len(t, due, 1)
	assert.Equal(t, key(2), due[0].Key)
	due = s.Due(40*second, 10)
	require.Len(t, due, 1)
	assert.Equal(t, key(1), due[0].Key)
	assert.Equal(t, int64(3), due[0].Totals.Seen)
	assert.Zero(t, s.Open())
	assert.Zero(t, s.bytes.Load())
	assert.False(t, s.Gone(key(1), 40*second), "no parent was seen")
}

func TestParentsAreHeldForTheirTime(t *testing.T) {
	s := NewStore(limits())
	hold := func(n int, now int64) {
		td := export(key(n), 1, 0)
		o := s.Origin(td.ResourceSpans().At(0), td.ResourceSpans().At(0).ScopeSpans().At(0))
		s.Hold(key(n), ptrace.NewSpan(), o, now)
		o.Release()
	}
	hold(1, 0)
	add(t, s, key(2), second, 1, 0)
	hold(2, 2*second)
	add(t, s, key(1), 3*second, 1, 0) // does not prolong it
	hold(1, 4*second)                 // the same ids again
	require.Equal(t, int64(2), s.Open())
	assert.Empty(t, s.Due(5*second-1, 10))
	due := s.Due(5*second, 10)
	require.Len(t, due, 1)
	assert.Len(t, due[0].Parents, 2)
	assert.True(t, s.Gone(key(1), 5*second))
	s.Return(due[0])
	assert.False(t, s.Gone(key(1), 5*second))
	again := s.Due(7*second, 10)
	require.Len(t, again, 2)
	for _, st := range again {
		st.Release()
	}
}

func TestGoneIsRememberedForAWhile(t *testing.T) {
	r := recent{period: 10, limit: 3}
	r.add(1, 100)
	assert.True(t, r.has(1, 109))
	assert.True(t, r.has(1, 115), "at least one period")
	assert.False(t, r.has(1, 200), "and not for ever")
	for i := range uint64(20) {
		r.add(i, 200)
	}
	assert.True(t, r.has(19, 200))
	assert.False(t, r.has(1, 200))
	assert.LessOrEqual(t, len(r.young)+len(r.old), 6, "bounded whatever the rate")
	r.remove(19)
	assert.False(t, r.has(19, 200))
}

// TestReturnJoinsWhatCameMeanwhile: in whatever order parts of a stream leave and come back, nothing is lost or counted twice.
func TestReturnJoinsWhatCameMeanwhile(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 3))
		s := NewStore(limits())
		var want []int64
		var away []*Stream
		id := 1
		for range 20 {
			switch rng.IntN(3) {
			case 0:
				if st := s.Take(key(1), true, 0); st != nil {
					away = append(away, st)
				}
			case 1:
				if len(away) > 0 {
					s.Return(away[0])
					away = away[1:]
				}
			default:
				var offsets []time.Duration
				for range 1 + rng.IntN(3) {
					at := time.Duration(rng.Int64N(second))
					offsets = append(offsets, at)
					want = append(want, epoch+int64(at))
				}
				add(t, s, key(1), 0, id, offsets...)
				id += len(offsets)
			}
		}
		for _, st := range away {
			s.Return(st)
		}
		st := s.Take(key(1), false, 0)
		if len(want) == 0 {
			require.Nil(t, st)
			continue
		}
		got, beyond := st.View(nil, 0, 0)
		slices.Sort(got)
		slices.Sort(want)
		require.Equal(t, want, got)
		require.Nil(t, beyond)
		require.Equal(t, int64(len(want)), st.Totals.Seen)
		require.Equal(t, len(want) >= 2, st.Folded())
		if !st.Folded() {
			require.Equal(t, 1, st.Kept())
		}
		st.Release()
		require.Zero(t, s.bytes.Load())
		require.Zero(t, s.kept.Load())
	}
}

// TestReturnKeepsTheOrder: streams that come back stand where they stood, so that those behind them are not held up.
func TestReturnKeepsTheOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	var l list
	all := make([]*Stream, 50)
	for i := range all {
		all[i] = &Stream{touched: int64(i / 2)}
		l.push(all[i])
	}
	for range 300 {
		st := all[rng.IntN(len(all))]
		st.unlink()
		l.insert(st, func(s *Stream) int64 { return s.touched })
		n, last := 0, int64(-1)
		for at := l.first; at != nil; at = at.next {
			require.GreaterOrEqual(t, at.touched, last)
			require.True(t, at.next != nil || at == l.last)
			last = at.touched
			n++
		}
		require.Equal(t, len(all), n)
	}
}

func TestChunksBeyondTheBound(t *testing.T) {
	l := limits()
	l.MaxChunks = 10
	s := NewStore(l)
	k := key(1)
	for i := range 30 {
		add(t, s, k, 0, i+1, time.Duration(i)*time.Second)
		h := s.Hash(&k)
		require.Equal(t, s.shards[h%shards].open.get(h, &k).bytes(), s.bytes.Load())
	}
	st := s.Take(key(1), false, 0)
	with := batch(t, s, export(key(1), 100, 30*time.Second, 31*time.Second))
	at, beyond := st.View(with, l.MaxChunks, l.StallThreshold)
	require.Len(t, at, 10)
	assert.Equal(t, int64(22), beyond.Chunks)
	assert.Equal(t, int64(22), beyond.Gaps.Count())
	assert.Equal(t, epoch+31*second, beyond.Last)
	// The view is one: the stream is as before.
	at, beyond = st.View(nil, 0, 0)
	require.Len(t, at, 10)
	assert.Equal(t, int64(20), beyond.Chunks)
}

func TestFingerprintIgnoresTheOrder(t *testing.T) {
	s := NewStore(limits())
	assert.False(t, add(t, s, key(1), 0, 1, 0, 1, 2))
	assert.True(t, add(t, s, key(1), 0, 1, 0, 1, 2))
	assert.False(t, add(t, s, key(1), 0, 1, 0, 1), "a part is another request")
	assert.False(t, add(t, s, key(1), 0, 1, 0, 1, 3), "the same ids at other times too")
	b := batch(t, s, export(key(1), 1, 0, 1, 2))
	slices.Reverse(b.Chunks)
	duplicate, _ := s.Add(key(1), b, 0)
	assert.True(t, duplicate)
}

// TestAHeldParentIsAsOldAsItsLatestChunkSpan: that chunk spans came since it was held is no reason to send it before a stream that is idle.
func TestAHeldParentIsAsOldAsItsLatestChunkSpan(t *testing.T) {
	for n := range 20 { // in the same shard or in another
		s := NewStore(limits())
		td := export(key(n), 1, 0)
		o := s.Origin(td.ResourceSpans().At(0), td.ResourceSpans().At(0).ScopeSpans().At(0))
		s.Hold(key(n), ptrace.NewSpan(), o, 1)
		o.Release()
		add(t, s, key(100), 2, 1, 0, time.Second)
		add(t, s, key(n), 3, 1, 0, time.Second)
		require.Equal(t, key(100), s.Oldest(4).Key)
		require.Equal(t, key(n), s.Oldest(4).Key)
		require.Nil(t, s.Oldest(4))
	}
}

func TestOldestAcrossShards(t *testing.T) {
	s := NewStore(limits())
	order := rand.New(rand.NewPCG(8, 8)).Perm(40)
	for at, n := range order {
		add(t, s, key(n), int64(at), 1, 0, time.Second)
	}
	for _, n := range order {
		st := s.Oldest(100)
		require.Equal(t, key(n), st.Key)
		st.Release()
	}
	assert.Nil(t, s.Oldest(100))
}

// TestStoreIsSafeForConcurrentUse: on few keys, so that streams leave, come back and open again between the two steps of a batch.
func TestStoreIsSafeForConcurrentUse(t *testing.T) {
	const keys = 20
	s := NewStore(limits())
	var wg sync.WaitGroup
	var came, left, clock atomic.Int64
	leave := func(streams ...*Stream) {
		for _, st := range streams {
			if st != nil {
				left.Add(st.Totals.Seen)
				st.Release()
			}
		}
	}
	for w := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 7))
			var entries Entries
			for i := range 1_000 {
				now := clock.Add(rng.Int64N(second / 10))
				k := key(rng.IntN(keys))
				switch rng.IntN(8) {
				case 0:
					leave(s.Take(k, true, now))
				case 1:
					s.Untake(k, s.Take(k, true, now))
				case 2:
					leave(s.Oldest(now))
				case 3:
					leave(s.Due(now, 3)...)
				case 4:
					for _, st := range s.All(now, 3) {
						s.Return(st)
					}
				case 5:
					td := export(k, 1, 0)
					o := s.Origin(td.ResourceSpans().At(0), td.ResourceSpans().At(0).ScopeSpans().At(0))
					s.Hold(k, ptrace.NewSpan(), o, now)
					o.Release()
				default:
					entries.Reset()
					for _, n := range rng.Perm(keys)[:rng.IntN(keys)] {
						e := Entry{Key: key(n), Wanted: true}
						e.Hash = s.Hash(&e.Key)
						e.Batch = *batch(t, s, export(e.Key, w*1_000_000+i*10+1, time.Duration(i), time.Duration(i+1)))
						entries.Add(&e)
					}
					s.Ask(&entries, now)
					runtime.Gosched()
					s.AddAll(&entries, now)
					came.Add(2 * int64(len(entries.list)))
				}
				s.Bytes()
			}
		})
	}
	wg.Wait()
	leave(s.All(0, keys)...)
	assert.Equal(t, came.Load(), left.Load(), "every chunk span came out once")
	assert.Zero(t, s.Open())
	assert.Zero(t, s.bytes.Load())
	assert.Zero(t, s.kept.Load())
}

// TestAParentThatCameMeanwhileIsHeldForItsTime: a stream that could not be sent comes back to one that a parent is held for by now.
func TestAParentThatCameMeanwhileIsHeldForItsTime(t *testing.T) {
	s := NewStore(limits())
	add(t, s, key(1), 0, 1, 0, time.Second)
	away := s.Due(30*second, 1)
	require.Len(t, away, 1)
	td := export(key(1), 1, 0)
	o := s.Origin(td.ResourceSpans().At(0), td.ResourceSpans().At(0).ScopeSpans().At(0))
	s.Hold(key(1), ptrace.NewSpan(), o, 31*second)
	o.Release()
	s.Return(away[0])
	assert.Empty(t, s.Due(36*second-1, 10))
	due := s.Due(36*second, 10)
	require.Len(t, due, 1)
	assert.Len(t, due[0].Parents, 1)
	assert.Equal(t, int64(2), due[0].Totals.Seen)
	due[0].Release()
}

// TestBatchesThatCameMeanwhileAreForgottenOldestFirst: of the five batches that came while a stream was away, the first is forgotten then, the
// second when another comes.
func TestBatchesThatCameMeanwhileAreForgottenOldestFirst(t *testing.T) {
	s := NewStore(limits())
	add(t, s, key(1), 0, 1, 0, time.Second)
	away := s.Take(key(1), false, 0)
	for id := 11; id <= 15; id++ {
		add(t, s, key(1), 0, id, 0)
	}
	s.Return(away)
	assert.False(t, add(t, s, key(1), 0, 16, 0))
	for id := 13; id <= 16; id++ {
		assert.True(t, add(t, s, key(1), 0, id, 0), "batch %d", id)
	}
	assert.False(t, add(t, s, key(1), 0, 12, 0))
}

// TestNoBatchHasTheFingerprintOfNone: an id can be chosen so that the sum is what stands for no batch. It is not what came before.
func TestNoBatchHasTheFingerprintOfNone(t *testing.T) {
	s := NewStore(limits())
	b := batch(t, s, export(key(1), 1, 0))
	const zero = -0x9e3779b97f4a7c15 & math.MaxUint64 // mix(zero) is 0
	require.Zero(t, mix(zero))
	binary.BigEndian.PutUint64(b.Chunks[0].ID[:], zero^mix(uint64(b.Chunks[0].Instant)))
	duplicate, _ := s.Add(key(1), b, 0)
	assert.False(t, duplicate)
	duplicate, _ = s.Add(key(1), b, 0)
	assert.True(t, duplicate)
	assert.Equal(t, int64(1), s.Take(key(1), false, 0).Totals.Seen)
}
