package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolfinch/internal/rawjson"
	"toolfinch/internal/schema"
	"toolfinch/retrieve"
	"toolfinch/tool"
)

// calling is the form on the page of a tool, prompt or resource that calls, gets or reads it, with the result of the
// last call.
type calling struct {
	Kind string
	Here string // path and query of the page

	Form     *param
	URI      string // URI of a resource or template
	Raw      bool   // arguments are typed in as JSON
	JSON     string
	Problems []string // problems of no field
	Confirm  string   // why the call needs a confirmation
	Run      *ran     // the shown call; nil for none

	catalogue Catalogue
	tool      *tool.Tool
}

// ran is a call as the page shows it.
type ran struct {
	*run
	Here    string // path and query of the page that shows the call
	Ended   bool   // run had ended when this value was made
	State   string // text of the badge: an outcome, or why the call still waits
	Asks    []*asking
	Notes   []string
	Failed  bool
	Error   string
	URLs    []string // URLs to open before the next call
	Blocks  []block
	More    int // number of blocks that are not shown
	Bytes   int
	Tokens  int
	Whole   string // the result as JSON
	Clipped bool
	Took    time.Duration
	Own     time.Duration // toolfinch's part of Took
	N       int64         // number of the operation in Live; 0 for none
}

// asking is a question of a server as the page shows it.
type asking struct {
	*ask
	Message  string
	Form     *param
	Problems []string
	URL      string
	Link     string
}

// Bounds in bytes: the largest result whose tokens are counted, and the longest URI to read.
const (
	maxTokened = 1 << 20
	maxURI     = 8000
)

// newCalling returns an empty form for a definition.
func newCalling(catalogue Catalogue, t *tool.Tool, here string) *calling {
	c := &calling{Kind: kindNamed(t.Def.ID.Kind), Here: here, catalogue: catalogue, tool: t}
	switch t.Def.ID.Kind {
	case tool.KindTool:
		c.Form = readSchema(t.Def.InputSchema)
	case tool.KindPrompt:
		c.Form = readSchema(promptSchema(t.Def))
	default:
		c.Form, c.URI = readSchema(json.RawMessage(`{"type":"object","properties":{}}`)), t.Name
	}
	return c
}

// show fills in the arguments of a call and adds the call to the page.
func (c *calling) show(one *run) {
	arguments := one.Arguments
	if arguments == nil {
		arguments = json.RawMessage(`{}`)
	}
	if c.Kind == "template" {
		c.URI = one.Target
	}
	if !c.Form.fill(arguments) && !rawjson.IsEmpty(arguments) {
		c.Raw, c.JSON = true, indented(arguments)
	}
	r := &ran{run: one, Here: c.Here + "&run=" + one.ID, Ended: one.ended()}
	asks, notes := one.waiting()
	r.Notes = notes
	for _, a := range asks {
		r.Asks = append(r.Asks, askingOf(a))
	}
	r.State = r.state()
	if r.Ended {
		r.finished()
	}
	c.Run = r
}

// doCall handles a sent form of a definition's page.
func doCall(q *request) (answer, error) {
	l, err := listingOf(q)
	if err != nil {
		return answer{}, err
	}
	if l.One == nil || l.One.Call == nil {
		return answer{}, refusef(http.StatusBadRequest, "name what is to be called")
	}
	c, do := l.One.Call, q.PostForm.Get("do")
	switch do {
	case "hide", "forget":
		return l.edit(q, do)
	case "cancel", "accept", "decline", "dismiss":
		return l.doRun(q, do)
	}
	arguments, whole := c.taken(q.PostForm)
	switch verb, _, _ := strings.Cut(do, ":"); verb {
	case "add", "remove":
		c.Form.edit(do)
		c.forgive()
	case "json":
		c.Raw, c.JSON = true, indented(arguments)
		c.forgive()
	case "form":
		c.Raw = !whole || !c.Form.fill(arguments)
		if c.Raw {
			c.Problems = append(c.Problems, "the form cannot have all of this: it stays as JSON")
		}
	case "call", "confirmed":
		one, err := c.called(q, arguments, whole, do == "confirmed")
		if one == nil {
			return answer{data: l}, err
		}
		return answer{to: c.Here + "&run=" + one.ID}, nil
	default:
		return answer{}, refusef(http.StatusBadRequest, "this page does not do %q", rawjson.Clip(do, 40))
	}
	return answer{data: l}, nil
}

