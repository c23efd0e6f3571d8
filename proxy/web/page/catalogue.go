package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/telemetry"
	"toolfinch/retrieve"
	"toolfinch/tool"
)

// Catalogue is the part of a view that a caller may use.
type Catalogue struct {
	View      string // name of the view
	Root      bool   // clients that name no view get this view
	Catalog   *retrieve.Catalog
	Retriever *retrieve.Retriever
	Embeds    bool // an embedder is configured, so vectors take part in the ranking
}

// ErrNoView is wrapped by the error for a view that the user may not use, or that does not exist.
var ErrNoView = errors.New("there is no such view")

// stocking is the Backend of the catalogue, the search playground and calls.
type stocking interface {
	// Catalogues returns the views that the user may use, the root view first.
	Catalogues(ctx context.Context) []Catalogue
	// WhyNot explains the rank of a tool in a view for a query. It tells the owner what keeps a tool out of the view.
	WhyNot(ctx context.Context, view, tool string, q retrieve.Query) (retrieve.Why, error)
	// Operation returns the call that was made with this request ID, nil for none.
	Operation(request string) *telemetry.Operation
}

// editing is the Backend of edits of tools in the configuration file. Edits wait a moment until they are served.
// Callers check that the owner asks.
type editing interface {
	// Hide hides a tool from all views, or shows it again.
	Hide(ctx context.Context, id tool.ID, hidden bool) error
	// AddWords adds words to the description of a tool, by which a search finds it, and returns the new ones.
	// RemoveWords removes such words.
	AddWords(ctx context.Context, id tool.ID, words []string) (added []string, err error)
	RemoveWords(ctx context.Context, id tool.ID, words []string) error
	// Words returns the added words of a tool.
	Words(id tool.ID) []string
}

var catalogueScreen = &screen{Path: "catalogue", title: "Catalogue", Menu: "Catalogue", file: "catalogue.html", script: "call.js", show: showCatalogue, do: doCall}

// catalogueOf returns the named view ("" for the default), as far as the user may use it, and the names of all views.
func catalogueOf(q *request, name string) (Catalogue, []string, error) {
	all := q.server.Backend.Catalogues(q.Context())
	names := make([]string, len(all))
	at := -1
	for i, one := range all {
		if names[i] = one.View; one.View == name || name == "" && (at < 0 || one.Root) {
			at = i
		}
	}
	switch {
	case len(all) == 0:
		return Catalogue{}, nil, &problem{http.StatusNotFound, "there is no view that you may use"}
	case at < 0:
		return Catalogue{}, nil, refusef(http.StatusNotFound, "%v: %q", ErrNoView, rawjson.Clip(name, 128))
	}
	return all[at], names, nil
}

// kinds are the kinds of definitions in the catalogue, with their names in URLs.
var kinds = []kindName{{"tool", "tools", tool.KindTool}, {"prompt", "prompts", tool.KindPrompt}, {"resource", "resources", tool.KindResource}, {"template", "templates", tool.KindTemplate}, {"skill", "skills", tool.KindSkill}}

type kindName struct {
	Name, Plural string
	kind         tool.Kind
}

func kindOf(name string) (tool.Kind, bool) {
	for _, k := range kinds {
		if k.Name == name {
			return k.kind, true
		}
	}
	return tool.KindTool, name == ""
}

// item is one line of the catalogue.
type item struct {
	*tool.Tool
	Kind    string
	Name    string // the name for clients
	Summary string
	Hints   []string
	Held    string // why it is held; "" if it is not
	Tokens  int    // set only for tools
	Link    string // URL of the item's page
}

// listing is the data of the template: items, or the definition One.
type listing struct {
	Catalogue Catalogue
	Views     []string
	Kinds     []kindCount
	Kind      string
	Query, Server, Tag,
	Is string
	Servers  []string
	Starting []string // servers that were never listed
	Hints    []string
	Items    []item
	Pager    pager
	Tokens   int // tokens of all tools that a client would be listed; 0 while not counted
	One      *definition
	Owner    bool
}

type kindCount struct {
	kindName
	Count int
	Link  string
}

