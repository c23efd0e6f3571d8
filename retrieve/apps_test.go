package retrieve

import (
	"testing"

	"toolfinch/index"
	"toolfinch/tool"
)

// withApp is a server with a tool that an app shows, one for apps alone, and one
// for models alone.
func withApp(t *testing.T, name, only string) Server {
	return Server{Name: name, Tools: tool.Of([]*tool.Def{
		def(t, name, `{"name":"weather","description":"Show the weather","_meta":{"ui":{"resourceUri":"ui://`+name+`/main"}}}`),
		def(t, name, `{"name":"`+only+`","description":"Refresh the weather","_meta":{"ui":{"visibility":["app"]}}}`),
		def(t, name, `{"name":"plan","description":"Plan for the weather","_meta":{"ui":{"visibility":["model"]}}}`),
	}, echo)}
}

func TestToolsForAppsAloneAreNotOfferedToModels(t *testing.T) {
	c := catalogOf(t, withApp(t, "a", "refresh"))
	c, err := c.With(t.Context(), Contents{Servers: c.Servers(), Pins: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	const want = "a_plan a_weather"
	if got := toolNames(c.Tools()); got != want {
		t.Errorf("listed: %s, want %s", got, want)
	}
	if got := toolNames(c.Pinned()); got != want {
		t.Errorf("pinned: %s, want %s", got, want)
	}
	found, err := c.Search(t.Context(), index.Query{Text: "refresh weather", Limit: 10})
	if err != nil || len(found.Hits) != 2 {
		t.Errorf("found: %v, %v", found.Hits, err)
	}
	if one, ok := c.Lookup("a_refresh"); !ok || one.Def.ID.Name != "refresh" {
		t.Error("it cannot be called by its exposed name")
	}
}

func TestAnAppsToolIsItsServers(t *testing.T) {
	plain := Server{Name: "plain", Tools: tool.Of([]*tool.Def{def(t, "plain", `{"name":"refresh"}`), def(t, "plain", `{"name":"other"}`)}, echo)}
	c := catalogOf(t, withApp(t, "a", "refresh"), withApp(t, "b", "refresh"), withApp(t, "c", "update"), plain)
	for _, test := range []struct {
		name string
		open []string
		want string // ID, "" for none
	}{
		{"update", nil, "c.update"},
		{"refresh", nil, ""}, // of two
		{"refresh", []string{"b", "a"}, "b.refresh"},
		{"refresh", []string{"c", "a"}, "a.refresh"},
		{"refresh", []string{"plain"}, ""}, // it has no app
		{"update", []string{"a"}, ""},      // not of that app's server
		{"plan", []string{"a"}, ""},        // not for apps
		{"other", nil, ""},
	} {
		got, ok := c.OfApp(test.name, test.open)
		if ok != (test.want != "") || ok && got.Def.ID.String() != test.want {
			t.Errorf("%s with the apps of %v: %v, want %s", test.name, test.open, got, test.want)
		}
	}
}
