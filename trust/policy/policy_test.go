package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/identity"
	"toolfinch/tool"
)

func compile(t testing.TB, text string) *Policies {
	t.Helper()
	p, wrong := Compile([]Text{{Cedar: text, File: "team.cedar", Line: 1, Column: 1}})
	for _, err := range wrong {
		t.Fatal(err)
	}
	return p
}

var (
	deleteRepo = tool.ID{Server: "github", Name: "delete_repo"}
	readFile   = tool.ID{Server: "files", Name: "read_file"}
	alice      = identity.Party{Principal: &identity.Principal{ID: "https://idp|alice", Groups: []string{"https://idp|dev"}, Scopes: []string{"mcp:read"}}, Transport: "http"}
	nobody     = identity.Party{Transport: "http", Client: "claude-code", Version: "2.1.0"}
	owner      = identity.Party{Transport: "stdio"}
)

const asksPath = `permit (principal, action, resource) when { context.args.path like "/srv/*" };`

func TestDecide(t *testing.T) {
	call := func(party identity.Party, id tool.ID, arguments string) Request {
		return Request{Party: party, Action: ActionCall, ID: id, View: "reader", Annotations: tool.Annotations{Destructive: true, OpenWorld: true}, Arguments: json.RawMessage(arguments)}
	}
	reading := func(equal bool) Request {
		file := func(path string) tool.ID {
			return tool.ID{Server: "files", Name: "file:///" + path, Kind: tool.KindResource}
		}
		return Request{Party: alice, Action: ActionRead, ID: file("./etc"), Alike: []Alike{{ID: file("etc"), Equal: equal}}}
	}
	reads := call(alice, readFile, `{"path": "/srv/a"}`)
	reads.Annotations = tool.Annotations{ReadOnly: true}
	for _, c := range []struct {
		name, policies string
		request        Request
		want           bool
		by             string
	}{
		{"nothing is permitted that no policy permits", `permit (principal == User::"x", action, resource);`, reads, false, ""},
		{"everything", `permit (principal, action, resource);`, reads, true, "team.cedar:1"},
		{"a forbid wins", `permit (principal, action, resource); @id("none of GitHub") forbid (principal, action, resource in Server::"github");`, call(alice, deleteRepo, ""), false, "none of GitHub"},
		{"other servers stay", `permit (principal, action, resource); forbid (principal, action, resource in Server::"github");`, reads, true, "team.cedar:1"},
		{"a user", `permit (principal == User::"https://idp|alice", action, resource);`, reads, true, "team.cedar:1"},
		{"a group", `permit (principal in Group::"https://idp|dev", action, resource);`, reads, true, "team.cedar:1"},
		{"the group of this name of another issuer", `permit (principal in Group::"https://other|dev", action, resource);`, reads, false, ""},
		{"a group that names no issuer", `permit (principal in Group::"dev", action, resource);`, reads, false, ""},
		{"a key, whichever had the name", `permit (principal == User::"key|ci", action, resource);`,
			Request{Party: identity.Party{Principal: &identity.Principal{ID: identity.NewKeyID("ci")}, Transport: "http"}, Action: ActionCall, ID: readFile, View: "reader"}, true, "team.cedar:1"},
		{"another group", `permit (principal in Group::"https://idp|ops", action, resource);`, reads, false, ""},
		{"a scope", `permit (principal, action, resource) when { principal.scopes.contains("mcp:read") };`, reads, true, "team.cedar:1"},
		{"a tool", `permit (principal, action == Action::"call", resource == Tool::"files.read_file");`, reads, true, "team.cedar:1"},
		{"a pattern of tools", `permit (principal, action, resource) when { resource.name like "read_*" && resource.server == "files" };`, reads, true, "team.cedar:1"},
		{"a view", `permit (principal, action, resource in View::"reader");`, reads, true, "team.cedar:1"},
		{"another view", `permit (principal, action, resource in View::"writer");`, reads, false, ""},
		{"read-only tools", `permit (principal, action, resource) when { context.readOnly };`, reads, true, "team.cedar:1"},
		{"a tool without annotations writes", `permit (principal, action, resource) when { context.readOnly };`, call(alice, readFile, ""), false, ""},
		{"an argument", `permit (principal, action, resource) when { context.args.path like "/srv/*" };`, reads, true, "team.cedar:1"},
		{"an argument of another type permits nothing", `permit (principal, action, resource) when { context.args.path like "/srv/*" };`, call(alice, readFile, `{"path": ["/srv/a"]}`), false, ""},
		{"a forbid that cannot be evaluated forbids", `permit (principal, action, resource); forbid (principal, action, resource) when { context.args.path like "/etc/*" };`, call(alice, readFile, `{"path": ["/etc/passwd"]}`), false, "team.cedar:1"},
		{"an argument twice is judged by nobody", `permit (principal, action, resource); forbid (principal, action, resource) when { context.args has path && context.args.path like "/etc/*" };`,
			call(alice, readFile, `{"path": "/etc/passwd", "path": "/srv"}`), false, "arguments"},
		{"an argument twice, but for case", `permit (principal, action, resource) when { context.args.path like "/srv/*" };`,
			call(alice, readFile, `{"path": "/srv", "Path": "/etc/passwd"}`), false, "arguments"},
		{"an argument that policies read in another case", `permit (principal, action, resource); forbid (principal, action, resource) when { context.args.opt has pasKs && context.args.opt.pasKs like "/etc/*" };`,
			call(alice, readFile, `{"opt": {"pa\u017f\u212aS": "/etc/passwd"}}`), false, "arguments"},
		{"an argument that policies read in both cases, and one that they do not read", `permit (principal, action, resource) when { resource.name != "x" && context.args.Path == context.args.opt.path };`,
			call(alice, readFile, `{"Path": "/srv", "opt": {"path": "/srv"}, "Name": "x"}`), true, "team.cedar:1"},
		{"whole numbers, however they are written", `permit (principal, action, resource) when { context.args.n > 4 && context.args.m == 5 };`, call(alice, readFile, `{"n": 5.0, "m": 5e0}`), true, "team.cedar:1"},
		{"arguments of another form permit nothing", asksPath, call(alice, readFile, `["/srv/a"]`), false, "arguments"},
		{"arguments of null are none", `permit (principal, action, resource) when { !(context.args has path) };`, call(alice, readFile, `null`), true, "team.cedar:1"},
		{"no arguments", `permit (principal, action, resource) when { !(context.args has path) };`, call(alice, readFile, ` `), true, "team.cedar:1"},
		{"whole numbers up to what a float tells apart", `permit (principal, action, resource) when { context.args.n == 9007199254740991 };`, call(alice, readFile, `{"n": 9007199254740991.0}`), true, "team.cedar:1"},
		{"whole numbers beyond that are texts", `permit (principal, action, resource) when { context.args.n == "9007199254740992e0" };`, call(alice, readFile, `{"n": 9007199254740992e0}`), true, "team.cedar:1"},
		{"decimals", `permit (principal, action, resource) when { context.args.n.lessThan(decimal("2.0")) };`, call(alice, readFile, `{"n": 1.5}`), true, "team.cedar:1"},
		{"nested arguments", `permit (principal, action, resource) when { context.args.to.contains("a@b") && context.args.opt.deep };`, call(alice, readFile, `{"to": ["a@b"], "opt": {"deep": true}, "none": null}`), true, "team.cedar:1"},
		{"the owner on stdio", `permit (principal == User::"stdio|owner", action, resource);`, call(owner, readFile, ""), true, "team.cedar:1"},
		{"nobody over HTTP is not the owner", `permit (principal == User::"stdio|owner", action, resource);`, call(nobody, readFile, ""), false, ""},
		{"nobody", `permit (principal == User::"anonymous", action, resource);`, call(nobody, readFile, ""), true, "team.cedar:1"},
		{"a client and a transport", `permit (principal, action, resource) when { context.client.name == "claude-code" && context.transport == "http" };`, call(nobody, readFile, ""), true, "team.cedar:1"},
		{"a resource of a template", `permit (principal, action == Action::"read", resource in Template::"files.file:///{path}");`,
			Request{Party: alice, Action: ActionRead, ID: tool.ID{Server: "files", Name: "file:///a", Kind: tool.KindResource}, Template: "files.file:///{path}"}, true, "team.cedar:1"},
		{"what a resource may be understood as is forbidden", `permit (principal, action, resource); @id("etc") forbid (principal, action, resource == Resource::"files.file:///etc");`, reading(false), false, "etc"},
		{"what it may be understood as need not be permitted", `permit (principal, action, resource == Resource::"files.file:///./etc");`, reading(false), true, "team.cedar:1"},
		{"what it is equal to must be permitted", `permit (principal, action, resource == Resource::"files.file:///./etc");`, reading(true), false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := compile(t, c.policies).Decide(c.request)
			if ids, _, _ := strings.Cut(got.Policy(), ","); got.Allow != c.want || ids != c.by && c.by != "" || c.by == "" && len(got.By) > 0 {
				t.Errorf("decided %+v, want %v by %q", got, c.want, c.by)
			}
		})
	}
}

