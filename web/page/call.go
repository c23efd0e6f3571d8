package page

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"toolfinch/rawjson"
	"toolfinch/retrieve"
	"toolfinch/schema"
	"toolfinch/telemetry"
	"toolfinch/tool"
)

var callScreen = &screen{Path: "call", title: "Call", Menu: "Call", file: "call.html", script: "call.js", show: showCall, do: doCall}

// calling is what the template shows: what may be called, the form of one, or a call.
type calling struct {
	Stock Stock
	Views []string
	Named string // the view in addresses
	Kind  string
	Name  string // what clients call it
	Tool  *tool.Tool
	Hints []string
	Here  string // path and query, of the form

	Form     *param
	URI      string // of a template: what is read
	Raw      bool   // JSON is typed in
	JSON     string
	Problems []string // about no field
	Roots    string
	Confirm  string // why it is asked once more

	Run  *ran
	Runs []runLine
}

func (c calling) Title() string { return c.Name }

// Reload has browsers without script look at a call again, unless somebody is asked, who may
// be writing.
func (c calling) Reload() int {
	if c.Run == nil || c.Run.ended() || len(c.Run.Asks) > 0 {
		return 0
	}
	return 2
}

// runLine is a call in the list.
type runLine struct {
	ID, Name, State string
	Started         time.Time
}

// ran is a call as it is shown.
type ran struct {
	*run
	State   string // of the badge: an outcome, or pending
	Asks    []*asking
	Notes   []string
	Again   string // the form, with the same arguments
	Sent    string
	Gone    bool
	Failed  bool
	Error   string
	URLs    []string // that a server wants to be opened first
	Blocks  []block
	More    int // blocks that are left out
	Grids   []grid
	Plain   bool // a result without content
	Bytes   int
	Tokens  int
	Whole   string // the result as JSON
	Clipped bool
	Took    time.Duration
	Op      *telemetry.Operation
}

// asking is what a server asks, as it is shown.
type asking struct {
	*ask
	Message  string
	Form     *param
	Problems []string
	URL      string
	Link     string
	Messages []block
	System   string
	Facts    []string
	Value    string // what was written as the answer of a model
}

// maxTokened bounds the bytes of a result whose tokens are counted.
const maxTokened = 1 << 20

func showCall(q *request) (any, error) {
	if id := q.URL.Query().Get("run"); id != "" {
		return showRun(q, id, nil)
	}
	c, err := newCalling(q)
	if err != nil || c.Tool == nil {
		return c, err
	}
	arguments := json.RawMessage(`{}`)
	if one := q.server.runs.find(q.session, q.URL.Query().Get("again")); one != nil && one.Of == c.Tool.Def.ID {
		if c.Roots = one.Roots; one.sent() != nil {
			arguments = one.sent()
		}
		if c.Kind == "template" {
			c.URI = one.Target
		}
	}
	if !c.Form.fill(arguments) && !rawjson.IsEmpty(arguments) {
		c.Raw, c.JSON = true, indented(arguments)
	}
	return c, nil
}

// newCalling is the form for what the request names, empty, or with nothing named what was
// called.
func newCalling(q *request) (c calling, err error) {
	in := q.URL.Query()
	if c.Stock, c.Views, err = stockOf(q, in.Get("view")); err != nil {
		return c, err
	}
	if !c.Stock.Root {
		c.Named = c.Stock.View
	}
	kind, known := kindOf(in.Get("kind"))
	if !known {
		return c, refusef(http.StatusNotFound, "there is nothing of the kind %q", rawjson.Clip(in.Get("kind"), 40))
	}
	c.Kind = kindNamed(kind)
	name := strings.TrimSpace(in.Get("name"))
	if name == "" {
		for _, one := range q.server.runs.all(q.session) {
			c.Runs = append(c.Runs, runLine{one.ID, one.Target, one.state(), one.Started})
		}
		return c, nil
	}
	t, held := lookUp(c.Stock, kind, name)
	switch {
	case t == nil:
		near := ""
		if names := c.Stock.Catalog.Nearest(name, 3); kind == tool.KindTool && len(names) > 0 {
			near = "; nearest: " + strings.Join(names, ", ")
		}
		return c, refusef(http.StatusNotFound, "there is no %s %q in the view %s%s", c.Kind, rawjson.Clip(name, 128), c.Stock.View, near)
	case held != "":
		return c, refusef(http.StatusForbidden, "%s is held: it %s", rawjson.Clip(name, 128), held)
	}
	c.Tool, c.Name = t, t.Name
	c.Here = address("call", "view", c.Named, "kind", c.Kind, "name", c.Name)
	switch kind {
	case tool.KindTool:
		c.Form, c.Hints = readSchema(t.Def.InputSchema), hintsOf(t.Def.Annotations)
	case tool.KindPrompt:
		c.Form = readSchema(promptSchema(t.Def))
	default:
		c.Form, c.URI = readSchema(json.RawMessage(`{"type":"object","properties":{}}`)), t.Name
	}
	return c, nil
}