// Reload makes browsers without scripts reload the page of a running call, unless the user may be typing an answer.
func (l listing) Reload() int {
	if l.One == nil || l.One.Call == nil || l.One.Call.Run == nil || l.One.Call.Run.Ended || len(l.One.Call.Run.Asks) > 0 {
		return 0
	}
	return 2
}

func (l listing) Title() string {
	if l.One == nil {
		return ""
	}
	return l.One.Name
}

// hintNames are the hints for the filter, except heldHint.
var hintNames = []string{"read-only", "writes", "destructive", unhinted, "idempotent", "open-world", "closed-world"}

const (
	heldHint = "held"
	unhinted = "no hint" // the server does not say whether the tool destroys
)

// hintsOf returns the annotations of a tool in words, without those that its server does not state: their defaults
// would call nearly every tool destructive.
func hintsOf(def *tool.Def) (hints []string) {
	a, says := def.Annotations, member(def.Raw, "annotations")
	states := func(hint string) bool {
		value := string(member(says, hint))
		return value == "true" || value == "false"
	}
	switch {
	case a.ReadOnly:
		hints = append(hints, "read-only")
	case a.SaysDestructive:
		hints = append(hints, "destructive")
	case !a.Destructive:
		hints = append(hints, "writes")
	default:
		hints = append(hints, unhinted)
	}
	if a.Idempotent && !a.ReadOnly {
		hints = append(hints, "idempotent")
	}
	switch {
	case !states("openWorldHint"):
		return hints
	case a.OpenWorld:
		return append(hints, "open-world")
	}
	return append(hints, "closed-world")
}

// perPage is the number of lines on a page of a list.
const perPage = 50

// address returns a path with a query. pairs are names and values; empty values are left out.
func address(path string, pairs ...string) string {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			values.Set(pairs[i], pairs[i+1])
		}
	}
	if len(values) == 0 {
		return path
	}
	return path + "?" + values.Encode()
}

func showCatalogue(q *request) (any, error) { return listingOf(q) }

// listingOf returns the part of the catalogue, or the definition, that the request names.
func listingOf(q *request) (l listing, err error) {
	in := q.URL.Query()
	catalogue, views, err := catalogueOf(q, in.Get("view"))
	if err != nil {
		return l, err
	}
	l = listing{Owner: q.owner(), Catalogue: catalogue, Views: views, Kind: in.Get("kind"), Query: strings.TrimSpace(rawjson.Clip(in.Get("q"), 400)), Server: in.Get("server"), Tag: in.Get("tag"), Is: in.Get("is"),
		Hints: append(slices.Clone(hintNames), heldHint)}
	kind, known := kindOf(l.Kind)
	if !known {
		return l, refusef(http.StatusNotFound, "there is nothing of the kind %q", rawjson.Clip(l.Kind, 40))
	}
	l.Kind = kindNamed(kind)
	if name := in.Get("name"); name != "" {
		l.One, err = l.define(q, kind, name)
		return l, err
	}
	for _, s := range catalogue.Catalog.Servers() {
		if l.Servers = append(l.Servers, s.Name); s.Tools == nil {
			l.Starting = append(l.Starting, s.Name)
		}
	}
	held := heldOf(catalogue)
	for _, k := range kinds {
		l.Kinds = append(l.Kinds, kindCount{k, len(itemsOf(catalogue, k.kind)) + countOf(held, k.kind), address("catalogue", "view", l.named(), "kind", k.Name)})
	}
	l.Tokens, _ = catalogue.Catalog.ListingTokens()
	l.fill(itemsOf(catalogue, kind), held, kind, in.Get("offset"))
	return l, nil
}

// named returns the name of the view in URLs; "" for the root view.
func (l listing) named() string {
	if l.Catalogue.Root {
		return ""
	}
	return l.Catalogue.View
}

// Act is the label of the button that calls a definition of this kind.
func (l listing) Act() string {
	switch l.Kind {
	case "tool":
		return "Call"
	case "prompt":
		return "Get"
	}
	return "Read"
}

// Edits reports whether the user may edit the shown tool in the configuration.
func (l listing) Edits() bool {
	return l.Owner && l.One != nil && l.One.Call != nil && l.Kind == "tool"
}

func (l listing) Named() string { return l.named() }

