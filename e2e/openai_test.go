//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"unicode"
)

// secretKey is the key of the endpoint. It must show nowhere.
const secretKey = "sk-hunter2-0123456789abcdef"

// endpoint stands for a server with OpenAI's embeddings API, such as Ollama: a
// text's vector counts its words, and some words mean the same.
type endpoint struct {
	url string

	mu    sync.Mutex     // guards all below; not held while a request is answered
	state state          // how it behaves
	asked map[string]int // how often it was asked for a text
}

// state is how an endpoint behaves.
type state int

const (
	up      state = iota
	refuses       // it does not like the key, and repeats it
)

var sameMeaning = map[string]string{"erase": "delete", "deletes": "delete", "throw": "delete", "memo": "note"}

func newEndpoint(t *testing.T) *endpoint {
	t.Helper()
	e := &endpoint{asked: map[string]int{}}
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	e.url = server.URL + "/v1"
	return e
}

// env makes toolfinch use the endpoint.
func (e *endpoint) env() []string {
	return []string{"MCPPROXY_EMBEDDER=OPENAI", "OPENAI_BASE_URL=" + e.url, "OPENAI_API_KEY=" + secretKey, "MCPPROXY_OPENAI_MODEL=words"}
}

func (e *endpoint) become(s state) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.state = s
}

// isDocument tells the text of a tool from a query of these tests.
func isDocument(text string) bool { return strings.Contains(text, ":") }

// documents is how often it was asked for the text of a tool.
func (e *endpoint) documents() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	sum := 0
	for text, n := range e.asked {
		if isDocument(text) {
			sum += n
		}
	}
	return sum
}

// times is how often it was asked for a text.
func (e *endpoint) times(text string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked[text]
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Model string
		Input []string
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || r.URL.Path != "/v1/embeddings" || request.Model != "words" {
		http.Error(w, "no such page", http.StatusNotFound)
		return
	}
	e.mu.Lock()
	state := e.state
	for _, text := range request.Input {
		e.asked[text]++
	}
	e.mu.Unlock()
	switch {
	case state == refuses || r.Header.Get("Authorization") != "Bearer "+secretKey:
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error": {"message": "Incorrect API key provided: %s", "type": "invalid_request_error"}}`, secretKey)
		return
	}
	type row struct {
		Index     int       `json:"index"`
		Embedding []float32 `json:"embedding"`
	}
	answer := struct {
		Data []row `json:"data"`
	}{}
	for i, text := range request.Input {
		answer.Data = append(answer.Data, row{i, countWords(text)})
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// countWords is a vector with a number for each word. The first number keeps it
// from being zero.
func countWords(text string) []float32 {
	v := make([]float32, 256)
	v[0] = 0.1
	for _, word := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) }) {
		if same, ok := sameMeaning[word]; ok {
			word = same
		}
		hash := fnv.New32a()
		_, _ = io.WriteString(hash, word)
		v[1+hash.Sum32()%255]++
	}
	return v
}

// An endpoint embeds every tool once, whatever happens, and finds by meaning.
func TestOpenAIEndpoint(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	shop, describe := newShop(t)
	describe("Paint a fence")
	h := newPlainHouse(t, map[string]string{"shop": shop}, e.env()...)
	const all = builtInTools + 1

	l := h.start(t)
	c := l.client(t)
	a := c.askUntil(t, "erase a memo", func(a answer) bool { return a.complete(all) })
	if a.first() != "notes_delete" {
		t.Errorf("found is %+v", a.Tools)
	}
	if got := c.askInTime(t, "query_json").first(); got != "text_query_json" {
		t.Errorf("the name of a tool finds %s first", got)
	}
	if got := e.times("erase a memo"); got != 1 {
		t.Errorf("the endpoint was asked %d times for one query", got)
	}
	describe("Cook a soup")
	c.askUntil(t, "cook a soup", func(a answer) bool {
		return a.complete(all) && a.first() == "shop_work" && a.Tools[0].Description == "Cook a soup"
	})
	l.stop(t)

	l = h.start(t)
	l.client(t).askUntil(t, "erase a memo", func(a answer) bool { return a.complete(all) && a.Index.Ready == 6 })
	l.stop(t)
	if got := e.documents(); got != all+1 {
		t.Errorf("the endpoint was asked for %d texts of tools, want %d and one that changed", got, all)
	}
	h.onlyOnce(t, map[string]int{"openai": all + 1})
}

// An endpoint that refuses costs the vectors only, and who reads the log learns
// why, but not the key.
func TestOpenAIEndpointRefusesTheKey(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t)
	e.become(refuses)
	h := newPlainHouse(t, nil, e.env()...)
	l := h.start(t)
	c := l.client(t)
	a := c.askUntil(t, "delete a note", func(a answer) bool { return a.Index.Ready == 5 })
	if a.Index.Search != "words" || !strings.Contains(a.Index.Reason, "embedder") || a.first() != "notes_delete" {
		t.Errorf("the answer is %+v", a)
	}
	l.healthy(t)
	l.log.wait(t, 0, "check OPENAI_API_KEY")
	l.stop(t)
	if strings.Contains(l.log.String(), secretKey) {
		t.Errorf("the key is in the log:\n%s", l.log)
	}

	for _, args := range [][]string{{"search", "delete a note"}, {"search", "--json", "delete a note"}, {"reindex"}} {
		out, said := h.said(t, args...)
		if !strings.Contains(said, "check OPENAI_API_KEY") {
			t.Errorf("%v does not say why there are no vectors: %s", args, said)
		}
		if strings.Contains(out+said, secretKey) {
			t.Errorf("%v shows the key: %s%s", args, out, said)
		}
		if !strings.Contains(out, "notes") {
			t.Errorf("%v printed %s", args, out)
		}
	}
}
