package store

import (
	"reflect"
	"testing"
)

// What is stored of one server is what the methods for all servers say of it.
func TestListed(t *testing.T) { everywhere(t, testListed) }

func testListed(t *testing.T, s *Store) {
	putReviewed(t, s, Upstream{Name: "a", Instructions: "Use it."}, strict, def(t, "a", `{"name":"x"}`))
	putReviewed(t, s, Upstream{Name: "b", Instructions: "Use it."}, strict, def(t, "b", `{"name":"x"}`), def(t, "b", `{"name":"y"}`))
	putReviewed(t, s, Upstream{Name: "b", Instructions: "Use that."}, strict, def(t, "b", `{"name":"x","v":2}`), def(t, "b", `{"name":"y"}`))
	if err := s.Asks(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	servers, err := s.Servers(t.Context())
	if err != nil || servers[0].Interactive || !servers[1].Interactive {
		t.Fatalf("servers = %+v, %v", servers, err)
	}
	all, err := s.Pins().Unpinned(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Listed(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	if want := (&Listed{servers[1], tools(t, s)[1:], all}); !reflect.DeepEqual(got, want) {
		t.Errorf("Listed = %+v\nwant %+v", got, want)
	}
	if got, err := s.Listed(t.Context(), "c"); got != nil || err != nil {
		t.Errorf("of a server that is not stored: %+v, %v", got, err)
	}
}