func kindNamed(kind tool.Kind) string {
	for _, k := range kinds {
		if k.kind == kind {
			return k.Name
		}
	}
	return kinds[0].Name
}

func itemsOf(s Catalogue, kind tool.Kind) []*tool.Tool {
	if kind == tool.KindTool {
		return s.Catalog.Tools()
	}
	return s.Catalog.Items(kind)
}

func heldOf(s Catalogue) (all []retrieve.Held) {
	for _, server := range s.Catalog.Servers() {
		all = append(all, server.HeldByName()...)
	}
	return all
}

func countOf(held []retrieve.Held, kind tool.Kind) (n int) {
	for _, h := range held {
		if h.Def.ID.Kind == kind {
			n++
		}
	}
	return n
}

// fill adds one page of the items that pass the filters.
func (l *listing) fill(tools []*tool.Tool, held []retrieve.Held, kind tool.Kind, offset string) {
	words := strings.Fields(strings.ToLower(l.Query))
	var tags []string
	if l.Tag != "" {
		tags = []string{l.Tag}
	}
	tagged := l.Catalogue.Catalog.Tagged(tags)
	why := map[*tool.Tool]string{}
	var all []*tool.Tool
	pass := func(t *tool.Tool, held bool) bool {
		switch {
		case l.Server != "" && t.Def.ID.Server != l.Server, !contains(t, words), !tagged(t):
			return false
		case l.Is == heldHint:
			return held
		case l.Is == "":
			return true
		}
		return kind == tool.KindTool && slices.Contains(hintsOf(t.Def), l.Is)
	}
	for _, h := range held {
		if h.Def.ID.Kind == kind && pass(h.Tool, true) {
			why[h.Tool] = h.Why
			all = append(all, h.Tool)
		}
	}
	for _, t := range tools {
		if pass(t, false) {
			all = append(all, t)
		}
	}
	from, _ := strconv.Atoi(offset)
	from = max(0, min(from, len(all)-1))
	link := address("catalogue", "view", l.named(), "kind", l.Kind, "q", l.Query, "server", l.Server, "tag", l.Tag, "is", l.Is)
	l.Pager = pager{Offset: from, Limit: perPage, Total: len(all), link: link}
	for _, t := range all[from:min(from+perPage, len(all))] {
		l.Items = append(l.Items, l.line(t, why[t]))
	}
}

