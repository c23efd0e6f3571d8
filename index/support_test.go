package index

import "context"

// Build returns an Index of docs.
func Build(ctx context.Context, docs []Document) (*Index, error) {
	x := New()
	if _, err := x.Replace(ctx, docs); err != nil {
		return nil, err
	}
	return x, nil
}

// Apply is Update, without the Snapshot.
func (x *Index) Apply(ctx context.Context, changed []Document, removed []string) error {
	_, err := x.Update(ctx, changed, removed)
	return err
}

// Search searches what the index has now.
func (x *Index) Search(ctx context.Context, q Query) (Result, error) {
	x.write.Lock()
	s := x.snapshot()
	x.write.Unlock()
	return s.Search(ctx, q)
}

// put is putAll of one slot.
func (v *vectors) put(slot int, vector []float32) error {
	_, err := v.putAll([]int{slot}, [][]float32{vector})
	return err
}
