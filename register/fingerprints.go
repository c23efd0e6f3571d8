package register

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"weak"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// kindGroup is the key of groups in fingerprints.
const kindGroup tool.Kind = "group"

// fingerprints identify the lists that a client sees.
type fingerprints struct {
	class string
	lists map[tool.Kind]string // the list of tools without registered tools
	all   string               // the list of every tool, "" if no client gets it
}

func fingerprintsOf(v *Served) *fingerprints {
	now := &fingerprints{class: v.Class, lists: map[tool.Kind]string{}}
	for _, kind := range tool.Kinds[1:] {
		now.lists[kind] = fingerprint(v.Items(kind))
	}
	now.lists[tool.KindTool] = v.mode() + fingerprint(slices.Concat(v.Search, v.Meta, v.Pinned()))
	if v.Groups != nil {
		now.lists[kindGroup] = groupsFingerprint(v.Groups())
	}
	if v.Direct != nil && !v.gated() {
		now.all = v.mode() + fingerprint(slices.Concat(v.Beside, v.Meta, v.Tools()))
	}
	return now
}

// otherLists returns the notifications for changed lists of prompts and resources.
func (before *fingerprints) otherLists(now *fingerprints) (methods []string) {
	changed := func(kind tool.Kind) bool { return before.lists[kind] != now.lists[kind] }
	if changed(tool.KindPrompt) {
		methods = append(methods, promptsChanged)
	}
	if changed(tool.KindResource) || changed(tool.KindTemplate) || changed(tool.KindSkill) {
		methods = append(methods, resourcesChanged)
	}
	if changed(kindGroup) {
		methods = append(methods, groupsChanged)
	}
	return methods
}

// fingerprintCache makes the fingerprints of each value once. Weak pointers let values be collected.
type fingerprintCache struct {
	mu    sync.Mutex // guards known; held while fingerprints are made, so that each is made once
	known map[weak.Pointer[Served]]*fingerprints
}

// maxFingerprints bounds the cached values between two changes.
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

// forget empties the cache.
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

// groupsFingerprint is equal for groups that look the same, with their contents: nothing else tells that these changed.
func groupsFingerprint(all []Group) string {
	sum := sha256.New()
	for _, g := range all {
		fmt.Fprintf(sum, "%s %q %q\n", rawjson.Of(g), g.Instructions, fingerprint(g.Tools))
	}
	return string(sum.Sum(nil))
}