// The example of the documentation lets a tool have paths of a folder only.
func TestPathsStayInAFolder(t *testing.T) {
	p := compile(t, `permit (principal, action, resource);
		forbid (principal, action == Action::"call", resource in Server::"files")
		unless { context.args has path && context.args.path like "/srv/shared/*" && !(context.args.path like "*..*") };`)
	for arguments, want := range map[string]bool{
		`{"path":"/srv/shared/a"}`: true, `{"path":"/srv/shared/../../etc/passwd"}`: false, `{"path":"/etc/passwd"}`: false, `{}`: false, `{"file":"/etc/passwd"}`: false,
		`{"Path":"/etc/passwd"}`: false, `{"path":"/srv/shared/a","Path":"/etc/passwd"}`: false, `{"path":["/srv/shared/a"]}`: false,
	} {
		request := Request{Party: alice, Action: ActionCall, ID: readFile, Arguments: json.RawMessage(arguments)}
		if got := p.Decide(request); got.Allow != want || !p.May(request) {
			t.Errorf("%s: %+v", arguments, got)
		}
	}
}

// What is listed and found follows from what could be allowed, whatever the arguments.
func TestMay(t *testing.T) {
	for _, c := range []struct {
		name, policies string
		want           bool
	}{
		{"a permit is perhaps for such arguments", `permit (principal, action, resource) when { context.args.path like "/srv/*" };`, true},
		{"but not for this tool", `permit (principal, action, resource) when { context.args.path like "/srv/*" && resource.server == "github" };`, false},
		{"unless: either may be the reason", `permit (principal, action, resource) unless { context.args.force || resource.server == "files" };`, false},
		{"a condition of both is dropped whole", `permit (principal, action, resource) when { context.args.force || resource.server == "github" };`, true},
		{"a forbid of such arguments is for later", `permit (principal, action, resource); forbid (principal, action, resource) when { context.args.path like "/etc/*" };`, true},
		{"a forbid of the tool is not", `permit (principal, action, resource); forbid (principal, action, resource == Tool::"files.read_file");`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := compile(t, c.policies).May(Request{Party: alice, Action: ActionCall, ID: readFile}); got != c.want {
				t.Errorf("May() = %v, want %v", got, c.want)
			}
		})
	}
	if none, _ := Compile(nil); !none.May(Request{}) || !none.Decide(Request{}).Allow || none.Class(alice) != "" {
		t.Error("without policies not everything is allowed")
	}
}

