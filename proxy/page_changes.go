package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/proxy/web"
	"toolfinch/proxy/web/page"
	"toolfinch/trust/inbound"
	"toolfinch/trust/pins"
)

// pins returns the held definitions that the user may see. The owner sees all. Other users see the definitions of
// servers that one of their views contains as a whole.
func (h paged) pins(ctx context.Context) (Pins, error) {
	if h.owner(ctx) {
		return h.rest.pins(ctx, h.serves)
	}
	whole := map[string]bool{}
	for _, v := range h.viewsOf(ctx) {
		in, err := h.rest.View(ctx, v.Name)
		if err != nil {
			continue // the view was just removed
		}
		for _, s := range v.Contents.Servers {
			whole[s.Name] = whole[s.Name] || in.Whole(s.Name)
		}
	}
	return h.rest.pins(ctx, func(server string) bool { return whole[server] })
}

// Waiting returns the held definitions by server, including rejected ones. The second result says why the user may not
// decide; it is nil if the user may.
func (h paged) Waiting(ctx context.Context) (servers []page.HeldServer, may, err error) {
	if !h.owner(ctx) {
		may = h.Permit(ctx, inbound.Destructive, "deciding what servers have changed")
	}
	all, err := h.pins(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("what is held could not be read: %w", err)
	}
	config := h.now.Load().Config
	for _, r := range all.Reports { // by server
		if n := len(servers); n == 0 || servers[n-1].Name != r.ID.Server {
			servers = append(servers, page.HeldServer{Name: r.ID.Server, Mode: cmp.Or(config.Changes[r.ID.Server], pins.Review), Versions: all.Versions[r.ID.Server]})
		}
		last := &servers[len(servers)-1]
		last.Reports = append(last.Reports, r)
	}
	return servers, may, nil
}

// Decided approves or rejects the chosen definitions, all or nothing. If a definition is no longer as shown, the error
// wraps page.ErrNotShown.
func (h paged) Decided(ctx context.Context, approve bool, chosen []page.Choice) error {
	if !h.owner(ctx) {
		if err := h.Permit(ctx, inbound.Destructive, "deciding what servers have changed"); err != nil {
			return err
		}
	}
	all, err := h.pins(ctx)
	if err != nil {
		return err
	}
	decided := make([]pins.Report, len(chosen))
	for i, c := range chosen {
		at := slices.IndexFunc(all.Reports, func(r pins.Report) bool { return r.ID.String() == c.ID && r.Hash == c.Hash })
		if at < 0 {
			return fmt.Errorf("%s: %w", printable.Line(rawjson.Clip(c.ID, maxShownName)), page.ErrNotShown)
		}
		decided[i] = all.Reports[at]
	}
	if approve {
		err = h.rest.Decide(ctx, decided, nil)
	} else {
		err = h.rest.Decide(ctx, nil, decided)
	}
	if errors.Is(err, web.ErrStale) {
		return page.ErrNotShown
	}
	return err
}
