// Package embed owns the way from text to vectors: a local model or any endpoint
// with OpenAI's embeddings API, and a cache, so that no text is embedded twice. It
// fetches no models, searches nothing and has no store of its own.
package embed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
)

// Role is the purpose of an embedded text. Some models distinguish the two.
type Role int

// The roles of a text.
const (
	Document Role = iota // a tool's text, to be found
	Query                // what a client looks for
)

// Embedder turns texts into vectors. It is safe for concurrent use until Close.
type Embedder interface {
	// ID names the vector space: the kind, the model, and the hash of its weights
	// or the number of dimensions asked for. Vectors of different IDs are never
	// compared. It holds no secret and never changes.
	ID() string
	// Embed returns one vector per text, in order: finite, of length 1, all of one
	// dimension; nil for a document that it cannot embed while it can others. It takes any
	// number of texts and cuts them into batches itself.
	Embed(ctx context.Context, role Role, texts []string) ([][]float32, error)
	// Close releases the model or the connections.
	Close() error
}

// Kinds of embedder.
const (
	KindAuto   = "AUTO"   // HF when its model is there, else BM25
	KindBM25   = "BM25"   // none: words alone
	KindHF     = "HF"     // a local sentence-transformers model
	KindOpenAI = "OPENAI" // an endpoint with OpenAI's embeddings API
)

// DefaultOpenAIModel is the model asked for when none is named.
const DefaultOpenAIModel = "text-embedding-3-small"

// Settings choose an embedder. The zero value is AUTO with the default model.
type Settings struct {
	Kind      string // KindAuto (default), KindBM25, KindHF or KindOpenAI
	HFModel   string // default models.DefaultModel
	HFAdapter string // AdapterAuto (default), AdapterOff, or the path of a file that hf.Model.Adapt takes
	OpenAI    OpenAI
}

// Adapters of the local model. An adapter changes the vectors of queries; those
// of documents, and the ID, stay.
const (
	AdapterAuto = "auto" // the one that comes with toolfinch for models.DefaultModel, none for others
	AdapterOff  = "off"
)

// OpenAI says which endpoint to ask, and for what.
type OpenAI struct {
	APIKey     Secret // sent as bearer token; "" for servers that want none
	BaseURL    string // default https://api.openai.com/v1
	Model      string // default DefaultOpenAIModel
	Dimensions int    // length of the vectors to ask for; 0 for the model's own
	MaxBytes   int    // of a text, at most and by default MaxText; the rest is not sent
}

// Secret is a text that nobody prints by accident: fmt, slog and encoding/json
// write *** for it. string(s) is the text.
type Secret string

// String returns ***, or "" for no secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "***"
}

// Format writes String for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText returns String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ErrNoModel is wrapped by the error of Open when the local model is missing,
// damaged, or of a kind that cannot be run. Searching by words works without it.
var ErrNoModel = errors.New("no usable local embedding model")

// normalize scales v to length 1, in place. It reports false for what has no
// direction: nothing, zeros, infinities.
func normalize(v []float32) bool {
	sum := squares(v) // of float32 in float64: it neither overflows nor vanishes
	if !(sum > 0) || math.IsInf(sum, 1) {
		return false
	}
	length := math.Sqrt(sum)
	for i, x := range v {
		v[i] = float32(float64(x) / length)
	}
	return true
}

// isUnit reports whether v is a vector as an Embedder returns it. It is none when
// a number in it is not finite, or when its bytes are not those of floats.
func isUnit(v []float32) bool { return math.Abs(squares(v)-1) < 1e-2 }

func squares(v []float32) float64 {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return sum
}
