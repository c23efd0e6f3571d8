package proxy

import (
	"context"
	"log/slog"
	"time"

	"toolfinch/index"
	"toolfinch/retrieve"
	"toolfinch/store"
)

// segments keeps what the indexes of the views are made of in the store, so that a start
// analyses nothing again.
type segments struct {
	store    *store.Store
	log      *slog.Logger
	catalogs func() []*retrieve.Catalog
	shared   bool                      // replicas with other servers may use the store
	kept     map[index.SegmentKey]bool // those in the store, false for what cannot be used; run's own
	at       time.Time                 // of the last keep that wrote; run's own
	work     chan struct{}             // wakes run
	done     func()                    // memory may be given back
}

const (
	// segmentsAfter is how long changes are awaited before segments are written: they are
	// large, and the first answers come first.
	segmentsAfter = 3 * time.Second
	// segmentsFrom is the number of documents below which analysing them takes no time
	// that anybody notices.
	segmentsFrom = 200
	// segmentsShare is the share of documents, one in so many, that may be in segments
	// which are not stored: each change makes a small one.
	segmentsShare = 50
	// segmentsSeen is after how long it is noted again that shared segments are used.
	segmentsSeen = 24 * time.Hour
	// segmentsAgain is after how long segments that could not be written are written again.
	segmentsAgain = time.Minute
)

// recall reads the stored segments, of which kept remembers the keys: what cannot be used
// is stored again.
func (s *segments) recall(ctx context.Context) *index.Stored {
	stored, bad := &index.Stored{}, 0
	s.kept = map[index.SegmentKey]bool{}
	err := s.store.Segments(ctx, index.StoredPrefix(), func(one store.Segment) {
		if s.kept[one.Key] = stored.Read(one.Data); !s.kept[one.Key] {
			bad++
		}
	})
	if err != nil {
		s.log.Warn("the store could not be read; starting without it", "what", "segments of the index", "error", err)
		s.kept = nil
		return nil
	}
	if bad > 0 {
		s.log.Warn("parts of the stored index are damaged, or of another version: their tools are indexed again", "parts", bad)
	}
	return stored
}

func (s *segments) run(ctx context.Context) {
	rest := segmentsSeen
	for s.store.Durable() {
		select {
		case <-ctx.Done():
			return
		case <-s.work:
		case <-time.After(rest):
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(segmentsAfter):
		}
		rest = segmentsSeen
		if err := s.keep(ctx); err != nil && ctx.Err() == nil {
			rest = segmentsAgain
			s.log.Log(ctx, store.Level(err), "the index is not written to the store: the next start takes longer", "error", err, "next_try", rest)
		}
	}
}

// keep stores the segments of now once enough documents are in others. Of what is stored it
// removes what is used no more; in a shared store, only what this replica has used itself.
func (s *segments) keep(ctx context.Context) error {
	all := map[index.SegmentKey]index.Segment{}
	for _, catalog := range s.catalogs() {
		for _, one := range catalog.Segments() {
			all[one.Key] = one
		}
	}
	docs, fresh := 0, 0
	var used, gone [][32]byte
	for key, one := range all {
		used = append(used, key)
		if docs += one.Docs; !s.kept[key] {
			fresh += one.Docs
		}
	}
	unseen := s.shared && time.Since(s.at) >= segmentsSeen
	if docs < segmentsFrom || fresh*segmentsShare <= docs && !unseen {
		return nil
	}
	first := s.at.IsZero() // kept is what was found
	for key := range s.kept {
		if _, is := all[key]; !is && !(s.shared && first) {
			gone = append(gone, key)
		}
	}
	for key, one := range all {
		if s.kept[key] {
			continue
		}
		data, err := one.Bytes()
		if err == nil {
			err = s.store.PutSegment(ctx, store.Segment{Key: key, Docs: one.Docs, Data: data})
		}
		if err != nil {
			return err
		}
	}
	if err := s.store.KeepSegments(ctx, used, gone); err != nil {
		return err
	}
	s.at = time.Now()
	s.kept = make(map[index.SegmentKey]bool, len(all))
	for key := range all {
		s.kept[key] = true
	}
	s.done()
	return nil
}
