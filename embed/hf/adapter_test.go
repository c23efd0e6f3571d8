package hf

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// The reference adds the changes to the weights, in float64; this package
// keeps them apart.
func TestAdaptedVectorsAreThoseOfTheReference(t *testing.T) {
	for _, c := range []struct {
		name   string
		open   func(*testing.T) *Model
		data   func(*testing.T) []byte
		golden string
	}{
		{"tiny", models["tiny"], tinyAdapter, "tiny-f16/adapted.json"},
		{"the one that is shipped", models["real"], func(*testing.T) []byte { return Shipped }, "adapted.json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := c.open(t)
			var golden []embedded
			readTestdata(t, c.golden, &golden)
			texts := make([]string, len(golden))
			for i, g := range golden {
				texts[i] = g.Text
			}
			plain, hash := embed(t, m, texts...), m.Hash()
			must.Do(t, m.Adapt(c.data(t)))
			queries := must.Get(m.EmbedQueries(t.Context(), texts))(t)
			documents := embed(t, m, texts...)
			for i, g := range golden {
				if worst := distance(queries[i], g.Vector); worst > 1e-5 {
					t.Errorf("%.60q: a number of the query is off by %g", g.Text, worst)
				}
				if worst := distance(queries[i], plain[i]); worst < 1e-3 {
					t.Errorf("%.60q: the adapter changes no number by more than %g", g.Text, worst)
				}
				if worst := distance(documents[i], plain[i]); worst > 1e-6 {
					t.Errorf("%.60q: the document has changed by %g", g.Text, worst)
				}
			}
			if m.Hash() != hash {
				t.Error("the hash has changed: all tools would be embedded again")
			}
		})
	}
}

func TestWithoutAnAdapterQueriesAreDocuments(t *testing.T) {
	m := openTiny(t, "tiny-f16")
	texts := mixed(20)
	queries := must.Get(m.EmbedQueries(t.Context(), texts))(t)
	for i, document := range embed(t, m, texts...) {
		if worst := distance(queries[i], document); worst > 1e-6 {
			t.Errorf("text %d: off by %g", i, worst)
		}
	}
}

func TestAdaptRefuses(t *testing.T) {
	const changed = "encoder.layer.0.attention.self.query"
	shape := func(name string, n ...int64) func(map[string]any) {
		return func(header map[string]any) { header[name].(map[string]any)["shape"] = n }
	}
	for _, c := range []struct {
		name   string
		change func(header map[string]any) // of the tiny adapter; nil: data
		data   []byte
		says   string
		other  bool // the error wraps ErrOtherModel
	}{
		{name: "nothing", says: "no header"},
		{name: "a page", data: []byte("<!doctype html><title>404</title>"), says: "header"},
		{name: "an adapter of another model", data: Shipped, says: "shape [384], want [21]", other: true},
		{name: "a model", data: fileOf(t, "tiny-f16/model.safetensors"), says: `no tensor "base"`},
		{name: "no base", change: func(h map[string]any) { delete(h, "base") }, says: `no tensor "base"`},
		{name: "another base of the same shape", change: func(h map[string]any) {
			h["base"] = map[string]any{"dtype": "F32", "shape": []int{21}, "data_offsets": offsetsOf(h, changed+".down")}
			delete(h, changed+".down")
		}, says: "number 0 of its base", other: true},
		{name: "half of a change", change: func(h map[string]any) { delete(h, changed+".up") }, says: `no tensor "` + changed + `.up"`},
		{name: "the other half", change: func(h map[string]any) { delete(h, changed+".down") }, says: "has no .down"},
		{name: "nothing but a base", change: func(h map[string]any) {
			maps.DeleteFunc(h, func(name string, _ any) bool { return strings.HasPrefix(name, "encoder") })
		}, says: "changes nothing"},
		{name: "a turned matrix", change: shape(changed+".down", 21, 1), says: "shape [21 1], want [21 21]"},
		{name: "a flat matrix", change: shape(changed+".up", 21), says: "shape [21], want [21 1]"},
		{name: "a layer that is not there", change: func(h map[string]any) {
			h["encoder.layer.2.output.dense.up"] = h[changed+".up"]
			delete(h, changed+".up")
			delete(h, changed+".down")
		}, says: "encoder.layer.2.output.dense.up"},
		{name: "a type that is not read", change: func(h map[string]any) { h[changed+".up"].(map[string]any)["dtype"] = "I32" }, says: "I32"},
		{name: "no number for a strength", change: func(h map[string]any) { h["__metadata__"] = map[string]any{"strength": "much"} }, says: `"much"`},
		{name: "an absurd strength", change: func(h map[string]any) { h["__metadata__"] = map[string]any{"strength": "1e9"} }, says: `"1e9"`},
		{name: "a strength that is none", change: func(h map[string]any) { h["__metadata__"] = map[string]any{"strength": "NaN"} }, says: `"NaN"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := openTiny(t, "tiny-f16")
			data := c.data
			if c.change != nil {
				data = withHeader(t, tinyAdapter(t), c.change)
			}
			before := embed(t, m, "tool")[0]
			err := m.Adapt(data)
			if err == nil || !strings.Contains(err.Error(), c.says) || errors.Is(err, ErrOtherModel) != c.other {
				t.Fatalf("got %v, want it to say %s", err, c.says)
			}
			after, err := m.EmbedQueries(t.Context(), []string{"tool"})
			if err != nil || distance(before, after[0]) > 1e-6 {
				t.Errorf("a refused adapter changes queries (%v)", err)
			}
		})
	}
}

// A rank beyond the bound and a number that is not finite need other bytes.
func TestAdaptRefusesNumbers(t *testing.T) {
	base := tinyAdapter(t)
	infinite := slices.Clone(base)
	binary.LittleEndian.PutUint32(infinite[len(infinite)-4:], 0x7f800000)
	if err := openTiny(t, "tiny-f16").Adapt(infinite); err == nil || !strings.Contains(err.Error(), "not finite") {
		t.Errorf("infinity: %v", err)
	}
	wide := withHeader(t, append(slices.Clone(base), make([]byte, 4*21*65)...), func(h map[string]any) {
		end := len(base) - 8 - int(binary.LittleEndian.Uint64(base))
		h["encoder.layer.0.attention.self.query.down"] = map[string]any{"dtype": "F32", "shape": []int{65, 21}, "data_offsets": []int{end, end + 4*21*65}}
	})
	if err := openTiny(t, "tiny-f16").Adapt(wide); err == nil || !strings.Contains(err.Error(), "the rank is 65") {
		t.Errorf("rank 65: %v", err)
	}
}

func fileOf(t *testing.T, name string) []byte {
	t.Helper()
	return must.Get(os.ReadFile(filepath.Join("testdata", name)))(t)
}

func tinyAdapter(t *testing.T) []byte {
	t.Helper()
	return fileOf(t, "tiny-f16/adapter.safetensors")
}

func offsetsOf(header map[string]any, name string) any {
	return header[name].(map[string]any)["data_offsets"]
}

// withHeader returns a safetensors file with a changed header.
func withHeader(t *testing.T, data []byte, change func(map[string]any)) []byte {
	t.Helper()
	end := 8 + binary.LittleEndian.Uint64(data)
	var header map[string]any
	must.Do(t, json.Unmarshal(data[8:end], &header))
	change(header)
	text := must.Get(json.Marshal(header))(t)
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text, data[end:])
}
