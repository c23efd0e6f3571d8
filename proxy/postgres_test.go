package proxy_test

import (
	"strings"
	"testing"

	"toolfinch/proxy"
)

func TestAProxyDoesNotStartWithoutItsPostgres(t *testing.T) {
	config := configOf(t, nil)
	config.Store = "postgres://ann:Geheim123@127.0.0.1:1/toolfinch"
	for name, open := range map[string]func() error{
		"proxy":     func() error { _, err := proxy.Open(t.Context(), config); return err },
		"workspace": func() error { _, err := proxy.OpenWorkspace(t.Context(), config); return err },
	} {
		if err := open(); err == nil || !strings.Contains(err.Error(), "PostgreSQL") || strings.Contains(err.Error(), "Geheim") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
