package proxytool

import (
	"encoding/base64"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool/args"
)

// cut returns the page of a list that an operation asks for.
func cut(items []Item, op Operation) ([]Item, Page, error) {
	from := 0
	switch {
	case op.Offset != nil:
		from = *op.Offset
	case op.Cursor != "":
		last, err := find(items, op)
		if err != nil {
			return nil, Page{}, err
		}
		from = last + 1
	}
	page := Page{Total: len(items), Offset: from}
	items = items[min(from, len(items)):]
	if limit := limitOf(items, op); limit < len(items) {
		items = items[:limit]
		page.Next = cursor(items[len(items)-1], op)
	}
	page.Count = len(items)
	return items, page, nil
}

// limitOf returns the most items of a page: the limit of the operation, else as many as fit into
// PageBytes, but at least one.
func limitOf(items []Item, op Operation) int {
	if op.Limit != nil {
		return *op.Limit
	}
	bytes := 0
	for i, item := range items {
		if bytes += len(item.Raw); bytes > PageBytes {
			return max(1, i)
		}
	}
	return len(items)
}

// cursor returns a cursor: it names the list and the last item of a page.
func cursor(last Item, op Operation) string {
	return base64.RawURLEncoding.EncodeToString([]byte(scope(op) + " " + key(last)))
}

// find returns the index of the item that the operation's cursor names.
func find(items []Item, op Operation) (int, error) {
	raw, err := base64.RawURLEncoding.DecodeString(op.Cursor)
	of, name, ok := strings.Cut(string(raw), " ")
	if err == nil && ok && of == scope(op) {
		if i := slices.IndexFunc(items, func(item Item) bool { return key(item) == name }); i >= 0 {
			return i, nil
		}
	}
	return 0, args.Refuse("cursor does not fit this list (any more); list from the start, without a cursor")
}

// key identifies an item of a list: a resource and a template may have the same path.
func key(item Item) string {
	if isTemplate(item.Raw) {
		return "{" + item.Path
	}
	return "=" + item.Path
}

// scope identifies a list: two operations with equal scopes list the same.
func scope(op Operation) string {
	sum := fnv.New64a()
	sum.Write([]byte(op.Type))
	if op.Filter != nil {
		sum.Write(rawjson.Of(op.Filter))
	}
	return strconv.FormatUint(sum.Sum64(), 36)
}