// contains reports whether name, ID, title and description of a tool contain all words.
func contains(t *tool.Tool, words []string) bool {
	if len(words) == 0 {
		return true
	}
	text := strings.ToLower(t.Name + "\n" + t.Def.ID.String() + "\n" + t.Def.Title + "\n" + t.Def.Full().Description)
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

func (l *listing) line(t *tool.Tool, held string) item {
	one := item{Tool: t, Kind: l.Kind, Name: t.Name, Summary: retrieve.FirstSentence(t.Def.Description), Held: held}
	if one.Name == "" {
		one.Name = t.Def.ID.String()
	}
	if t.Def.ID.Kind == tool.KindTool {
		one.Hints = hintsOf(t.Def)[:1]
		one.Tokens = l.Catalogue.Catalog.Tokens(t)
	}
	one.Link = address("catalogue", "view", l.named(), "kind", l.Kind, "name", one.Name)
	return one
}

// definition is the data for the page of one tool, prompt or resource.
type definition struct {
	item
	Def     *tool.Def // with the whole description
	Clipped bool      // clients get a shortened description
	Listed  string    // JSON that clients get
	Own     string    // JSON that the server has sent; "" if it equals Listed
	Facts   []string
	Call    *calling // nil for held definitions
	Find    string   // link to a search for it
	Ask     string   // link to a policy question; "" if held, or unless the owner asks
	Size    int      // in bytes
	Words   []string // words added to the description for search; only for the owner
}

// maxShown bounds the JSON texts of a definition, in bytes.
const maxShown = 256 << 10

// lookUp finds a definition by name or ID. held says why it is held.
func lookUp(s Catalogue, kind tool.Kind, name string) (t *tool.Tool, held string) {
	for _, h := range heldOf(s) {
		if h.Def.ID.Kind == kind && (h.Tool.Name == name || h.Def.ID.String() == name) {
			return h.Tool, h.Why
		}
	}
	if kind == tool.KindTool {
		t, _ = s.Catalog.Find(name)
		return t, ""
	}
	for _, one := range s.Catalog.Items(kind) {
		if one.Name == name || one.Def.ID.String() == name {
			return one, ""
		}
	}
	return nil, ""
}

func (l listing) define(q *request, kind tool.Kind, name string) (*definition, error) {
	catalogue := l.Catalogue
	t, held := lookUp(catalogue, kind, name)
	if t == nil {
		near := ""
		if names := catalogue.Catalog.Nearest(name, 3); kind == tool.KindTool && len(names) > 0 {
			near = "; nearest: " + strings.Join(names, ", ")
		}
		return nil, refusef(http.StatusNotFound, "there is no %s %q in the view %s%s", l.Kind, rawjson.Clip(name, 128), catalogue.View, near)
	}
	d := &definition{item: l.line(t, held), Def: t.Def.Full(), Clipped: t.Def.Whole != nil, Size: len(t.Def.Raw)}
	d.Listed = rawjson.Clip(indented(t.Listed()), maxShown)
	sent := t.Def.AsSent()
	if own := rawjson.Clip(indented(sent), maxShown); own != d.Listed && q.owner() {
		d.Own = own // only for the owner, because the view may hide a part
	}
	switch kind {
	case tool.KindTool:
		if d.Hints = hintsOf(t.Def); q.owner() {
			d.Words = q.server.Backend.Words(t.Def.ID)
		}
	case tool.KindPrompt:
	default:
		if typ := rawjson.Text(member(t.Def.Raw, "mimeType")); typ != "" {
			d.Facts = append(d.Facts, typ)
		}
		if size := member(t.Def.Raw, "size"); size != nil {
			d.Facts = append(d.Facts, rawjson.Clip(string(size), 20)+" bytes")
		}
	}
	if held == "" {
		d.Call = newCalling(catalogue, t, d.Link)
		if q.owner() {
			d.Ask = address("access", "of", l.named(), "kind", searchedAs(d.Kind), "about", d.Name, "transport", identity.TransportHTTP) + "#ask"
		}
		if id := q.URL.Query().Get("run"); id != "" {
			one := q.server.runs.find(q.session, id)
			if one == nil || one.Of != t.Def.ID {
				return nil, errNoRun
			}
			d.Call.show(one)
		}
		text := d.Def.Title
		if d.Summary != "" {
			text = d.Summary
		}
		d.Find = address("search", "view", l.named(), "kind", searchedAs(d.Kind), "q", rawjson.Clip(text, 200))
	}
	return d, nil
}

func searchedAs(kind string) string {
	switch kind {
	case "tool":
		return ""
	case "template":
		return "resource"
	}
	return kind
}

// hide hides a tool of a view from all views.
func (q *request) hide(c Catalogue, name string) error {
	t, err := c.Catalog.Find(name)
	if err != nil {
		return fmt.Errorf("there is no tool %q in the view %s", name, c.View)
	}
	if err := q.server.Backend.Hide(q.Context(), t.Def.ID, true); err != nil {
		return err
	}
	q.say(good, fmt.Sprintf("%s is hidden from all agents: the page of the server %s shows it again", t.Def.ID, t.Def.ID.Server))
	return nil
}

// edit handles the buttons that edit the shown tool in the configuration.
func (l listing) edit(q *request, do string) (answer, error) {
	to := answer{to: "catalogue" + query(q)}
	if !l.Edits() {
		return to, errOwner
	}
	if do == "forget" {
		return to, q.forget(l.One.Def.ID, l.One.Words)
	}
	err := q.hide(l.Catalogue, l.One.Def.ID.String())
	if err == nil {
		to.to = address("catalogue", "view", l.named(), "server", l.One.Def.ID.Server)
	}
	return to, err
}

// forget removes added words.
func (q *request) forget(id tool.ID, words []string) error {
	if len(words) == 0 {
		return refusef(http.StatusBadRequest, "no words are named")
	}
	if err := q.server.Backend.RemoveWords(q.Context(), id, words); err != nil {
		return err
	}
	q.server.corrections.undone(id, words)
	q.say(good, fmt.Sprintf("removed from the description of %s: %s", id, strings.Join(words, ", ")))
	return nil
}
