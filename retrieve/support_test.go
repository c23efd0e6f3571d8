package retrieve

import (
	"testing"

	"toolfinch/internal/must"
	"toolfinch/tool"
)

// readBy is a catalog of servers whose unlisted resources handler reads; pins are
// globs.
func readBy(t testing.TB, handler func(*tool.Def) tool.Handler, servers []Server, pins ...string) *Catalog {
	t.Helper()
	root := NewCatalog(handler)
	t.Cleanup(func() { _ = root.Close() })
	return with(t, root, servers, pins...)
}

// with is catalog.With, of what the views of these tests reserve.
func with(t testing.TB, catalog *Catalog, servers []Server, pins ...string) *Catalog {
	t.Helper()
	next := must.Get(catalog.With(t.Context(), Contents{Servers: servers, Reserved: Reserved(), Pins: pins}))(t)
	return next
}
