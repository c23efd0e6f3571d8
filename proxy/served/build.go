package served

import (
	"context"
	"fmt"
	"slices"

	"toolfinch/configs"
	"toolfinch/view"
)

// Build makes what is served of in. Views of before that nothing has changed stay the same values. The error is
// that of a catalog; nothing that is served has changed then.
func Build(ctx context.Context, in Input, before *Served, run Runtime) (*Served, error) {
	b := &builder{in, run, before, &Served{Config: in.Config, ByName: map[string]*View{}, Limits: in.Limits, Held: map[string]int{}, Complete: true}}
	for _, server := range in.Config.Servers {
		listing := in.Listings[server.Name]
		b.next.Complete = b.next.Complete && listing.Answered
		if listing.Waiting > 0 {
			b.next.Held[server.Name] = listing.Waiting
		}
	}
	plans, problems := b.plan()
	b.next.Problems = problems
	if in.Accept != nil {
		if err := in.Accept(problems); err != nil {
			return nil, err
		}
	}
	for _, plan := range plans {
		if err := b.add(ctx, plan); err != nil {
			return nil, err
		}
	}
	if in.Config.Root() == configs.RootViews {
		root := b.planRoot()
		b.next.Problems = append(b.next.Problems, root.problems...)
		if err := b.add(ctx, root); err != nil {
			return nil, err
		}
	}
	next := b.next
	b.before, b.next, b.Listings = nil, nil, nil // views keep the builder for the parts of their parties
	return next, nil
}

// add completes a planned view and adds it, the default view before the others.
func (b *builder) add(ctx context.Context, next plan) (err error) {
	v := next.View
	if b.next.ByName[v.Name] = v; v.Name == view.Default {
		b.next.Views = slices.Insert(b.next.Views, 0, v)
	} else {
		b.next.Views = append(b.next.Views, v)
	}
	if next.same {
		return nil
	}
	v.live = b.Live(v.Name)
	b.addLayers(next)
	if v.Catalog, err = b.Catalog(ctx, v.Name, v.Contents); err != nil {
		return fmt.Errorf("view %s: %w", v.Name, err)
	}
	v.Retriever = b.newRetriever(next)
	if v.live != nil {
		b.show(next)
		b.group(next)
		b.divide(next)
	}
	return nil
}
