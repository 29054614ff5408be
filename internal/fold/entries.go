// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package fold

// Entry is one stream of a batch, with what a Store answers of it.
type Entry struct {
	Key Key
	// Hash is Store.Hash of Key.
	Hash uint64
	// Known says that a stream is open and that its chunk spans, those that came, show that it is one. Gone says that the parent has been
	// there and left. Ask sets both.
	Known, Gone bool
	// Wanted says that AddAll is to add the batch.
	Wanted bool
	// Duplicate and Spilled are what Store.Add returns. AddAll sets both.
	Duplicate bool
	Spilled   *Stream

	found *Stream
	touch uint64 // of no meaning: it makes Stream.touch be done
	Batch Batch
}

// Entries are the streams of a batch, all of different keys. A Store takes them shard by shard: each lock is taken once, and the memory of
// many streams is waited for together instead of one after the other. The zero value is ready to use.
type Entries struct {
	list    []*Entry
	byShard []*Entry
	ends    [shards]int32 // of each shard in byShard
}

// Add adds an entry.
func (e *Entries) Add(one *Entry) { e.list = append(e.list, one) }

// Reset forgets the entries.
func (e *Entries) Reset() {
	clear(e.list)
	clear(e.byShard)
	e.list, e.byShard = e.list[:0], e.byShard[:0]
}

// sort sorts the entries by shards, those of one in their order.
func (e *Entries) sort() {
	clear(e.ends[:])
	for _, one := range e.list {
		e.ends[one.Hash%shards]++
	}
	sum := int32(0)
	for i, n := range e.ends {
		e.ends[i] = sum
		sum += n
	}
	e.byShard = append(e.byShard[:0], e.list...) // for the length
	for _, one := range e.list {
		at := &e.ends[one.Hash%shards]
		e.byShard[*at] = one
		*at++
	}
}

// shards calls f with the entries of each shard that has some. It begins with the shard of the first entry, so that batches that come at
// the same time do not all wait for the same locks in the same order.
func (e *Entries) shards(f func(at int, es []*Entry)) {
	if len(e.list) == 0 {
		return
	}
	first := int(e.list[0].Hash % shards)
	for i := range shards {
		at := (first + i) % shards
		from := int32(0)
		if at > 0 {
			from = e.ends[at-1]
		}
		if from < e.ends[at] {
			f(at, e.byShard[from:e.ends[at]])
		}
	}
}

// Ask answers what is known of the streams, which stay as they are.
func (s *Store) Ask(e *Entries, now int64) {
	e.sort()
	e.shards(func(at int, es []*Entry) {
		sh := &s.shards[at]
		sh.mu.Lock()
		defer sh.mu.Unlock()
		sh.open.find(es)
		for _, one := range es {
			st := one.found
			one.Known = st != nil && st.folded
			// gone is another place in memory. A stream was opened before its parent left, or it is known to have been opened after.
			one.Gone = (st == nil || st.late) && sh.gone.has(one.Hash, now)
		}
	})
}

// AddAll is Add for the wanted ones of the entries that Ask was asked for. Those that were not known come one by one in the order of the
// batch: which of them have to go out because whole chunk spans take too much memory hangs on it.
func (s *Store) AddAll(e *Entries, now int64) {
	known := 0
	for _, one := range e.list {
		switch {
		case !one.Wanted:
		case one.Known:
			known++
		default:
			one.Duplicate, one.Spilled = s.Add(one.Key, &one.Batch, now)
		}
	}
	if known == 0 {
		return
	}
	e.shards(func(at int, es []*Entry) {
		sh := &s.shards[at]
		sh.mu.Lock()
		defer sh.mu.Unlock()
		for _, one := range es {
			if one.found != nil {
				one.touch = one.found.touch()
			}
		}
		for _, one := range es {
			if one.Wanted && one.Known {
				one.Duplicate, one.Spilled = s.add(sh, one.Hash, s.again(sh, one, now), &one.Batch, now)
			}
		}
	})
}

// again returns the open stream of an entry, mostly the one that Ask found: as long as it is in a list it is the open one of its key.
func (s *Store) again(sh *shard, one *Entry, now int64) *Stream {
	if one.found != nil && one.found.list != nil {
		return one.found
	}
	return s.stream(sh, one.Hash, &one.Key, now)
}