// forgive removes the errors about missing values, for a form that is not ready yet.
func (c *calling) forgive() {
	c.Form.forgive()
	c.Problems = nil
}

// taken reads the arguments from the form's fields or from its JSON. whole is false if some of them could not be read.
func (c *calling) taken(sent url.Values) (arguments json.RawMessage, whole bool) {
	c.Raw = sent.Get("mode") == "json"
	if c.Kind == "template" {
		c.URI = strings.TrimSpace(sent.Get("uri"))
	}
	if !c.Raw {
		arguments = c.Form.take(sent)
		if arguments == nil {
			arguments = json.RawMessage(`{}`)
		}
		c.Form.open()
		return arguments, !c.Form.faulty()
	}
	c.JSON = sent.Get("json")
	arguments = json.RawMessage(strings.TrimSpace(c.JSON))
	if len(arguments) == 0 {
		arguments = json.RawMessage(`{}`)
	}
	if !json.Valid(arguments) || !rawjson.IsObject(arguments) {
		c.Problems = append(c.Problems, "the arguments are no JSON object: "+jsonFault(string(arguments)))
		return json.RawMessage(`{}`), false
	}
	return arguments, true
}

// called makes the call if the arguments fit and the user is sure. It returns nil if the form must be filled in again.
func (c *calling) called(q *request, arguments json.RawMessage, whole, sure bool) (*run, error) {
	target, t := c.tool.Name, c.tool
	handler := func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		return t.Handler(ctx, retrieve.CallOf(call, t, target, arguments))
	}
	switch c.Kind {
	case "tool":
		misfits, err := c.catalogue.Retriever.Misfits(q.Context(), t, arguments)
		if err != nil {
			return nil, err
		}
		if c.Raw {
			c.Problems = append(c.Problems, misfits...)
		} else {
			c.Problems = append(c.Problems, c.Form.blame(misfits)...)
		}
		if whole = whole && len(misfits) == 0; whole && !sure && retrieve.KindOf(t.Def.Annotations) == retrieve.KindDestructive {
			c.Confirm = "Its server does not say that it only reads, or only adds."
			if t.Def.Annotations.SaysDestructive {
				c.Confirm = "Its server says that it may delete or overwrite."
			}
			return nil, nil
		}
		retriever := c.catalogue.Retriever
		handler = func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			return retriever.Execute(ctx, call, target, arguments)
		}
	case "template", "resource":
		target, arguments = c.URI, nil
		of, ok := c.catalogue.Catalog.Resource(target)
		if !ok || len(target) > maxURI {
			c.Problems = append(c.Problems, fmt.Sprintf("no server has %q: fill in what stands in braces", rawjson.Clip(target, 200)))
			whole = false
		}
		t = of
	}
	if !whole {
		c.Form.focusFault()
		return nil, nil
	}
	one := &run{Of: c.tool.Def.ID, Target: target, Arguments: arguments, handler: handler}
	if err := q.server.runs.start(q, one, q.server.Backend.Operation); err != nil {
		c.Problems = append(c.Problems, err.Error())
		return nil, nil
	}
	settle(one, q)
	return one, nil
}

const soon = 500 * time.Millisecond

// doRun answers a question of the server during a call, or cancels the call.
func (l listing) doRun(q *request, do string) (answer, error) {
	c := l.One.Call
	if c.Run == nil {
		return answer{}, errNoRun
	}
	one, to := c.Run.run, answer{to: c.Run.Here}
	if do == "cancel" {
		one.cancel(errCancelled)
		<-one.done
		return to, nil
	}
	n, _ := strconv.Atoi(q.PostForm.Get("ask"))
	for _, view := range c.Run.Asks {
		if view.ID != n {
			continue
		}
		reply, fits := view.reply(q, do)
		if !fits {
			return answer{data: l}, nil // the form shows what is wrong
		}
		if of := one.take(n); of != nil {
			of.reply <- reply
			settle(one, q)
		}
		return to, nil
	}
	return to, errors.New("this is not asked any more")
}

