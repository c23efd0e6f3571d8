package proxy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"toolfinch/embed"
	"toolfinch/rawjson"
	"toolfinch/store"
	"toolfinch/telemetry"
	"toolfinch/tool"
	"toolfinch/trust"
	"toolfinch/trust/inbound"
	"toolfinch/trust/pins"
	"toolfinch/web/page"
)

// Stocks are the views that who asks may use.
func (h paged) Stocks(ctx context.Context) (all []page.Stock) {
	now := h.now.Load()
	root, err := h.view(ctx, "")
	for _, v := range h.viewsOf(ctx) {
		one := page.Stock{View: v.name, Root: err == nil && v.name == root.name, Catalog: v.catalog, Retriever: v.retriever, Embeds: now.config.Embed.Kind != embed.KindBM25}
		if one.Root {
			all = slices.Insert(all, 0, one)
		} else {
			all = append(all, one)
		}
	}
	return all
}

// Pin says how a definition was approved.
func (h paged) Pin(ctx context.Context, id tool.ID) (pin page.Pin, ok bool) {
	config := h.now.Load().config
	mode, ok := config.Changes[id.Server]
	if !store.Pinned(id.Kind) || !slices.Contains(serversOf(config), id.Server) { // a view's own tools have no server
		return pin, false
	}
	if !ok {
		mode = pins.Review
	}
	pin.Mode = string(mode)
	unpinned, err := h.store.Pins().Unpinned(ctx)
	if err != nil {
		return pin, false
	}
	if pin.Listed, err = h.store.Pins().Listed(ctx, id); err != nil {
		return pin, false
	}
	if pin.Past, err = h.store.Pins().History(ctx, id); err != nil {
		return pin, false
	}
	at := slices.IndexFunc(unpinned, func(u store.Unpinned) bool { return u.ID == id })
	if at >= 0 {
		held := pins.Held(unpinned[at])
		pin.Held = &held
	}
	return pin, true
}

// maxBarred bounds the keys that are asked about.
const maxBarred = 50

// Barred are those who may not use a tool, of all who are known.
func (h paged) Barred(ctx context.Context, view string, t *tool.Tool) []string {
	v, err := h.reachable(view)
	if err != nil || !h.owner(ctx) || v.police == nil || v.police.policies == nil {
		return nil
	}
	barred := []string{}
	ask := func(name string, p *trust.Principal) {
		party := trust.Party{Principal: p, Transport: trust.TransportHTTP}
		if !v.police.policies.May(v.police.request(party, t.Def, cmp.Or(t.View, v.name))) {
			barred = append(barred, name)
		}
	}
	if h.first.Auth.Mode != inbound.Proof {
		ask("whoever proves nothing", nil)
	}
	keys, err := h.store.Keys().All(ctx)
	if err != nil {
		return barred
	}
	for _, key := range keys[:min(len(keys), maxBarred)] {
		if key.View == "" || key.View == view {
			ask("the key "+key.Name, &trust.Principal{ID: "key|" + key.Name, Groups: key.Groups, Scopes: key.Scopes, View: key.View})
		}
	}
	return barred
}

// preferredFile has, in the folder of the store, what was said on the page of queries; and
// maxPreferred bounds it, in bytes.
const (
	preferredFile = "queries.jsonl"
	maxPreferred  = 4 << 20
)

// preferring keeps lines of the file whole and apart.
var preferring sync.Mutex

// Prefer adds a query to the file, in the form that toolfinch eval reads.
func (h paged) Prefer(ctx context.Context, query string, id tool.ID) (file string, known bool, err error) {
	if !h.owner(ctx) {
		return "", false, errors.New("only the owner may")
	}
	if !h.store.Durable() {
		return "", false, errors.New("there is no folder to keep it in: the store is in memory")
	}
	path := filepath.Join(h.first.DataDir, preferredFile)
	line := rawjson.Of(struct {
		Query    string   `json:"query"`
		Relevant []string `json:"relevant"`
	}{query, []string{id.Server + ":" + id.Name}})
	preferring.Lock()
	defer preferring.Unlock()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return "", false, fmt.Errorf("the query is not noted: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	before, err := io.ReadAll(io.LimitReader(f, maxPreferred))
	if err != nil {
		return "", false, fmt.Errorf("the query is not noted: %w", err)
	}
	for one := range bytes.Lines(before) {
		if same(one, line) {
			return path, true, nil
		}
	}
	if len(before)+len(line) >= maxPreferred {
		return "", false, fmt.Errorf("%s is full", path)
	}
	if n := len(before); n > 0 && before[n-1] != '\n' {
		line = append([]byte("\n"), line...)
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		return "", false, fmt.Errorf("the query is not noted: %w", err)
	}
	return path, false, nil
}

// same reports whether two lines ask the same, and find the same.
func same(a, b []byte) bool {
	var x, y struct {
		Query    string
		Relevant []string
	}
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && x.Query == y.Query && slices.Equal(x.Relevant, y.Relevant)
}

// Operation is the call that was made with an ID of a request.
func (h paged) Operation(request string) *telemetry.Operation {
	found := h.Feed().Recent(1, func(o *telemetry.Operation) bool { return o.Request == request && o.Depth == 0 })
	if len(found) == 0 {
		return nil
	}
	return found[0]
}