// What a server that is starting will have is not known: it is named to those who could be
// allowed something of it.
func TestMayServer(t *testing.T) {
	p := compile(t, `
		permit (principal in Group::"https://idp|dev", action, resource in Server::"github") when { context.readOnly && resource.name like "read_*" };
		permit (principal, action, resource == Tool::"files.read_file");
		permit (principal, action, resource) when { resource.server == "open" };
		forbid (principal, action, resource in Server::"open") when { resource.name == "delete" };`)
	for server, want := range map[string]bool{"github": true, "files": true, "open": true, "secret": false} {
		if got := p.MayServer(alice, server, "reader"); got != want {
			t.Errorf("MayServer(alice, %s) = %v", server, got)
		}
	}
	p = compile(t, `permit (principal in Group::"https://idp|dev", action, resource == Tool::"mail.send");
permit (principal in Group::"https://idp|dev", action, resource in Server::"github") when { context.readOnly };`)
	if !p.MayServer(alice, "mail", "reader", tool.KindTool) || p.MayServer(alice, "mail", "reader", tool.KindPrompt) || p.MayServer(nobody, "mail", "reader") {
		t.Error("a server with a named tool is named to others than those who may use the tool")
	}
	if p.MayServer(nobody, "github", "reader") {
		t.Error("what only a group may use is named to nobody")
	}
}

