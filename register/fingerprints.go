package register

import (
	"crypto/sha256"
	"slices"
	"sync"
	"weak"

	"toolfinch/tool"
)

// seen are fingerprints of what clients see.
type fingerprints struct {
	class string
	lists map[tool.Kind]string // of tools what is listed without any registered
	all   string               // what a client sees that is listed every tool, "" where none is
}

func fingerprintsOf(v *Served) *fingerprints {
	now := &fingerprints{class: v.Class, lists: map[tool.Kind]string{}}
	for _, kind := range tool.Kinds[1:] {
		now.lists[kind] = fingerprint(v.Items(kind))
	}
	now.lists[tool.KindTool] = v.mode() + fingerprint(slices.Concat(v.Search, v.Meta, v.Pinned()))
	if v.Direct != nil && !v.gated() {
		now.all = v.mode() + fingerprint(slices.Concat(v.Beside, v.Meta, v.Tools()))
	}
	return now
}

// others are the notifications of the lists of what is no tool that differ.
func (before *fingerprints) otherLists(now *fingerprints) (methods []string) {
	changed := func(kind tool.Kind) bool { return before.lists[kind] != now.lists[kind] }
	if changed(tool.KindPrompt) {
		methods = append(methods, promptsChanged)
	}
	if changed(tool.KindResource) || changed(tool.KindTemplate) {
		methods = append(methods, resourcesChanged)
	}
	return methods
}

// announced has the fingerprints of what is served, made once for each value. It keeps no
// value from being collected: one is part of all that a class of parties has of a view.
type fingerprintCache struct {
	mu    sync.Mutex // guards known; held while fingerprints are made, so that each is made once
	known map[weak.Pointer[Served]]*fingerprints
}

// maxSeen bounds the values whose fingerprints are kept between two changes.
const maxFingerprints = 1000

func (a *fingerprintCache) of(v *Served) *fingerprints {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := weak.Make(v)
	if now := a.known[key]; now != nil {
		return now
	}
	if len(a.known) >= maxFingerprints {
		clear(a.known)
	}
	if a.known == nil {
		a.known = map[weak.Pointer[Served]]*fingerprints{}
	}
	a.known[key] = fingerprintsOf(v)
	return a.known[key]
}

// forget forgets the values that are served no more.
func (a *fingerprintCache) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.known)
}

// fingerprint is equal for lists that look the same to clients.
func fingerprint(items []*tool.Tool) string {
	sum := sha256.New()
	for _, t := range items {
		sum.Write([]byte(t.Name))
		sum.Write([]byte(t.Def.Hash))
	}
	return string(sum.Sum(nil))
}
