package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"sync"

	"toolfinch/tool"
)

// What providers ask for input tokens beside their plain price: a little more for what
// they keep, much less for what they have kept.
const (
	written = 1.25
	read    = 0.1
)

// sums are the input tokens of one conversation.
type sums struct {
	Total    int     `json:"total"`
	Uncached int     `json:"uncached"` // not among the prefix shared with the request before
	Cost     float64 `json:"cost"`     // in tokens at the plain price
	Requests []int   `json:"requests"` // input tokens of each
	Fresh    []int   `json:"fresh"`
}

// conversation counts requests one after the other.
type conversation struct {
	order []string // members of a request, as the provider reads them
	prev  []string
	sums
}

// add counts a request.
func (c *conversation) add(body []byte) error {
	now, err := pieces(body, c.order)
	if err != nil {
		return err
	}
	total, cached, shared := 0, 0, true
	for i, piece := range now {
		n := tokens(piece)
		total += n
		if !shared {
			continue
		}
		if shared = i < len(c.prev) && c.prev[i] == piece; shared {
			cached += n
		} else if i < len(c.prev) {
			cached += tokens(piece[:common(piece, c.prev[i])])
		}
	}
	c.prev = now
	c.Total += total
	c.Uncached += total - cached
	c.Requests, c.Fresh = append(c.Requests, total), append(c.Fresh, total-cached)
	c.Cost += written*float64(total-cached) + read*float64(cached)
	return nil
}

// pieces are the parts of a request as the provider reads them, without the marks for
// what is to be kept: they move from request to request and are not read by models.
// Texts of messages are taken for blocks of text, which is how models read both. A tool with
// defer_loading is read where a message first refers to it.
func pieces(body []byte, order []string) (all []string, err error) {
	var members map[string]any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&members); err != nil {
		return nil, err
	}
	late := map[string]any{}
	for _, name := range order {
		list, ok := members[name].([]any)
		if !ok && members[name] != nil {
			list = []any{members[name]}
		}
		for _, value := range list {
			if t, _ := value.(map[string]any); t["defer_loading"] == true {
				name, _ := t["name"].(string)
				late[name] = t
				continue
			}
			text, err := json.Marshal(unmarked(value, late))
			if err != nil {
				return nil, err
			}
			all = append(all, string(text))
		}
	}
	return all, nil
}

func unmarked(value any, late map[string]any) any {
	switch value := value.(type) {
	case map[string]any:
		if value["type"] == "tool_reference" {
			for _, key := range []string{"name", "tool_name"} {
				if name, _ := value[key].(string); late[name] != nil {
					value["tool"] = late[name]
					delete(late, name)
				}
			}
		}
		delete(value, "cache_control")
		if text, ok := value["content"].(string); ok && value["role"] != nil { // a mark needs the long form
			value["content"] = []any{map[string]any{"type": "text", "text": text}}
		}
		for key, v := range value {
			value[key] = unmarked(v, late)
		}
	case []any:
		for i, v := range value {
			value[i] = unmarked(v, late)
		}
	}
	return value
}

// common is the length of the longest common prefix.
func common(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

var counts sync.Map // of texts by their hash: conversations send them again and again

func tokens(text string) int {
	key := sha256.Sum256([]byte(text))
	if n, ok := counts.Load(key); ok {
		return n.(int)
	}
	n := tool.CountTokens([]byte(text))
	counts.Store(key, n)
	return n
}