func TestErrorsHavePlaces(t *testing.T) {
	for _, c := range []struct{ policies, want string }{
		{"permit (principal, action, resource)\n\nforbid (principal, action, resource);", `team.cedar:3:1: policy: forbid where ; is expected`},
		{"permit (principal, action, resource)", "team.cedar:1:37: policy: cannot be read"},
		{`permit (principal, action == Action::"cal", resource);`, `team.cedar:1:39: policy: there is no Action::"cal" (did you mean call?)`},
		{"// ours\npermit (principal in Grup::\"dev\", action, resource);", `team.cedar:2:22: policy: there is no type Grup (did you mean Group?)`},
		{`permit (principal in Server::"github", action, resource);`, `team.cedar:1:22: policy: the principal is no Server`},
		{"permit (principal, action, resource)\nwhen { context.readonly };", `team.cedar:2:16: policy: context has no readonly (did you mean readOnly?)`},
		{`permit (principal, action, resource) when { context.scopes.contains("a") };`, `team.cedar:1:53: policy: context has no scopes (write principal.scopes)`},
		{`permit (principal, action, resource) when { context.client.nam == "a" };`, `policy: context.client has no nam (did you mean name?)`},
		{`permit (principal, action, resource) when { resource is Tol };`, `policy: there is no type Tol (did you mean Tool?)`},
		{`permit (principal, action, resource) when { context == {} };`, `policy: context is asked as a whole (ask for one of its attributes: args, `},
		{"permit (principal, action, resource) when { context == {} };\npermit (principal, action, resource) when { context has args };", `team.cedar:1:45: policy: context is asked as a whole`},
		{`permit (principal, action, resource) when { "unended };`, `team.cedar:1:`},
	} {
		p, wrong := Compile([]Text{{Cedar: "permit (principal, action, resource);", File: "good.cedar", Line: 1, Column: 1}, {Cedar: c.policies, File: "team.cedar", Line: 1, Column: 1}})
		if p != nil || len(wrong) != 1 || !strings.Contains(wrong[0].Error(), c.want) {
			t.Errorf("%s\n got %v\nwant %s", c.policies, wrong, c.want)
		}
	}
	_, wrong := Compile([]Text{{Cedar: "permit (principal, action,\nresorce);", File: "toolfinch.yaml", Line: 12, Column: 5, Indent: 4}})
	if len(wrong) != 1 || !strings.HasPrefix(wrong[0].Error(), "toolfinch.yaml:13:5: ") {
		t.Errorf("inline: %v", wrong)
	}
}

