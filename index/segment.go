package index

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"
	api "github.com/blevesearch/bleve_index_api"
	library "github.com/blevesearch/scorch_segment_api/v2"
	zap "github.com/blevesearch/zapx/v17"
	"golang.org/x/sync/errgroup"
)

// segment is a group of indexed documents: a segment of bleve in the format zap. It is immutable, and several
// indexes may share it.
type segment struct {
	library.Segment
	prints []print // the prints of its documents, by number

	decoded decoded
}

// piece is a segment without the documents that an Index has removed. It is immutable.
type piece struct {
	*segment
	docs []*entry        // by number; nil: not in the index
	gone *roaring.Bitmap // numbers of removed documents; nil: none
	live int             // remaining documents

	tables tables
}

// maxPieces is the number of pieces from which a change merges some: each slows searches a little.
const maxPieces = 8

// manyDocs is the number of documents above which they are prepared in more pieces than processors: preparing a
// piece takes several times its size.
const manyDocs = 20_000

// minPiece is the number of documents below which parallel preparation does not pay.
const minPiece = 200

// prepare indexes documents. In parallel it makes several pieces, on all processors.
func prepare(ctx context.Context, all []*entry, parallel bool) ([]*piece, error) {
	if len(all) == 0 {
		return nil, nil
	}
	workers, most := 1, 1
	if parallel {
		workers = min(runtime.GOMAXPROCS(0), maxPieces/2)
		if most = workers; len(all) > manyDocs {
			most = maxPieces / 2
		}
	}
	groups := slices.Collect(slices.Chunk(all, max(minPiece, (len(all)+most-1)/most)))
	pieces := make([]*piece, len(groups))
	var work errgroup.Group
	work.SetLimit(workers)
	for i, docs := range groups {
		work.Go(func() (err error) {
			pieces[i], err = newPiece(ctx, slices.Clone(docs)) // else the piece would keep all documents alive
			return err
		})
	}
	return pieces, work.Wait()
}

// The library reserves memory by the documents of the last segment: one large definition would cost gigabytes.
func init() { zap.NewSegmentBufferNumResultsFactor = 0 }

// newPiece indexes documents as one segment.
func newPiece(ctx context.Context, docs []*entry) (*piece, error) {
	all := make([]api.Document, len(docs))
	prints := make([]print, len(docs))
	a := newAnalyzer()
	a.pieces = map[string][]word{}
	for i, e := range docs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		all[i], prints[i] = a.document(e.Document), printOf(e.Document)
	}
	made, _, err := (*zap.ZapPlugin)(nil).New(all)
	if err != nil {
		return nil, err
	}
	return &piece{segment: &segment{Segment: made, prints: prints}, docs: docs, live: len(docs), tables: newTables()}, nil
}

// settle records in the documents where they are.
func (p *piece) settle() {
	for number, e := range p.docs {
		if e != nil {
			e.in, e.number = p.segment, number
		}
	}
}

// appendTo appends the remaining documents.
func (p *piece) appendTo(docs []*entry) []*entry {
	for _, e := range p.docs {
		if e != nil {
			docs = append(docs, e)
		}
	}
	return docs
}

// without returns pieces with some of their documents removed.
func without(pieces []*piece, out []*entry) []*piece {
	if len(out) == 0 {
		return pieces
	}
	numbers := map[*segment][]uint32{}
	for _, e := range out {
		numbers[e.in] = append(numbers[e.in], uint32(e.number))
	}
	var rest []*piece
	for _, p := range pieces {
		if gone := numbers[p.segment]; len(gone) > 0 {
			if p.live == len(gone) {
				continue
			}
			p = p.without(gone)
		}
		rest = append(rest, p)
	}
	return rest
}

// without returns the piece with some of its documents removed.
func (p *piece) without(gone []uint32) *piece {
	next := &piece{segment: p.segment, docs: slices.Clone(p.docs), gone: roaring.New(), live: p.live - len(gone), tables: p.tables.next()}
	if p.gone != nil {
		next.gone = p.gone.Clone()
	}
	next.gone.AddMany(gone)
	for _, number := range gone {
		next.docs[number] = nil
	}
	return next
}

// merge takes the smallest pieces apart, and returns their documents together with the new ones. It chooses the
// number of pieces that moves the fewest documents per change until the next merge: pieces of similar size are
// merged, as in a log-structured store, and a large one stays.
func merge(pieces []*piece, add []*entry) (rest []*piece, docs []*entry) {
	bySize := slices.SortedStableFunc(slices.Values(pieces), func(a, b *piece) int { return cmp.Compare(a.live, b.live) })
	moved, best, least := len(add), 0, 0.0
	for i, p := range bySize {
		moved += p.live
		if each := float64(moved) / float64(i+1); i == 0 || each <= least {
			best, least = i+1, each
		}
	}
	docs = slices.Clip(add)
	for _, p := range bySize[:best] {
		docs = p.appendTo(docs)
	}
	return bySize[best:], docs
}

// print identifies the indexed words of a document: documents with the same print are indexed in the same way.
type print [16]byte

func printOf(d Document) print {
	var b []byte
	for _, text := range []string{d.Name, string(d.Def.ID.Kind), d.Def.ID.Server, d.Def.ID.Name, d.Def.Hash, d.ServerDescription} {
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	sum := sha256.Sum256(b)
	return print(sum[:])
}

func (p *piece) allFacts() []docFacts {
	return p.tables.facts.get(func() []docFacts {
		all := make([]docFacts, len(p.docs))
		for number, e := range p.docs {
			if e != nil {
				all[number] = docFacts{int32(e.slot), true, groupOf(e.Def.ID.Kind) == groupOthers}
			}
		}
		return all
	})
}

func (p *piece) names() nameLines {
	return p.tables.names.get(func() nameLines {
		var text strings.Builder
		var lines []line
		for number, e := range p.docs {
			if e == nil {
				continue
			}
			for _, name := range squeezedNames(e.Document) {
				text.WriteString(name.term + "\n")
				lines = append(lines, line{int32(text.Len()), int32(number)})
			}
		}
		return nameLines{text.String(), lines}
	})
}

// decoded caches the postings of a segment in the form that searches read, in the order of documents. The library
// reads its own form ten times slower, and queries repeat words: a list is decoded when it is first needed. The
// zero value is empty.
type decoded struct {
	mu    sync.RWMutex // guards the fields below; never held while decoding
	lists map[listKey][]posting
	size  int // postings in lists
}

// entry is a document of an Index. Snapshots read its first two members, which never change.
type entry struct {
	Document
	slot int // its number while it is in the index

	in     *segment // the segment of its words
	number int      // its number in the segment
	round  int      // the last Replace with the document
}

// posting is a document of a segment and how often it has a term. A segment has fewer than two million documents,
// and the weights of texts bound the count of a term at 1,505 sixteenths.
type posting uint32

func (p posting) doc() int { return int(p >> freqBits) }

func (p posting) freq() int { return int(p & (1<<freqBits - 1)) }

type listKey struct{ field, term string }

const freqBits = 11
