package upstream

import (
	"encoding/json"
	"sync"

	"toolfinch/internal/rawjson"
)

// maxAskID bounds the IDs of a server's requests and URLs, in bytes.
const maxAskID = 1 << 10

// maxOpened bounds the URLs of a server that are remembered with their clients.
const maxOpened = 1000

// openURLs are the clients that were asked to open a URL, by the ID of the URL, so that
// the client is told when the user is done. A changed server and its successor share them,
// because either of them may ask and either may report the end.
type openURLs struct {
	mu      sync.Mutex        // guards the fields below; never held over I/O
	clients map[string]string // keys of clients
	order   []string          // the IDs, the oldest first
}

func newOpenURLs() *openURLs { return &openURLs{clients: map[string]string{}} }

// add notes the client that is asked to open a URL by an elicitation/create with params.
func (o *openURLs) add(params json.RawMessage, key string) {
	id := rawjson.Text(rawjson.Member(params, "elicitationId"))
	if id == "" || len(id) > maxAskID || key == "" || rawjson.Text(rawjson.Member(params, "mode")) != "url" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.clients[id]; !known {
		if o.order = append(o.order, id); len(o.order) > maxOpened {
			delete(o.clients, o.order[0])
			o.order = o.order[1:]
		}
	}
	o.clients[id] = key
}

// client returns the key of the client whose URL params name; "" for none.
func (o *openURLs) client(params json.RawMessage) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.clients[rawjson.Text(rawjson.Member(params, "elicitationId"))]
}
