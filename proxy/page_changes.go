package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"toolfinch/configs"
	"toolfinch/printable"
	"toolfinch/rawjson"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/trust/inbound"
	"toolfinch/trust/pins"
	"toolfinch/web"
	"toolfinch/web/page"
)

// waiting is what is held of what who asks may use: of the owner all, else by view what the
// REST API shows of it.
type waiting struct {
	view web.View // that the definitions are decided in; without a name for the owner
	Pins
}

func (h paged) waiting(ctx context.Context) ([]waiting, error) {
	if h.owner(ctx) {
		all, err := h.heldNow(ctx)
		return []waiting{{Pins: all}}, err
	}
	var all []waiting
	for _, v := range h.viewsOf(ctx) {
		in, err := h.rest.View(ctx, v.name)
		if err != nil {
			continue // it has just left
		}
		some, err := h.pins(ctx, in, func(server string) bool { return v.has(server) && in.Whole(server) })
		if err != nil {
			return nil, err
		}
		all = append(all, waiting{in, some})
	}
	return all, nil
}

// reports is what is held of all that is served, as it was read last: of some thousand
// definitions that takes longer than a page may take.
type reports struct {
	work chan struct{} // wakes readAhead

	mu    sync.Mutex // guards what follows; held for assignments only
	pins  Pins
	of    *configs.Config
	stamp string
}

// heldNow returns what is held of all that is served.
func (h paged) heldNow(ctx context.Context) (Pins, error) {
	config, r := h.now.Load().config, h.reports
	stamp, err := stampOf(ctx, h.store)
	if err != nil {
		return Pins{}, err
	}
	r.mu.Lock()
	all, known := r.pins, r.of == config && r.stamp == stamp
	r.mu.Unlock()
	if known {
		return all, nil
	}
	all, err = readPins(ctx, h.store, config, func(id tool.ID, _ json.RawMessage) bool { return h.serves(id.Server) })
	if err == nil {
		r.mu.Lock()
		r.pins, r.of, r.stamp = all, config, stamp
		r.mu.Unlock()
	}
	return all, err
}

// stampOf is another text once readPins may answer otherwise.
func stampOf(ctx context.Context, db *store.Store) (string, error) {
	decided, err := db.Pins().Decisions(ctx)
	if err != nil {
		return "", err
	}
	servers, err := db.Servers(ctx)
	stamp := strconv.FormatInt(decided, 10)
	for _, s := range servers {
		stamp += fmt.Sprintf(" %s %d", s.Name, s.UpdatedAt.UnixMilli())
	}
	return stamp, err
}

// readAhead reads what is held whenever that may be something else, so that the first who
// looks does not wait for it.
func (h paged) readAhead(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.reports.work:
		}
		if h.On() && len(h.now.Load().held) > 0 {
			_, _ = h.heldNow(ctx) // who looks is told the error
		}
	}
}

// Waiting is what is held of what who asks may use, by server.
func (h paged) Waiting(ctx context.Context) (servers []page.HeldServer, may, err error) {
	if !h.owner(ctx) {
		may = h.Permit(ctx, inbound.Destructive, "deciding what servers have changed")
	}
	all, err := h.waiting(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("what is held could not be read: %w", err)
	}
	config := h.now.Load().config
	known := map[tool.ID]bool{} // of several views
	for _, some := range all {
		for _, r := range some.Reports {
			if known[r.ID] {
				continue
			}
			known[r.ID] = true
			at := slices.IndexFunc(servers, func(s page.HeldServer) bool { return s.Name == r.ID.Server })
			if at < 0 {
				one := page.HeldServer{Name: r.ID.Server, Mode: cmp.Or(config.Changes[r.ID.Server], pins.Review)}
				if v := some.Versions[r.ID.Server]; v[0] != "" && v[1] != "" && v[0] != v[1] {
					one.From, one.To = v[0], v[1]
				}
				at, servers = len(servers), append(servers, one)
			}
			servers[at].Reports = append(servers[at].Reports, r)
		}
	}
	slices.SortStableFunc(servers, func(a, b page.HeldServer) int { return strings.Compare(a.Name, b.Name) })
	return servers, may, nil
}

// Decided approves or rejects what was chosen, as it was shown, all or nothing of one view.
func (h paged) Decided(ctx context.Context, approve bool, chosen []page.Choice) error {
	owner := h.owner(ctx)
	if !owner {
		if err := h.Permit(ctx, inbound.Destructive, "deciding what servers have changed"); err != nil {
			return err
		}
	}
	all, err := h.waiting(ctx)
	if err != nil {
		return err
	}
	decided := make([][]pins.Report, len(all))
	for _, one := range chosen {
		found := false
		for i, some := range all {
			at := slices.IndexFunc(some.Reports, func(r pins.Report) bool { return r.ID.String() == one.ID && r.Hash == one.Hash })
			if found = at >= 0; found {
				decided[i] = append(decided[i], some.Reports[at])
				break
			}
		}
		if !found {
			return fmt.Errorf("%s: %w", printable.Line(rawjson.Clip(one.ID, maxShownName)), page.ErrNotShown)
		}
	}
	for i, reports := range decided {
		switch {
		case len(reports) == 0:
			continue
		case owner:
			if err = Decide(ctx, h.store.Pins(), approve, reports, h.observer.record); err == nil {
				err = h.loop.do(ctx, h.loop.decisions)
			}
		case approve:
			err = h.rest.Decide(ctx, all[i].view, reports, nil)
		default:
			err = h.rest.Decide(ctx, all[i].view, nil, reports)
		}
		if errors.Is(err, store.ErrStale) || errors.Is(err, web.ErrStale) {
			return page.ErrNotShown
		}
		if err != nil {
			return err
		}
	}
	return nil
}
