package hf

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"toolfinch/embed/kernel"
)

// Shipped is the adapter of all-MiniLM-L6-v2 that comes with toolfinch.
// docs/research/retrieval.md says what it was trained on and what it gives.
//
//go:embed adapter.safetensors
var Shipped []byte

// ErrOtherModel is wrapped by the error of Adapt when the adapter was trained
// for another model.
var ErrOtherModel = errors.New("made for another model")

// maxRank bounds the rank of a change: no adapter may cost as much as the model.
const maxRank = 64

// Adapt reads an adapter, which from then on changes the vectors of queries
// (EmbedQueries) and of nothing else. Call it before the first text. The file is
// in safetensors' format and has, in F16, BF16 or F32, for any of the six maps of
// any layers, as in "encoder.layer.5.attention.self.query":
//
//	MAP.down  [rank, numbers that go into the map]
//	MAP.up    [numbers that come out of it, rank]
//	base      [hidden size]: the first row of encoder.layer.LAST.attention.self.query.weight
//
// To what a map makes of x, strength * up * down * x is added; strength is a
// text in the metadata, 1 if it is missing. base tells the model that the adapter
// was trained for; for another one the error wraps ErrOtherModel.
func (m *Model) Adapt(data []byte) error {
	w, err := parseWeights(inMemory{bytes.NewReader(data)}, int64(len(data)))
	if err != nil {
		return fmt.Errorf("adapter: %w", err)
	}
	layers, err := m.encoder.adapted(w)
	if err != nil {
		return fmt.Errorf("adapter: %w", err)
	}
	m.encoder.queries = layers
	return nil
}

type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

// adapted returns the layers with the changes of an adapter.
func (e *encoder) adapted(w *weights) ([]layer, error) {
	if err := e.isBaseOf(w); err != nil {
		return nil, err
	}
	strength, err := strengthOf(w.metadata)
	if err != nil {
		return nil, err
	}
	layers := slices.Clone(e.layers)
	known := map[string]bool{"base": true}
	for i := range layers {
		byProduct := map[*linear][]lowRank{}
		for _, m := range e.mappings(&layers[i]) {
			name := layerName(i) + m.name
			known[name+".down"], known[name+".up"] = true, true
			if _, ok := w.tensors[name+".down"]; !ok {
				if _, ok := w.tensors[name+".up"]; ok {
					return nil, fmt.Errorf("tensor %q has no .down beside it", name+".up")
				}
				continue
			}
			r, err := readLowRank(w, name, m, strength)
			if err != nil {
				return nil, err
			}
			byProduct[m.of] = append(byProduct[m.of], r)
		}
		for product, all := range byProduct {
			product.change = newChange(product.w.Columns(), all)
		}
	}
	for name := range w.tensors {
		if !known[name] {
			return nil, fmt.Errorf("tensor %q changes no map of the model, which has %d layers", name, len(layers))
		}
	}
	if len(w.tensors) == 1 {
		return nil, errors.New("it changes nothing: there is no tensor encoder.layer.N.MAP.down")
	}
	return layers, nil
}

// isBaseOf fails unless the adapter was trained for this model, in whatever precision.
func (e *encoder) isBaseOf(w *weights) error {
	const base = "base"
	if _, ok := w.tensors[base]; !ok {
		return fmt.Errorf("there is no tensor %q: is this an adapter that e2e/adapter/train.py wrote?", base)
	}
	want, err := w.read(base, e.hidden)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrOtherModel, err)
	}
	name := e.weights.prefix() + layerName(len(e.layers)-1) + "attention.self.query.weight"
	have := make([]float32, e.hidden)
	if err := e.weights.at(e.weights.tensors[name], 0, have, nil); err != nil {
		return fmt.Errorf("weights: tensor %q: %w", name, err)
	}
	for i := range want {
		if !(math.Abs(float64(want[i]-have[i])) <= 1e-6+1e-2*math.Abs(float64(have[i]))) {
			return fmt.Errorf("%w: number %d of its base is %g, and %g here", ErrOtherModel, i, want[i], have[i])
		}
	}
	return nil
}

// strengthOf reads the strength in an adapter's metadata.
func strengthOf(metadata json.RawMessage) (float32, error) {
	var texts struct {
		Strength string `json:"strength"`
	}
	if metadata == nil {
		return 1, nil
	}
	if err := json.Unmarshal(metadata, &texts); err != nil {
		return 0, fmt.Errorf("metadata: %w", err)
	}
	if texts.Strength == "" {
		return 1, nil
	}
	strength, err := strconv.ParseFloat(texts.Strength, 32)
	if err != nil || !(math.Abs(strength) <= 10) {
		return 0, fmt.Errorf("metadata: strength %q is no number from -10 to 10", texts.Strength)
	}
	return float32(strength), nil
}

// lowRank is the change of one map.
type lowRank struct {
	mapping
	rank     int
	down, up []float32 // rank x in, out x rank with all scales
}

func readLowRank(w *weights, name string, m mapping, strength float32) (r lowRank, err error) {
	r = lowRank{mapping: m, rank: w.tensors[name+".down"].rows()}
	if r.rank < 1 || r.rank > maxRank {
		return r, fmt.Errorf("tensor %q: the rank is %d, which must be from 1 to %d", name+".down", r.rank, maxRank)
	}
	if r.down, err = w.read(name+".down", r.rank, m.in); err != nil {
		return r, err
	}
	if r.up, err = w.read(name+".up", m.out, r.rank); err != nil {
		return r, err
	}
	scaleBy(r.up, m.scale*strength)
	for _, v := range slices.Concat(r.down, r.up) {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return r, fmt.Errorf("tensor %q or its .up has a number that is not finite", name+".down")
		}
	}
	return r, nil
}

// newChange puts the changes of the maps of one product side by side.
func newChange(columns int, all []lowRank) *change {
	ranks := 0
	for _, r := range all {
		ranks += r.rank
	}
	c := &change{kernel.NewPanels(all[0].in, ranks), kernel.NewPanels(ranks, columns)}
	from := 0
	for _, r := range all {
		for i := range r.rank {
			c.down.Set(from+i, r.down[i*r.in:(i+1)*r.in])
		}
		for i := range r.out {
			column := make([]float32, ranks)
			copy(column[from:], r.up[i*r.rank:(i+1)*r.rank])
			c.up.Set(r.column+i, column)
		}
		from += r.rank
	}
	return c
}
