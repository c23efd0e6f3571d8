package hf

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sort"
)

// maxHeader bounds the header of a weights file; real ones have 10 to 100 kB.
const maxHeader = 16 << 20

// weights is an open safetensors file: eight bytes with the length of the header, the header in JSON, the numbers.
type weights struct {
	file     file
	data     int64 // offset of the numbers
	tensors  map[string]tensor
	metadata json.RawMessage // usually an object of texts
}

type file interface {
	io.ReaderAt
	io.Closer
}

type tensor struct {
	Type    string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// widths are the bytes per number of the supported types.
var widths = map[string]int64{"F32": 4, "F16": 2, "BF16": 2}

func openWeights(name string) (_ *weights, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("weights: %w", err), file.Close())
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return parseWeights(file, info.Size())
}

// parseWeights reads the header of a file of size bytes.
func parseWeights(file file, bytes int64) (*weights, error) {
	var size [8]byte
	if _, err := file.ReadAt(size[:], 0); err != nil {
		return nil, fmt.Errorf("no header: %w", err)
	}
	n := binary.LittleEndian.Uint64(size[:])
	if n > maxHeader || int64(n) > bytes-8 {
		return nil, fmt.Errorf("a header of %d bytes in a file of %d", n, bytes)
	}
	header := make([]byte, n)
	if _, err := file.ReadAt(header, 8); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	w := &weights{file: file, data: 8 + int64(n)}
	var err error
	w.tensors, w.metadata, err = parseHeader(header, bytes-w.data)
	return w, err
}

// prefix begins the names of all tensors of some models.
func (w *weights) prefix() string {
	if _, ok := w.tensors["bert.embeddings.word_embeddings.weight"]; ok {
		return "bert."
	}
	return ""
}

// parseHeader reads the table of tensors and checks that each lies within the
// size bytes of numbers and that none overlap.
func parseHeader(header []byte, size int64) (_ map[string]tensor, metadata json.RawMessage, _ error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(header, &raw); err != nil {
		return nil, nil, fmt.Errorf("header: %w", err)
	}
	metadata = raw["__metadata__"]
	delete(raw, "__metadata__")
	tensors := make(map[string]tensor, len(raw))
	var all []tensor
	for name, text := range raw {
		var t tensor
		if err := json.Unmarshal(text, &t); err != nil {
			return nil, nil, fmt.Errorf("header: tensor %q: %w", name, err)
		}
		from, to := t.Offsets[0], t.Offsets[1]
		if from < 0 || to < from || to > size {
			return nil, nil, fmt.Errorf("tensor %q lies at %d to %d of %d bytes; the file is cut short or damaged", name, from, to, size)
		}
		if width, known := widths[t.Type]; known && (t.length() < 0 || t.length()*width != to-from) {
			return nil, nil, fmt.Errorf("tensor %q: shape %v does not fit its %d bytes of %s", name, t.Shape, to-from, t.Type)
		}
		tensors[name] = t
		all = append(all, t)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Offsets[0] < all[j].Offsets[0] })
	for i := 1; i < len(all); i++ {
		if all[i].Offsets[0] < all[i-1].Offsets[1] {
			return nil, nil, fmt.Errorf("tensors overlap at byte %d", all[i].Offsets[0])
		}
	}
	return tensors, metadata, nil
}

// length returns the number of numbers; -1 for an invalid shape.
func (t tensor) length() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		if d < 0 || d > 0 && n > math.MaxInt32/int64(d) {
			return -1
		}
		n *= int64(d)
	}
	return n
}

// find returns a tensor with this shape.
func (w *weights) find(name string, shape ...int) (tensor, error) {
	t, ok := w.tensors[name]
	switch {
	case !ok:
		return t, fmt.Errorf("weights: no tensor %q", name)
	case !slices.Equal(t.Shape, shape):
		return t, fmt.Errorf("weights: tensor %q has shape %v, want %v", name, t.Shape, shape)
	case widths[t.Type] == 0:
		return t, fmt.Errorf("weights: tensor %q is of type %s; F32, F16 and BF16 can be read", name, t.Type)
	}
	return t, nil
}

// read returns a whole tensor.
func (w *weights) read(name string, shape ...int) ([]float32, error) {
	t, err := w.find(name, shape...)
	if err != nil {
		return nil, err
	}
	out := make([]float32, t.length())
	if err := w.at(t, 0, out, nil); err != nil {
		return nil, fmt.Errorf("weights: tensor %q: %w", name, err)
	}
	return out, nil
}

// at reads the numbers of t from number first into out. It uses buffer for their bytes, if that is large enough.
func (w *weights) at(t tensor, first int, out []float32, buffer []byte) error {
	width := widths[t.Type]
	need := len(out) * int(width)
	if cap(buffer) < need {
		buffer = make([]byte, need)
	}
	buffer = buffer[:need]
	if _, err := w.file.ReadAt(buffer, w.data+t.Offsets[0]+int64(first)*width); err != nil && !errors.Is(err, io.EOF) {
		return err
	} else if err != nil {
		return io.ErrUnexpectedEOF
	}
	switch t.Type {
	case "F32":
		for i := range out {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(buffer[4*i:]))
		}
	case "F16":
		for i := range out {
			out[i] = fromF16(binary.LittleEndian.Uint16(buffer[2*i:]))
		}
	case "BF16": // the upper half of a float32
		for i := range out {
			out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(buffer[2*i:])) << 16)
		}
	}
	return nil
}

// fromF16 is exact: every number of IEEE 754 half precision is a float32.
func fromF16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exponent := uint32(h>>10) & 0x1f
	fraction := uint32(h & 0x3ff)
	switch exponent {
	case 0: // zero and subnormal numbers
		f := float32(fraction) / (1 << 24)
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 0x1f: // infinite, or not a number
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}
