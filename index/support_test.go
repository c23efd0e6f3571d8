package index

import (
	"context"
	"maps"
	"slices"
)

// Build returns an Index of docs.
func Build(ctx context.Context, docs []Document) (*Index, error) {
	x := New()
	if _, err := x.Replace(ctx, docs); err != nil {
		return nil, err
	}
	return x, nil
}

// Apply adds or replaces the documents in changed and takes out the names in
// removed; a name in both is replaced.
func (x *Index) Apply(ctx context.Context, changed []Document, removed []string) error {
	x.write.Lock()
	docs := map[string]Document{}
	for name, e := range x.docs {
		docs[name] = e.Document
	}
	x.write.Unlock()
	for _, name := range removed {
		delete(docs, name)
	}
	for _, d := range changed {
		docs[d.Name] = d
	}
	_, err := x.Replace(ctx, slices.Collect(maps.Values(docs)))
	return err
}

// Search searches what the index has now.
func (x *Index) Search(ctx context.Context, q Query) (Result, error) {
	x.write.Lock()
	s := x.snapshot()
	x.write.Unlock()
	return s.Search(ctx, q)
}
