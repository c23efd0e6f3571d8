package index

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/RoaringBitmap/roaring/v2"
	library "github.com/blevesearch/scorch_segment_api/v2"
	zap "github.com/blevesearch/zapx/v17"
	"golang.org/x/text/unicode/norm"
)

// analysisVersion changes with the code of the analysis, if it yields something else for a definition.
// TestAnalysisVersion says when.
const analysisVersion = 2

// analysisPrint identifies the result of the analysis: segments of another analysis are useless. It also covers
// tables, weights and libraries, which the few documents of a test cannot cover.
var analysisPrint = sync.OnceValue(func() [4]byte {
	h := sha256.New()
	fmt.Fprintln(h, analysisVersion, zap.Version, norm.Version, unicode.Version, conceptFile, stopWordFile)
	fmt.Fprintln(h, deprecatedName, deprecatedText, expression, maxWord, maxText, maxDepth, maxMembers, scale)
	fmt.Fprintln(h, partName, partTitle, partServer, partDescription, partAbout, partParameter, partExplanation, partURI)
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if strings.HasPrefix(module.Path, "github.com/blevesearch/") {
				fmt.Fprintln(h, module.Version, module.Sum)
			}
		}
	}
	return [4]byte(h.Sum(nil))
})

// SegmentKey identifies the contents of a Segment.
type SegmentKey [sha256.Size]byte

// Segment is a part of an Index in a form that can be stored. Stored reads it.
type Segment struct {
	Key  SegmentKey
	Docs int // number of documents

	made *segment
}

func (s *segment) key() SegmentKey {
	h := sha256.New()
	fmt.Fprintf(h, "%x\n", analysisPrint())
	for i := range s.prints {
		h.Write(s.prints[i][:])
	}
	return SegmentKey(h.Sum(nil))
}

// StoredPrefix returns the first bytes of all stored segments that this program can use.
func StoredPrefix() []byte {
	version := analysisPrint()
	return version[:]
}

// Bytes returns the stored form of the segment: the prints of its documents with a checksum, then the library's
// file, which ends in a checksum.
func (s Segment) Bytes() ([]byte, error) {
	var b bytes.Buffer
	b.Grow(s.made.Size() + len(s.made.prints)*len(print{}))
	b.Write(StoredPrefix())
	b.Write(binary.BigEndian.AppendUint32(nil, uint32(len(s.made.prints))))
	for i := range s.made.prints {
		b.Write(s.made.prints[i][:])
	}
	b.Write(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(b.Bytes())))
	if _, err := s.made.Segment.(*zap.SegmentBase).WriteTo(&b); err != nil {
		return nil, fmt.Errorf("index: segment: %w", err)
	}
	return b.Bytes(), nil
}

var errSegment = errors.New("index: the stored segment is damaged, or of another version")

// readSegment reads the result of Bytes. The segment keeps data.
func readSegment(data []byte) (*segment, error) {
	if len(data) < 12 || !bytes.HasPrefix(data, StoredPrefix()) {
		return nil, errSegment
	}
	count := int(binary.BigEndian.Uint32(data[4:]))
	if count > (len(data)-12)/len(print{}) {
		return nil, errSegment
	}
	s := &segment{prints: make([]print, count)}
	end := 8
	for i := range s.prints {
		end += copy(s.prints[i][:], data[end:])
	}
	if crc32.ChecksumIEEE(data[:end]) != binary.BigEndian.Uint32(data[end:]) {
		return nil, errSegment
	}
	made, err := openSegment(data[end+4:])
	if err != nil || made.Count() != uint64(count) {
		return nil, errSegment
	}
	s.Segment = made
	return s, nil
}

// openSegment opens a segment in memory; the library opens files only. Its zap.md describes their end: the writer's
// name with its length, documents, three addresses, version, checksum.
func openSegment(data []byte) (*zap.SegmentBase, error) {
	const name, footer = 4, 8 + 8 + 8 + 4 + 4 + 4
	if len(data) < name+footer {
		return nil, errSegment
	}
	tail := data[len(data)-footer:]
	body := data[: len(data)-footer-name : len(data)-footer-name] // the library names no writer
	sum := crc32.ChecksumIEEE(body)
	if crc32.Update(sum, crc32.IEEETable, data[len(body):len(data)-4]) != binary.BigEndian.Uint32(tail[32:]) || binary.BigEndian.Uint32(tail[28:]) != zap.Version {
		return nil, errSegment
	}
	return zap.InitSegmentBase(body, sum, binary.BigEndian.Uint32(tail[24:]), binary.BigEndian.Uint64(tail), binary.BigEndian.Uint64(tail[8:]), binary.BigEndian.Uint64(tail[16:]), nil, new(library.Stats))
}

// Stored are stored segments for indexes that may have the same documents. The zero value has none. Once all are
// read, its other methods are safe for concurrent use.
type Stored struct{ segments []*segment }

// Read adds a segment, which keeps data. It returns false for a segment that is damaged or of another version.
func (s *Stored) Read(data []byte) (sound bool) {
	one, err := readSegment(data)
	if err == nil {
		s.segments = append(s.segments, one)
	}
	return err == nil
}

// release takes the pieces of stored segments apart. It returns the other pieces, and the documents of these pieces
// together with the new ones: take finds the wanted ones again.
func (s *Stored) release(pieces []*piece, add []*entry) (rest []*piece, docs []*entry) {
	docs = slices.Clip(add)
	for _, p := range pieces {
		if slices.Contains(s.segments, p.segment) {
			docs = p.appendTo(docs)
		} else {
			rest = append(rest, p)
		}
	}
	return rest, docs
}

// take returns up to most pieces that have some of the documents, and the remaining documents. A piece has at least
// half the documents of its segment, unless partly: more documents will come.
func (s *Stored) take(docs []*entry, most int, partly bool) (pieces []*piece, rest []*entry) {
	places := make(map[print]int, len(docs))
	for i, e := range docs {
		places[printOf(e.Document)] = i
	}
	taken := make([]bool, len(docs))
	for _, one := range s.segments {
		p := &piece{segment: one, docs: make([]*entry, len(one.prints))}
		var gone []uint32
		for number, what := range one.prints {
			i, wanted := places[what]
			if !wanted || taken[i] {
				gone = append(gone, uint32(number))
				continue
			}
			p.docs[number] = docs[i]
			p.live++
		}
		if p.live < len(p.docs)/2 && !partly || p.live == 0 || len(pieces) == most {
			continue
		}
		for _, what := range one.prints {
			if i, wanted := places[what]; wanted {
				taken[i] = true
			}
		}
		if len(gone) > 0 {
			p.gone = roaring.BitmapOf(gone...)
		}
		p.tables = newTables()
		pieces = append(pieces, p)
	}
	for i, e := range docs {
		if !taken[i] {
			rest = append(rest, e)
		}
	}
	return pieces, rest
}
