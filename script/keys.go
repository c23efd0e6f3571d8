package script

import (
	"hash/maphash"

	"go.starlark.net/starlark"
)

// The interpreter's tables chain keys whose hashes end alike, and its hashes of
// short texts and of numbers have no seed: whoever chooses keys, a client or an
// upstream, can choose them such that every operation walks over all others. So
// keys that crowd cost steps.
const (
	crowdBits     = 12  // of a hash: in a table of as many buckets or more, a chain is part of one crowd
	crowdFree     = 32  // keys of a crowd that cost nothing, beside those to be expected
	keysUnwatched = 512 // of a run, the first: so few make no long chain
)

// crowds are the distinct keys that a run has put into tables, by the last bits of
// their hashes.
type crowds struct {
	puts  int
	seen  map[uint64]struct{} // identities
	sizes []int32
}

// put is called before v becomes a key.
func (r *run) put(v starlark.Value) error {
	if err := r.weighKey(v); err != nil {
		return err
	}
	c := &r.keys
	if c.puts++; c.puts <= keysUnwatched {
		return nil
	}
	if c.puts%128 == 0 {
		if err := r.alive(); err != nil {
			return err
		}
	}
	hash, err := v.Hash()
	if err != nil {
		return err
	}
	if c.seen == nil {
		c.seen, c.sizes = map[uint64]struct{}{}, make([]int32, 1<<crowdBits)
	}
	crowd := &c.sizes[hash%(1<<crowdBits)]
	id := identity(v)
	if _, known := c.seen[id]; !known {
		if err := r.alloc(32); err != nil {
			return err
		}
		c.seen[id] = struct{}{}
		*crowd++
	}
	return r.work(nodeWork * max(0, int(*crowd)-crowdFree-len(c.seen)>>10))
}

// putAll is called before all that an iterable yields become keys.
func (r *run) putAll(of starlark.Iterable) error {
	iterator := of.Iterate()
	defer iterator.Done()
	var v starlark.Value
	for iterator.Next(&v) {
		if err := r.put(v); err != nil {
			return err
		}
	}
	return nil
}

var identitySeed = maphash.MakeSeed()

// identity is a hash that nobody can foresee. Equal keys of unusual types may
// differ in it, and then count twice.
func identity(v starlark.Value) uint64 {
	switch v := v.(type) {
	case starlark.String:
		return maphash.String(identitySeed, string(v))
	case starlark.Int:
		if n, small := v.Int64(); small {
			return maphash.Comparable(identitySeed, n)
		}
		return maphash.String(identitySeed, v.String())
	case starlark.Tuple:
		var hash maphash.Hash
		hash.SetSeed(identitySeed)
		for _, element := range v {
			maphash.WriteComparable(&hash, identity(element))
		}
		return hash.Sum64()
	}
	return maphash.Comparable(identitySeed, v)
}