// What a policy names is checked in every form that the language has.
func TestWhatPoliciesName(t *testing.T) {
	p := compile(t, `permit (principal is User in Group::"https://idp|dev", action in [Action::"call", Action::"read"], resource is Tool in Server::"github");
forbid (principal, action, resource in View::"reader") when { resource in Server::"files" };`)
	var named []string
	for _, n := range p.Named() {
		named = append(named, n.Type+" "+n.Name+" "+n.At.Error())
	}
	if want := []string{"Server github team.cedar:1:129: ", "View reader team.cedar:2:47: ", "Server files team.cedar:2:84: "}; !slices.Equal(named, want) {
		t.Errorf("named %q, want %q", named, want)
	}
	if rules := p.Rules(); len(rules) != 2 || rules[0].Line != 1 || rules[0].Forbid || !rules[1].Forbid || len(p.Texts()) != 1 {
		t.Errorf("%+v", rules)
	}
	if none := (*Policies)(nil); none.Named() != nil || none.Rules() != nil || none.Texts() != nil {
		t.Error("no policies have something")
	}
	for text, want := range map[string]string{
		`permit (principal is Server, action, resource);`:                               `the principal is no Server (known: User, Group)`,
		`permit (principal is User in Server::"a", action, resource);`:                  `the principal is no Server`,
		`permit (principal, action in [Action::"call", Action::"write"], resource);`:    `there is no Action::"write"`,
		`permit (principal, action, resource is Group);`:                                `the resource is no Group`,
		`permit (principal, action, resource) when { resource is Tol in Server::"a" };`: `there is no type Tol (did you mean Tool?)`,
		`permit (principal, action, resource) when { principal.hasTag("a") };`:          `there are no tags`,
		`permit (principal, action, resource) when { principal in Grup::"a" };`:         `there is no type Grup (did you mean Group?)`,
		`permit (principal, action, resource) when { context.zzzzzz };`:                 `context has no zzzzzz (known: `,
		`permit (principal, action, resource) when { principal.zzzzzz == "a" };`:        `principal has no zzzzzz (known: scopes)`,
	} {
		if _, wrong := Compile([]Text{{Cedar: text, File: "team.cedar", Line: 1, Column: 1}}); len(wrong) == 0 || !strings.Contains(wrong[0].Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", text, wrong, want)
		}
	}
}

// A group is that of one source: the same name may mean other people elsewhere.
func TestGroupsNameTheirSource(t *testing.T) {
	const members = `permit (principal, action, resource) when { principal in Group::%q };`
	both, one := []string{"key", "https://idp"}, []string{"https://idp"}
	for _, test := range []struct {
		name    string
		sources []string
		group   string
		want    string // of the error
	}{
		{"of an issuer", both, "https://idp|dev", ""},
		{"of keys", both, "key|bots", ""},
		{"a group with the sign in its name", both, "https://idp|a|b", ""},
		{"of no source", both, "dev", `team.cedar:1:66: policy: Group::"dev" does not begin with the issuer that says who is in it (write Group::"key|dev" or Group::"https://idp|dev")`},
		{"of no source, where there is one: another may take its place", one, "dev", `(write Group::"https://idp|dev")`},
		{"of an issuer that is not configured", one, "https://old|dev", `policy: Group::"https://old|dev" does not begin with the issuer that says who is in it (write Group::"https://idp|dev")`},
		{"an issuer that only begins as a configured one", one, "https://idp.example|dev", `(write Group::"https://idp|dev")`},
		{"nobody is in a group", nil, "dev", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, wrong := Compile([]Text{{Cedar: fmt.Sprintf(members, test.group), File: "team.cedar", Line: 1, Column: 1}}, test.sources...)
			switch {
			case test.want == "" && (p == nil || wrong != nil):
				t.Errorf("refused: %v", wrong)
			case test.want != "" && (p != nil || len(wrong) != 1 || !strings.Contains(wrong[0].Error(), test.want)):
				t.Errorf("got %v, want %s", wrong, test.want)
			}
		})
	}
	_, wrong := Compile([]Text{{Cedar: `forbid (principal == User::"key|ci|3f", action, resource);`, File: "team.cedar", Line: 1, Column: 1}})
	if len(wrong) != 1 || !strings.Contains(wrong[0].Error(), `(write User::"key|ci")`) {
		t.Errorf("the ID of one key: %v", wrong)
	}
}

