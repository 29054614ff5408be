// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// TestOpenTableAgreesWithAMap: with few hashes, so that streams crowd on some slots, wrap around the end and share hashes.
func TestOpenTableAgreesWithAMap(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		table, want := newOpenTable(minSlots), map[Key]*Stream{}
		hash := func(n int) uint64 { return uint64(n%7) * 0xffff_ffff_ffff_ffff / 6 } // 0 and the greatest among them
		if seed%2 == 0 {
			hash = func(n int) uint64 { return mix(uint64(n)) }
		}
		for range 3_000 {
			n := rng.IntN(60)
			k := key(n)
			require.Same(t, want[k], table.get(hash(n), &k))
			switch st := want[k]; {
			case st == nil:
				st = &Stream{Key: k}
				table.put(hash(n), st)
				want[k] = st
			case rng.IntN(3) > 0:
				table.remove(hash(n), st)
				delete(want, k)
			}
		}
		require.Equal(t, len(want), table.n)
		require.LessOrEqual(t, len(table.slots), 128, "60 streams need 80 slots")
		var es []*Entry
		for n := range 60 {
			es = append(es, &Entry{Key: key(n), Hash: hash(n)})
		}
		table.find(es)
		for _, e := range es {
			require.Same(t, want[e.Key], e.found)
		}
	}
}

// byTouch is the simple form of idle: a list in the order of the latest chunk spans, kept at each of them.
type byTouch []*Stream

func (l *byTouch) put(st *Stream) {
	at := len(*l)
	for at > 0 && (*l)[at-1].touched > st.touched {
		at--
	}
	*l = slices.Insert(*l, at, st)
}

func (l *byTouch) remove(st *Stream) {
	at := slices.Index(*l, st)
	*l = slices.Delete(*l, at, at+1)
}

// TestIdleAgreesWithASortedList: whatever comes, is touched, leaves and comes back, the longest idle stream is the same.
func TestIdleAgreesWithASortedList(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var q idle
		var want byTouch
		var away []*Stream
		now := int64(0)
		for range 1_000 {
			now++
			switch action := rng.IntN(10); {
			case action < 2:
				st := &Stream{touched: now}
				q.push(st)
				want.put(st)
			case action < 6 && len(want) > 0:
				st := want[rng.IntN(len(want))]
				want.remove(st)
				st.touched, st.marked = now, true
				want.put(st)
			case action < 7 && len(want) > 0:
				st := want[rng.IntN(len(want))]
				st.unlink()
				want.remove(st)
				away = append(away, st)
			case action < 8 && len(away) > 0:
				at := rng.IntN(len(away))
				q.insert(away[at])
				want.put(away[at])
				away = slices.Delete(away, at, at+1)
			default:
				until := now - rng.Int64N(50)
				got := q.oldest(until)
				if len(want) == 0 || want[0].touched > until {
					require.Nil(t, got)
					break
				}
				require.Same(t, want[0], got)
				if rng.IntN(2) == 0 {
					got.unlink()
					want.remove(got)
				}
			}
			if len(want) > 0 {
				require.LessOrEqual(t, q.bound(), want[0].touched)
				require.NotNil(t, q.any())
			} else {
				require.Nil(t, q.any())
			}
		}
	}
}

// TestOldestIsTheLongestIdle: across the shards, with streams that are touched, taken and put back in between.
func TestOldestIsTheLongestIdle(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	s := NewStore(limits())
	touched := map[Key]int64{}
	id := 1
	for now := int64(1); now < 5_000; now++ {
		k := key(rng.IntN(80))
		switch rng.IntN(6) {
		case 0:
			st := s.Oldest(now)
			if len(touched) == 0 {
				require.Nil(t, st)
				break
			}
			for _, at := range touched {
				require.LessOrEqual(t, touched[st.Key], at)
			}
			if rng.IntN(3) == 0 {
				s.Return(st)
				break
			}
			delete(touched, st.Key)
			st.Release()
		case 1:
			if st := s.Take(k, false, now); st != nil {
				delete(touched, k)
				st.Release()
			}
		default:
			add(t, s, k, now, id, 0)
			id++
			touched[k] = now
		}
		require.Equal(t, int64(len(touched)), s.Open())
	}
}

// TestEntriesAreAnsweredAndAddedLikeOneByOne: two stores, of which one is asked for all streams of a batch together.
func TestEntriesAreAnsweredAndAddedLikeOneByOne(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 10))
	together, single := NewStore(limits()), NewStore(limits())
	var entries Entries
	for now := range int64(300) {
		entries.Reset()
		var all []*Entry
		for _, n := range rng.Perm(300)[:rng.IntN(200)] {
			k := key(n)
			e := &Entry{Key: k, Hash: together.Hash(&k), Wanted: rng.IntN(4) > 0}
			e.Batch = *batch(t, together, export(k, rng.IntN(20)+1, 0, time.Second))
			all = append(all, e)
			entries.Add(e)
		}
		together.Ask(&entries, now)
		for _, e := range all {
			require.Equal(t, single.Gone(e.Key, now), e.Gone)
			require.Equal(t, single.Has(e.Key), e.Known, "every batch shows that it is of a stream")
		}
		for _, n := range rng.Perm(300)[:30] { // between the two, as parents in other batches do
			a, b := together.Take(key(n), rng.IntN(2) == 0, now), single.Take(key(n), false, now)
			require.Equal(t, b == nil, a == nil)
			if a != nil && n%2 == 0 {
				together.Return(a)
				single.Return(b)
			}
			if a == nil {
				together.Untake(key(n), nil)
				single.Untake(key(n), nil)
			}
		}
		together.AddAll(&entries, now)
		for _, e := range all {
			if !e.Wanted {
				continue
			}
			duplicate, spilled := single.Add(e.Key, batch(t, single, exportOf(e)), now)
			require.Equal(t, duplicate, e.Duplicate)
			require.Nil(t, spilled)
			require.Nil(t, e.Spilled)
		}
		require.Equal(t, single.Open(), together.Open())
		require.Equal(t, single.bytes.Load(), together.bytes.Load())
	}
	for range together.Open() {
		require.Equal(t, single.Oldest(1_000).touched, together.Oldest(1_000).touched)
	}
}

func exportOf(e *Entry) ptrace.Traces {
	return export(e.Key, int(binary.BigEndian.Uint64(e.Batch.Chunks[0].ID[:])), 0, time.Second)
}

// TestAStreamOpenedAfterItsParentLeftStaysLate: a chunk span that was decided on before the parent came opens a stream after it has gone;
// those behind it are late all the same, until the parent is forgotten.
func TestAStreamOpenedAfterItsParentLeftStaysLate(t *testing.T) {
	s := NewStore(limits())
	k := key(1)
	gone := func(now int64) bool {
		var entries Entries
		e := Entry{Key: k, Hash: s.Hash(&k)}
		entries.Add(&e)
		s.Ask(&entries, now)
		return e.Gone
	}
	add(t, s, k, 0, 1, 0, time.Second)
	require.False(t, gone(0))
	s.Take(k, true, 1).Release()
	require.True(t, gone(1))
	add(t, s, k, 2, 3, 0, time.Second)
	require.True(t, gone(2))
	require.False(t, gone(1000*second), "and not for ever")
	st := s.Take(k, true, 1000*second)
	s.Return(st)
	require.False(t, gone(1000*second))
}
