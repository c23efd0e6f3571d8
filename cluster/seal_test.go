package cluster_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"toolfinch/cluster"
	"toolfinch/configs"
)

// key returns a key of the tests, which differs by n.
func key(n byte) configs.ClusterKey { return configs.ClusterKey{31: n} }

func seal(t testing.TB, keys ...configs.ClusterKey) *cluster.Seal {
	t.Helper()
	s, err := cluster.NewSeal(keys)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAnIDSaysWhereItsSessionLives(t *testing.T) {
	s := seal(t, key(1))
	for _, want := range []cluster.Place{
		{Home: cluster.Peer{ID: "R"}, View: "", Owner: cluster.OwnerOf("")},
		{Home: cluster.Peer{ID: "7QK2V4M9X3LPA", Address: "replica-1.internal:7391"}, View: "ops", Owner: cluster.OwnerOf("https://idp|alice")},
		{Home: cluster.Peer{ID: strings.Repeat("r", 255), Address: strings.Repeat("a", 255)}, View: strings.Repeat("v", 1000), Owner: cluster.OwnerOf("key|ci")},
	} {
		id := s.Make(want)
		if got, ok := s.Open(id); !ok || got != want {
			t.Errorf("Open(Make(%+v)) = %+v, %v", want, got, ok)
		}
		if id == s.Make(want) {
			t.Errorf("two sessions at %+v have the same ID", want)
		}
		if raw, _ := base64.RawURLEncoding.DecodeString(id); want.View != "" && strings.Contains(string(raw), want.View) {
			t.Errorf("the ID %q shows its view", id)
		}
	}
}

func TestNobodyElseMakesOrChangesAnID(t *testing.T) {
	ours, theirs := seal(t, key(1)), seal(t, key(2))
	place := cluster.Place{Home: cluster.Peer{ID: "R1"}, View: "ops", Owner: cluster.OwnerOf("alice")}
	id := ours.Make(place)
	raw, _ := base64.RawURLEncoding.DecodeString(id)
	for i := range raw {
		changed := append([]byte(nil), raw...)
		changed[i] ^= 1
		if got, ok := ours.Open(base64.RawURLEncoding.EncodeToString(changed)); ok {
			t.Errorf("with byte %d changed the ID opens: %+v", i, got)
		}
		if got, ok := ours.Open(base64.RawURLEncoding.EncodeToString(raw[:i])); ok {
			t.Errorf("cut to %d bytes the ID opens: %+v", i, got)
		}
	}
	for name, id := range map[string]string{
		"of another key": theirs.Make(place), "empty": "", "no base64": "***", "long": strings.Repeat("A", 1<<20), "as without replicas": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
	} {
		if got, ok := ours.Open(id); ok {
			t.Errorf("an ID %s opens: %+v", name, got)
		}
	}
}

// While a key is replaced, replicas know both, in either order.
func TestKeysAreReplacedWhileSessionsGoOn(t *testing.T) {
	place := cluster.Place{Home: cluster.Peer{ID: "R1"}, Owner: cluster.OwnerOf("")}
	before, added, first, after := seal(t, key(1)), seal(t, key(1), key(2)), seal(t, key(2), key(1)), seal(t, key(2))
	for _, step := range []struct {
		name         string
		makes, opens *cluster.Seal
		ok           bool
	}{
		{"one has the new key behind, one not at all", added, before, true},
		{"the other way around", before, added, true},
		{"one has it in front, one behind", first, added, true},
		{"the other way around", added, first, true},
		{"one has the new key alone", first, after, true},
		{"what the old key made ends with it", before, after, false},
	} {
		if _, ok := step.opens.Open(step.makes.Make(place)); ok != step.ok {
			t.Errorf("%s: the ID opens: %v", step.name, ok)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	s := seal(b, key(1), key(2))
	id := s.Make(cluster.Place{Home: cluster.Peer{ID: "7QK2V4M9X3LPA", Address: "replica-1.internal:7391"}, View: "ops", Owner: cluster.OwnerOf("alice")})
	for b.Loop() {
		if _, ok := s.Open(id); !ok {
			b.Fatal("does not open")
		}
	}
}