func TestWhatUsesAKind(t *testing.T) {
	for kind, want := range map[tool.Kind]Action{tool.KindTool: ActionCall, tool.KindPrompt: ActionGet, tool.KindResource: ActionRead, tool.KindTemplate: ActionRead} {
		if got := ActionOf(kind); got != want {
			t.Errorf("%s: %s", kind, got)
		}
	}
}

func TestWhoAQuestionIsAbout(t *testing.T) {
	for _, c := range []struct {
		question Question
		want     identity.Party
		field    string // of the error; "" for none
	}{
		{Question{As: "https://idp|a|b", Groups: []string{"https://idp|dev"}, Scopes: []string{"a"}, Transport: "http", Client: "codex 1 beta"},
			identity.Party{Principal: &identity.Principal{ID: "https://idp|a|b", Groups: []string{"https://idp|dev"}, Scopes: []string{"a"}}, Transport: "http", Client: "codex", Version: "1 beta"}, ""},
		{Question{Transport: "stdio"}, identity.Party{Transport: "stdio"}, ""}, {Question{Transport: "sse"}, identity.Party{Transport: "sse"}, ""},
		{Question{Transport: "rest"}, identity.Party{Transport: "rest"}, ""}, {Question{Transport: "ui"}, identity.Party{Transport: "ui"}, ""},
		{Question{Transport: "smtp"}, identity.Party{}, "transport"}, {Question{Transport: "http", Groups: []string{"https://idp|dev"}}, identity.Party{}, "group"},
		{Question{Transport: "http", Scopes: []string{"a"}}, identity.Party{}, "scope"},
		{Question{As: "key|ci", Groups: []string{"bots"}, Transport: "http"}, identity.Party{}, "group"},
		{Question{As: "key|ci", Groups: []string{"https://idp|dev"}, Transport: "http"}, identity.Party{}, "group"},
	} {
		got, err := c.question.Party()
		var wrong *identity.FieldError
		if errors.As(err, &wrong); (err != nil) != (c.field != "") || wrong != nil && wrong.Field != c.field || err == nil && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: %+v, %v", c.question, got, err)
		}
	}
}

// Models read it: it names the use and no policy, and a long name is cut.
func TestADenialNamesNoPolicy(t *testing.T) {
	err := &DeniedError{Name: "a\nb" + strings.Repeat("x", 1000), Decision: Decision{By: []By{{ID: "secret"}}}}
	if text := err.Error(); strings.Contains(text, "secret") || strings.Contains(text, "\n") || len(text) > 200 || !strings.HasSuffix(text, "is not allowed with these arguments") {
		t.Error(text)
	}
}

// Parties whom no policy tells apart are judged once.
func TestClass(t *testing.T) {
	p := compile(t, `permit (principal in Group::"https://idp|dev", action, resource); permit (principal == User::"https://idp|bob", action, resource);`)
	bob, carol, dave := alice, alice, alice
	bob.Principal = &identity.Principal{ID: "https://idp|bob", Groups: []string{"https://idp|dev"}}
	carol.Principal = &identity.Principal{ID: "https://idp|carol", Groups: []string{"https://idp|choir", "https://idp|dev"}, Scopes: []string{"other"}}
	dave.Principal = &identity.Principal{ID: "https://idp|dave"}
	if p.Class(alice) != p.Class(carol) {
		t.Errorf("%s and %s are not the same", p.Class(alice), p.Class(carol))
	}
	for name, other := range map[string]identity.Party{"bob": bob, "dave": dave, "nobody": nobody} {
		if p.Class(alice) == p.Class(other) {
			t.Errorf("alice and %s are both %s", name, p.Class(other))
		}
	}
	for condition, other := range map[string]identity.Party{
		`principal.scopes.contains("other")`: {Principal: carol.Principal, Transport: "http", Client: "claude-code", Version: "2.1.0"},
		`context.client.name == "codex"`:     {Principal: alice.Principal, Transport: "http", Client: "codex", Version: "2.1.0"},
		`context.client.version == "2.1.1"`:  {Principal: alice.Principal, Transport: "http", Client: "claude-code", Version: "2.1.1"},
		`context.transport == "stdio"`:       {Principal: alice.Principal, Transport: "rest", Client: "claude-code", Version: "2.1.0"},
	} {
		one := identity.Party{Principal: alice.Principal, Transport: "http", Client: "claude-code", Version: "2.1.0"}
		if p.Class(one) != p.Class(other) {
			t.Errorf("parties differ where no policy asks for %s", condition)
		}
		if asking := compile(t, `permit (principal in Group::"https://idp|dev", action, resource) when { `+condition+` };`); asking.Class(one) == asking.Class(other) {
			t.Errorf("parties do not differ by %s", condition)
		}
	}
}

