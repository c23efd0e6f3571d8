package proxy

import (
	"context"
	"log/slog"
	"time"

	"toolfinch/index"
	"toolfinch/internal/leeway"
	"toolfinch/retrieve"
	"toolfinch/store"
)

// segments keeps the segments of the views' indexes in the store, so that a start need not analyse definitions again.
type segments struct {
	store    *store.Store
	log      *slog.Logger
	catalogs func() []*retrieve.Catalog
	shared   bool                      // replicas with other servers may use the store
	kept     map[index.SegmentKey]bool // segments in the store, false for unusable ones; only run uses it
	at       time.Time                 // last time that keep wrote; only run uses it
	work     chan struct{}             // wakes run
	done     func()                    // called after keep wrote, to free memory
}

const (
	// segmentsAfter is the delay before segments are written: they are large, and would slow the first answers.
	segmentsAfter = 3 * time.Second
	// segmentsFrom is the smallest number of documents that is stored: fewer are analysed in no time.
	segmentsFrom = 200
	// segmentsShare allows one in segmentsShare documents to be in unstored segments, because each change makes a
	// small segment.
	segmentsShare = 50
	// segmentsSeen is how often a replica marks its segments in a shared store as used.
	segmentsSeen = 24 * time.Hour
	// segmentsAgain is the pause after segments could not be written.
	segmentsAgain = time.Minute
)

// recall reads the stored segments and fills kept with their keys. Unusable segments are stored again.
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
		if !leeway.Wait(ctx, segmentsAfter) {
			return
		}
		rest = segmentsSeen
		if err := s.keep(ctx); err != nil && ctx.Err() == nil {
			rest = segmentsAgain
			s.log.Log(ctx, store.Level(err), "the index is not written to the store: the next start takes longer", "error", err, "next_try", rest)
		}
	}
}

// keep stores the current segments once enough documents are in unstored segments. It removes unused segments from the
// store; if the store is shared, only segments that this replica used before.
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
	first := s.at.IsZero() // kept has what recall found, which other replicas may use
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
