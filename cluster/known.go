package cluster

import "sync"

// known remembers where sessions are, of so many that were looked up last. It has two
// generations: the older one goes when the younger is full.
type known struct {
	mu         sync.Mutex // guards what follows; held for look-ups only
	most       int        // of both
	young, old map[[32]byte]Peer
}

func newKnown(most int) *known { return &known{most: most, young: map[[32]byte]Peer{}} }

func (k *known) get(hash [32]byte) (Peer, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, ok := k.young[hash]
	if !ok {
		if at, ok = k.old[hash]; ok {
			k.keep(hash, at)
		}
	}
	return at, ok
}

func (k *known) put(hash [32]byte, at Peer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keep(hash, at)
}

// keep is for who holds the lock.
func (k *known) keep(hash [32]byte, at Peer) {
	if len(k.young) >= k.most/2 {
		k.young, k.old = map[[32]byte]Peer{}, k.young
	}
	k.young[hash] = at
}

func (k *known) drop(hash [32]byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.young, hash)
	delete(k.old, hash)
}
