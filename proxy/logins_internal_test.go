package proxy

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"

	"toolfinch/store"
	"toolfinch/store/vault"
)

// What clients are told of a vault names neither hosts nor paths; callers still know the error.
func TestFaultsOfTheVaultNameNoPlaces(t *testing.T) {
	v := loginVault{log: slog.New(slog.DiscardHandler)}
	for name, c := range map[string]struct {
		err  error
		says string
	}{
		"a folder":     {fmt.Errorf("vault: open /home/ann/locks: %w", fs.ErrPermission), "cannot be read or stored now"},
		"a database":   {fmt.Errorf("vault: lock x: %w", &store.Away{Err: errors.New("dial 10.1.2.3:5432 user=ann")}), "PostgreSQL"},
		"another user": {fmt.Errorf("vault: lock x: %w", vault.ErrLocked), "stays locked"},
	} {
		got := v.fault(t.Context(), c.err)
		if !errors.Is(got, errors.Unwrap(c.err)) || !strings.Contains(got.Error(), c.says) || strings.Contains(got.Error(), "10.1.2.3") || strings.Contains(got.Error(), "/home") {
			t.Errorf("%s is told as %v", name, got)
		}
	}
}