// settle waits a moment for a call to end, so that the next page may show the result.
func settle(one *run, q *request) {
	patience := time.NewTimer(soon)
	defer patience.Stop()
	select {
	case <-one.done:
	case <-patience.C:
	case <-q.Context().Done():
	}
}

var errNoRun = &problem{http.StatusNotFound, "there is no such call: it was of another session, or is not kept any more"}

// state returns the text of the call's badge.
func (r *ran) state() string {
	switch {
	case !r.Ended && len(r.Asks) > 0:
		return "asks you"
	case !r.Ended:
		return "running"
	case r.operation != nil:
		return r.operation.Outcome
	case r.err != nil:
		return "failed"
	case r.result.Failed():
		return "tool_error"
	}
	return "success"
}

// Calm reports whether no answer of the user has errors. The page then focuses the call.
func (r *ran) Calm() bool {
	return !slices.ContainsFunc(r.Asks, func(a *asking) bool { return a.Form != nil && a.Form.faulty() })
}

func (r *ran) finished() {
	r.Took = r.took
	if o := r.operation; o != nil {
		r.Own, r.N = o.Own, o.N
	}
	if r.err != nil {
		r.Error = told(r.err)
		r.URLs = opened(r.err)
		return
	}
	raw := json.RawMessage(r.result)
	r.Failed, r.Bytes = r.result.Failed(), len(raw)
	r.Blocks, r.More = blocksOf(r.Of.Kind, r.result)
	if r.Bytes <= maxTokened {
		r.Tokens = tool.CountTokens(raw)
	}
	r.Whole = rawjson.Head(string(raw), maxText)
	r.Clipped = len(raw) > maxText
}

// opened returns the URLs that a server wants the user to open before the next call.
func opened(err error) (all []string) {
	rpc, ok := errors.AsType[*tool.RPCError](err)
	if !ok || rpc.Code != tool.CodeURLElicitation {
		return nil
	}
	for one := range rawjson.Elements(list(member(rpc.Data, "elicitations"))) {
		if uri := followed(rawjson.Text(member(one, "url"))); uri != "" && len(all) < maxAsks {
			all = append(all, uri)
		}
	}
	return all
}

// askingOf returns a server's question with the form's default values.
func askingOf(a *ask) *asking {
	text := func(name string) string { return rawjson.Clip(rawjson.Text(member(a.Params, name)), 8000) }
	v := &asking{ask: a, Message: text("message")}
	if text("mode") == "url" {
		v.URL = text("url")
		v.Link = followed(v.URL)
		return v
	}
	v.Form = readSchema(member(a.Params, "requestedSchema"))
	v.Form.each("q" + strconv.Itoa(a.ID) + "-")
	v.Form.preset()
	return v
}

func (f *param) preset() {
	for _, one := range f.Fields {
		if one.Default != "" {
			one.fill(json.RawMessage(one.Default))
		}
	}
}

// reply returns the sent answer. fits is false if the form must be filled in again.
func (v *asking) reply(q *request, do string) (answer json.RawMessage, fits bool) {
	var result rawjson.Object
	switch do {
	case "decline":
		result.AddText("action", "decline")
		return result.JSON(), true
	case "dismiss":
		result.AddText("action", "cancel")
		return result.JSON(), true
	}
	result.AddText("action", "accept")
	if v.Form != nil {
		content := v.Form.take(q.PostForm)
		if content == nil {
			content = json.RawMessage(`{}`)
		}
		if !v.check(q, content) {
			return nil, false
		}
		result.Add("content", content)
	}
	return result.JSON(), true
}

func (v *asking) check(q *request, content json.RawMessage) bool {
	if compiled, err := schema.Compile(member(v.Params, "requestedSchema")); err == nil {
		misfits, err := compiled.Check(q.Context(), content)
		if err != nil {
			misfits = []string{err.Error()}
		}
		v.Problems = v.Form.blame(misfits)
	}
	return !v.Form.focusFault() && len(v.Problems) == 0
}
