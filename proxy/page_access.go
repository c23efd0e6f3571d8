package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/proxy/web/page"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/trust/inbound"
	"toolfinch/trust/policy"
	"toolfinch/view"
)

// Access returns views, keys, policies and limits; only the views unless the user is the owner.
func (h paged) Access(ctx context.Context) (a page.Access, err error) {
	now := h.now.Load()
	root := h.rootOf(now.Config)
	for _, v := range h.viewsOf(ctx) {
		a.Views = append(a.Views, glance(v, v.Name == root))
	}
	if !h.owner(ctx) {
		return a, nil
	}
	auth := h.first.Auth
	a.Mode, a.TakesKeys, a.Scopes, a.Header, a.Listen = auth.Mode, h.desk.entrance.TakesKeys(), auth.Scopes, h.first.PrincipalHeader, h.first.Listen
	a.Open = auth.Mode == inbound.None && beyond(h.first.Listen)
	for _, issuer := range auth.Issuers {
		a.Issuers = append(a.Issuers, issuer.URL)
	}
	short := func(file string) string {
		if file == now.Config.Path {
			return filepath.Base(file)
		}
		return file
	}
	a.Policies, a.Denied = now.Config.Policies.Rules(), map[string]int64{}
	for i := range a.Policies {
		a.Policies[i].File = short(a.Policies[i].File)
	}
	for _, text := range now.Config.Policies.Texts() {
		text.Cedar, text.File = now.Config.Masked(text.Cedar), short(text.File)
		a.Texts = append(a.Texts, text)
	}
	h.denials.each(func(policy string, n int64) { a.Denied[policy] = n })
	for i, one := range now.Limits.Limits() {
		a.Rates = append(a.Rates, page.Rate{What: now.Config.RateLimits[i].String(), Hits: one.Hits()})
	}
	for _, one := range h.bounds() {
		if one.Hits() > 0 && !slices.Contains(now.Limits.Limits(), one) {
			a.Limits = append(a.Limits, one)
		}
	}
	a.KeyViews = now.Config.ViewNames()
	if a.Keys, err = h.store.Keys().All(ctx); err != nil {
		return a, fmt.Errorf("the keys could not be read: %w", err)
	}
	return a, nil
}

// beyond reports whether other machines may reach an address of the configuration.
func beyond(listen string) bool {
	at, err := netip.ParseAddrPort(listen)
	return listen != "" && (err != nil && !strings.HasPrefix(listen, "localhost:") || err == nil && !at.Addr().IsLoopback())
}

// glance returns a view in the form that the page shows.
func glance(v *View, root bool) page.Shown {
	s := page.Shown{
		Name: v.Name, Path: "/mcp/" + v.Name, Description: v.Settings.Description, Root: root, Exposure: v.Shown.Mode,
		Tools: v.Catalog.Len(), Tokens: v.Catalog.ListingCost(), Prompts: len(v.Catalog.Items(tool.KindPrompt)),
		Resources: len(v.Catalog.Items(tool.KindResource)) + len(v.Catalog.Items(tool.KindTemplate)) + len(v.Catalog.Items(tool.KindSkill)),
		ReadOnly:  v.Settings.Allow == view.AllowReadOnly,
	}
	if root {
		s.Path = "/mcp"
	}
	if g := v.Settings.Gating; g != nil {
		s.Gated = &page.Budget{Tools: g.MaxTools, Tokens: g.MaxTokens}
	}
	return s
}

// Ask returns how the policies decide a question about a view.
func (h paged) Ask(ctx context.Context, q policy.Question) (policy.Verdict, error) {
	v, err := h.view(ctx, q.View)
	if err != nil {
		return policy.Verdict{}, err
	}
	return v.Ask(h.now.Load().Config.Policies, q)
}

// MakeKey makes and stores an API key. It returns the text of the key, which is not stored.
func (h paged) MakeKey(ctx context.Context, wanted inbound.KeyRequest) (text string, key identity.Key, err error) {
	text, key, err = wanted.Make(h.first.Auth, h.now.Load().Config.ViewNames(), time.Now())
	if err != nil {
		return "", key, err
	}
	switch err := h.store.Keys().Add(ctx, key); {
	case errors.Is(err, store.ErrKeyExists):
		return "", key, &identity.FieldError{Text: fmt.Sprintf("there is a key %q: choose another name, or revoke it first", key.Name)}
	case err != nil:
		return "", key, err
	}
	h.observer.record(ctx, key.Event("made"))
	return text, key, nil
}

// Revoke revokes an API key.
func (h paged) Revoke(ctx context.Context, name string) error {
	key, err := h.store.Keys().Revoke(ctx, name)
	if err != nil {
		return err
	}
	if key == nil {
		return fmt.Errorf("there is no key %q", cmp.Or(rawjson.Clip(name, maxShownName), "of that name"))
	}
	h.desk.entrance.Forget()
	wake(h.desk.keysChanged)
	h.observer.record(ctx, key.Event("revoked"))
	return nil
}