// The answer to a person, to toolfinch policy test --json and to the audit log names the policies that decided.
func TestVerdict(t *testing.T) {
	request := Request{Party: alice, Action: ActionCall, ID: readFile, View: "reader"}
	for _, c := range []struct {
		name     string
		policies *Policies
		question Question
		text     string // "" for an error
		json     string // of by and failed
		audited  identity.Decision
	}{
		{"no policies", nil, Question{}, "allowed: call files.read_file: there are no policies", `"by":[],"failed":[]`, identity.Decision{Allow: true}},
		{"permitted", compile(t, `@id("all") permit (principal, action, resource);`), Question{}, `allowed: call files.read_file by "all" (team.cedar:1)`,
			`"by":[{"id":"all","file":"team.cedar","line":1,"effect":"permit"}],"failed":[]`, identity.Decision{Allow: true, Policy: "all"}},
		{"forbidden by two", compile(t, `permit (principal, action, resource); @id("a") forbid (principal, action == Action::"search", resource);
forbid (principal, action, resource);`), Question{Action: "search"}, `denied: search files.read_file by "a" (team.cedar:1), team.cedar:2`,
			`"by":[{"id":"a","file":"team.cedar","line":1,"effect":"forbid"},{"id":"team.cedar:2","file":"team.cedar","line":2,"effect":"forbid"}],"failed":[]`, identity.Decision{Policy: "a, team.cedar:2"}},
		{"not permitted", compile(t, asksPath), Question{Arguments: `{"path":"/etc"}`}, "denied: call files.read_file: no policy permits it", `"by":[],"failed":[]`, identity.Decision{}},
		{"another action", compile(t, asksPath), Question{Action: "get"}, "", "", identity.Decision{}},
		{"arguments that are no JSON", compile(t, asksPath), Question{Arguments: `{`}, "", "", identity.Decision{}},
	} {
		got, err := c.question.Ask(c.policies, request)
		if c.text == "" {
			if err == nil {
				t.Errorf("%s: %v", c.name, got)
			}
			continue
		}
		raw, _ := json.Marshal(got)
		if err != nil || got.String() != c.text || !strings.HasSuffix(string(raw), `"id":"files.read_file","user":"https://idp|alice","view":"reader",`+c.json+`}`) || got.Trusted() != c.audited {
			t.Errorf("%s:\n%s\n%s\n%+v, %v", c.name, got, raw, got.Trusted(), err)
		}
	}
	if got, _ := (Question{}).Ask(compile(t, asksPath), request); got.Allow || len(got.Failed) != 1 || !strings.Contains(got.String(), "\nteam.cedar:1 permits nothing: ") {
		t.Errorf("a permit that cannot be evaluated: %s", got)
	}
}

