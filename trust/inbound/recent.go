package inbound

import (
	"container/list"
	"sync"
)

// recent keeps the values that were put or taken last, so many at most.
type recent[K comparable, V any] struct {
	most int

	mu    sync.Mutex // guards what follows; held for look-ups only
	byKey map[K]*list.Element
	order list.List // of kept, the latest first
}

type kept[K comparable, V any] struct {
	key   K
	value V
}

func newRecent[K comparable, V any](most int) *recent[K, V] {
	return &recent[K, V]{most: most, byKey: map[K]*list.Element{}}
}

func (r *recent[K, V]) get(key K) (value V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.byKey[key]
	if at == nil {
		return value, false
	}
	r.order.MoveToFront(at)
	return at.Value.(kept[K, V]).value, true
}

func (r *recent[K, V]) put(key K, value V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set(key, value)
}

func (r *recent[K, V]) drop(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.byKey[key]; at != nil {
		r.order.Remove(at)
		delete(r.byKey, key)
	}
}

// set is put for who holds the lock.
func (r *recent[K, V]) set(key K, value V) {
	if at := r.byKey[key]; at != nil {
		at.Value = kept[K, V]{key, value}
		r.order.MoveToFront(at)
		return
	}
	r.byKey[key] = r.order.PushFront(kept[K, V]{key, value})
	for len(r.byKey) > r.most {
		last := r.order.Remove(r.order.Back()).(kept[K, V])
		delete(r.byKey, last.key)
	}
}

// getOr is get, of a value that is made where there is none.
func (r *recent[K, V]) getOr(key K, make func() V) V {
	if value, ok := r.get(key); ok {
		return value
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.byKey[key]; at != nil {
		return at.Value.(kept[K, V]).value
	}
	value := make()
	r.set(key, value)
	return value
}