func doCall(q *request) (answer, error) {
	if id := q.URL.Query().Get("run"); id != "" {
		return doRun(q, id)
	}
	c, err := newCalling(q)
	if err != nil {
		return answer{}, err
	}
	if c.Tool == nil {
		return answer{}, refusef(http.StatusBadRequest, "name a tool")
	}
	do := q.PostForm.Get("do")
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
		return c.called(q, arguments, whole, do == "confirmed")
	default:
		return answer{}, refusef(http.StatusBadRequest, "this page does not do %q", rawjson.Clip(do, 40))
	}
	return answer{data: c}, nil
}

// forgive has a form that is not sent yet show no faults of what is missing.
func (c *calling) forgive() {
	c.Form.forgive()
	c.Problems = nil
}

// taken reads the arguments that were sent, by form or as JSON. whole is false where some
// of it could not be read.
func (c *calling) taken(sent url.Values) (arguments json.RawMessage, whole bool) {
	c.Raw, c.Roots = sent.Get("mode") == "json", strings.TrimSpace(rawjson.Clip(sent.Get("roots"), 4000))
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

// called makes the call, once its arguments fit and whoever asks is sure.
func (c *calling) called(q *request, arguments json.RawMessage, whole, sure bool) (answer, error) {
	target, t := c.Name, c.Tool
	switch c.Kind {
	case "tool":
		misfits, err := c.Stock.Retriever.Misfits(q.Context(), t, arguments)
		if err != nil {
			return answer{}, err
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
			return answer{data: *c}, nil
		}
	case "template", "resource":
		target, arguments = c.URI, nil
		of, ok := c.Stock.Catalog.Resource(target)
		if ok = ok && len(target) <= maxURI; !ok {
			c.Problems = append(c.Problems, fmt.Sprintf("no server has %q: fill in what stands in braces", rawjson.Clip(target, 200)))
			whole = false
		}
		t = of
	}
	if !whole {
		c.Form.focusFault()
		return answer{data: *c}, nil
	}
	one := &run{Stock: c.Stock, Tool: t, Kind: c.Kind, Name: c.Name, Of: c.Tool.Def.ID, Target: target, Arguments: arguments, Roots: c.Roots}
	if err := q.server.runs.start(q, one, q.server.House.Operation); err != nil {
		c.Problems = append(c.Problems, err.Error())
		return answer{data: *c}, nil
	}
	settle(one, q)
	return answer{to: address("call", "run", one.ID)}, nil
}

// maxURI bounds what is read, in bytes.
const maxURI = 8000

// soon is how long settle waits.
const soon = 500 * time.Millisecond

// doRun answers what a server asks meanwhile, and cancels.
func doRun(q *request, id string) (answer, error) {
	one := q.server.runs.find(q.session, id)
	if one == nil {
		return answer{}, errNoRun
	}
	to := answer{to: address("call", "run", id)}
	switch do := q.PostForm.Get("do"); do {
	case "cancel":
		one.cancel(errCancelled)
		<-one.done
		return to, nil
	case "accept", "decline", "dismiss":
		n, _ := strconv.Atoi(q.PostForm.Get("ask"))
		asks, _, _ := one.waiting()
		for _, a := range asks {
			if a.ID != n {
				continue
			}
			view := askingOf(a)
			r, fits := view.reply(q, do)
			if !fits {
				shown, err := showRun(q, id, view)
				return answer{data: shown}, err
			}
			if of := one.take(n); of != nil {
				of.reply <- r
				settle(one, q)
			}
			return to, nil
		}
		return to, errors.New("this is not asked any more")
	default:
		return to, refusef(http.StatusBadRequest, "this page does not do %q", rawjson.Clip(do, 40))
	}
}

// settle waits a moment for a call to end before its page is shown.
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

// state is what a badge says of a call.
func (one *run) state() string {
	switch {
	case !one.ended():
		if asks, _, _ := one.waiting(); len(asks) > 0 {
			return "asks you"
		}
		return "running"
	case one.operation != nil:
		return one.operation.Outcome
	case one.err != nil:
		return "failed"
	case one.answer().Failed():
		return "tool_error"
	}
	return "success"
}

// showRun shows a call. wrong is what was answered and does not fit, nil for nothing.
func showRun(q *request, id string, wrong *asking) (any, error) {
	one := q.server.runs.find(q.session, id)
	if one == nil {
		return nil, errNoRun
	}
	r := &ran{run: one, State: one.state()}
	c := calling{Stock: one.Stock, Kind: one.Kind, Name: one.Target, Tool: one.Tool, Run: r}
	if !one.Stock.Root {
		c.Named = one.Stock.View
	}
	r.Again = address("call", "view", c.Named, "kind", c.Kind, "name", one.Name, "again", id)
	r.Sent = rawjson.Clip(indented(one.sent()), maxText)
	asks, notes, gone := one.waiting()
	r.Notes, r.Gone = notes, gone
	for _, a := range asks {
		if wrong != nil && wrong.ID == a.ID {
			r.Asks = append(r.Asks, wrong)
		} else {
			r.Asks = append(r.Asks, askingOf(a))
		}
	}
	if one.ended() {
		r.finished()
	}
	return c, nil
}

// Ended reports whether there is nothing more to come.
func (r *ran) Ended() bool { return r.ended() }

// finished adds what came of it.
func (r *ran) finished() {
	r.Took, r.Op = r.took, r.operation
	if r.err != nil {
		r.Error = told(r.err)
		r.URLs = opened(r.err)
		return
	}
	if r.Gone {
		return
	}
	kind := r.Tool.Def.ID.Kind
	result := r.answer()
	raw := json.RawMessage(result)
	r.Failed, r.Bytes = result.Failed(), len(raw)
	r.Blocks, r.More = blocksOf(kind, result)
	r.Grids = gridsOf(member(raw, "structuredContent"))
	r.Plain = len(r.Blocks)+len(r.Grids) == 0
	if r.Bytes <= maxTokened {
		r.Tokens = tool.CountTokens(raw)
	}
	r.Whole, r.Clipped = string(raw), false
	if len(raw) > maxText {
		r.Whole, r.Clipped = rawjson.Head(r.Whole, maxText), true
	}
}

// opened are the URLs that a server wants to be opened before it is called again.
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

// askingOf is what a server asks, with an empty form.
func askingOf(a *ask) *asking {
	text := func(name string) string { return rawjson.Clip(rawjson.Text(member(a.Params, name)), 8000) }
	v := &asking{ask: a}
	if a.Method == "sampling/createMessage" {
		v.System = text("systemPrompt")
		for message := range rawjson.Elements(list(member(a.Params, "messages"))) {
			contents := member(message, "content")
			if list(contents) == nil {
				contents = rawjson.Array([]json.RawMessage{contents})
			}
			for one := range rawjson.Elements(contents) {
				if len(v.Messages) < maxBlocks {
					v.Messages = append(v.Messages, blockOf(one, rawjson.Text(member(message, "role")), nil, 0))
				}
			}
		}
		if most := member(a.Params, "maxTokens"); most != nil {
			v.Facts = append(v.Facts, "at most "+rawjson.Clip(string(most), 20)+" tokens")
		}
		return v
	}
	v.Message = text("message")
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

// preset fills in the defaults.
func (f *param) preset() {
	for _, one := range f.Fields {
		if one.Default != "" {
			one.fill(json.RawMessage(one.Default))
		}
	}
}

// reply is the answer that was sent; fits is false where it is to be filled in again.
func (v *asking) reply(q *request, do string) (r reply, fits bool) {
	if v.Method == "sampling/createMessage" {
		v.Value = strings.ReplaceAll(q.PostForm.Get("answer"), "\r\n", "\n")
		switch {
		case do != "accept":
			return reply{err: &tool.RPCError{Code: -1, Message: "the user rejected the sampling request"}}, true
		case strings.TrimSpace(v.Value) == "":
			v.Problems = []string{"write an answer, or refuse"}
			return r, false
		}
		return reply{result: rawjson.Of(map[string]any{
			"role": "assistant", "content": map[string]string{"type": "text", "text": v.Value}, "model": "a person", "stopReason": "endTurn",
		})}, true
	}
	var result rawjson.Object
	switch do {
	case "decline":
		result.AddText("action", "decline")
		return reply{result: result.JSON()}, true
	case "dismiss":
		result.AddText("action", "cancel")
		return reply{result: result.JSON()}, true
	}
	result.AddText("action", "accept")
	if v.Form != nil {
		content := v.Form.take(q.PostForm)
		if content == nil {
			content = json.RawMessage(`{}`)
		}
		if !v.check(q, content) {
			return r, false
		}
		result.Add("content", content)
	}
	return reply{result: result.JSON()}, true
}

// check reports whether an answer fits what is asked for.
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