// What a client says of itself tells parties apart by what the policies compare it with, and by nothing else:
// whoever has a thousand names is of as many classes as if it had the few that policies know.
func TestNamesOfClientsMakeNoClasses(t *testing.T) {
	named := func(name, version string) identity.Party {
		return identity.Party{Principal: alice.Principal, Transport: "http", Client: name, Version: version}
	}
	for condition, want := range map[string]int{ // classes
		`context.client.name == "evil"`:                                                            2,
		`context.client.name != "evil" && resource.name == "a"`:                                    2,
		`context.client.name like "evil*" || context.client.name like "e*" && !context.readOnly`:   3,
		`["evil", "worse"].contains(context.client.name)`:                                          2,
		`if context.client.name == "evil" then resource.server == "a" else resource.server == "b"`: 2,
		`decimal(context.client.version).lessThan(decimal("2.0"))`:                                 3, // one cannot be evaluated
		`context.client == {"name": "evil", "version": "1.0"}`:                                     2,
		`context.client has name && context.client has version`:                                    1,
		`context.transport == "http"`:                                                              1,
	} {
		p := compile(t, `permit (principal, action, resource) when { `+condition+` };`)
		classes := map[string]bool{}
		for i := range 300 {
			classes[p.Class(named(fmt.Sprint("client ", i), "x"))] = true
		}
		for _, name := range []string{"evil", "evil 2", "everybody", "worse"} {
			for _, version := range []string{"1.0", "3.0", "x"} {
				classes[p.Class(named(name, version))] = true
			}
		}
		if len(classes) != want {
			t.Errorf("%s: %d classes, want %d", condition, len(classes), want)
		}
	}
	for _, condition := range []string{
		`context.client.name == resource.server`, `resource.name like "a*" && context.client.name == context.args.name`,
		`resource.name == (if context.client.name == "evil" then "a" else "b")`, `context.client.version == "1" && [context.client.name].contains(resource.name)`,
	} {
		_, wrong := Compile([]Text{{Cedar: `permit (principal, action, resource) when { ` + condition + ` };`, File: "team.cedar", Line: 1, Column: 1}})
		if len(wrong) != 1 || !strings.Contains(wrong[0].Error(), `context.client is compared with what is asked for (compare it with text`) {
			t.Errorf("%s: %v", condition, wrong)
		}
	}
}

// Whoever asks for fewer scopes, or for more that no policy knows, makes no class of each.
func TestScopesThatNoPolicyKnowsMakeNoClasses(t *testing.T) {
	granted := func(scopes ...string) identity.Party {
		return identity.Party{Principal: &identity.Principal{ID: "https://idp|alice", Scopes: scopes}, Transport: "http"}
	}
	p := compile(t, `permit (principal, action, resource) when { principal.scopes.contains("read") || principal.scopes.containsAny(["write", "admin"]) };`)
	if p.Class(granted("read", "a")) != p.Class(granted("b", "c", "read")) || p.Class(granted("read")) == p.Class(granted("read", "admin")) || p.Class(granted("read")) == p.Class(granted()) {
		t.Error("the classes of scopes are not those that the policies make")
	}
	p = compile(t, `permit (principal, action, resource) when { principal.scopes.contains(resource.server) };`)
	if p.Class(granted("files")) == p.Class(granted("github")) || p.Class(granted("a", "b")) != p.Class(granted("b", "a")) {
		t.Error("scopes that are compared with a server do not make classes")
	}
}

func BenchmarkDecide(b *testing.B) {
	one := `permit (principal in Group::"https://idp|dev", action, resource) when { context.readOnly || resource.server == "files" };`
	arguments := one + `forbid (principal, action == Action::"call", resource) when { context.args has path && context.args.path like "/etc/*" };`
	for name, text := range map[string]string{"one policy": one, "arguments": arguments, "twenty": strings.Repeat(one, 20)} {
		p := compile(b, text)
		request := Request{Party: alice, Action: ActionCall, ID: readFile, View: "reader", Arguments: json.RawMessage(`{"path": "/srv/data/report.txt", "head": 20}`)}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !p.Decide(request).Allow {
					b.Fatal("denied")
				}
			}
		})
	}
}
