package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/types"
	internal "github.com/cedar-policy/cedar-go/x/exp/ast"

	"toolfinch/internal/identity"
	"toolfinch/internal/nearest"
)

// Valid types of entities, and valid attributes by variable.
var (
	whoTypes  = []string{typeUser, typeGroup}
	whatTypes = []string{typeTool, typePrompt, typeResource, typeTemplate, typeSkill, typeServer, typeView}
	allTypes  = slices.Concat(whoTypes, whatTypes, []string{typeAction})

	attributes = map[string][]string{
		"principal":      {attributeScopes},
		"action":         {},
		"resource":       {attributeName, attributeServer},
		"context":        {attributeArgs, "readOnly", "destructive", "idempotent", "openWorld", attributeClient, attributeVia},
		"context.client": {attributeName, attributeVersion},
	}
)

// elsewhere maps common mistakes to the right expressions.
var elsewhere = map[string]string{
	"context.scopes": "principal.scopes", "context.view": `resource in View::"..."`, "context.server": "resource.server", "context.tool": "resource.name",
	"principal.groups": `principal in Group::"..."`, "principal.id": `principal == User::"..."`, "resource.view": `resource in View::"..."`,
	"resource.readOnly": "context.readOnly", "resource.destructive": "context.destructive",
}

// checker checks that a policy uses known types and attributes, and records what it uses.
type checker struct {
	text     Text
	end      int      // offset of the end of the policy in the text
	sources  []string // valid sources of groups
	policies *Policies
	policy   *internal.Policy
	wrong    []*Error
}

func (c *checker) check() {
	c.scope(c.policy.Principal, "principal", whoTypes)
	c.scope(c.policy.Action, "action", []string{typeAction})
	c.scope(c.policy.Resource, "resource", whatTypes)
	for _, condition := range c.policy.Conditions {
		c.walk(condition.Body)
		c.claims(condition.Body)
	}
}

func (c *checker) scope(n internal.IsScopeNode, part string, valid []string) {
	switch n := n.(type) {
	case internal.ScopeTypeEq:
		c.named(n.Entity, part, valid)
	case internal.ScopeTypeIn:
		c.named(n.Entity, part, valid)
	case internal.ScopeTypeInSet:
		for _, one := range n.Entities {
			c.named(one, part, valid)
		}
	case internal.ScopeTypeIs:
		c.ofType(string(n.Type), part, valid)
	case internal.ScopeTypeIsIn:
		c.ofType(string(n.Type), part, valid)
		c.named(n.Entity, part, valid)
	}
}

func (c *checker) walk(n internal.IsNode) {
	internal.Inspect(internal.NewNode(n), func(n internal.IsNode) bool {
		if of, attribute, ok := attributeOf(n); ok {
			return c.asked(of, attribute)
		}
		switch n := n.(type) {
		case internal.NodeTypeVariable:
			if n.Name == "context" {
				c.fail("context", "policy: context is asked as a whole", "ask for one of its attributes: "+strings.Join(attributes["context"], ", "))
			}
		case internal.NodeTypeIs:
			c.ofType(string(n.EntityType), "is", allTypes)
		case internal.NodeTypeIsIn:
			c.ofType(string(n.EntityType), "is", allTypes)
		case internal.NodeTypeGetTag, internal.NodeTypeHasTag:
			c.fail("Tag", "policy: there are no tags", "")
		case internal.NodeValue:
			if uid, ok := n.Value.(types.EntityUID); ok {
				c.named(uid, "condition", allTypes)
			}
		}
		return true
	})
}

// asked checks the attribute of an expression; it reports whether the expression itself must be checked, too.
func (c *checker) asked(of internal.IsNode, attribute string) bool {
	path := ""
	switch of := of.(type) {
	case internal.NodeTypeVariable:
		path = string(of.Name)
	case internal.NodeTypeAccess:
		if variable, ok := of.Arg.(internal.NodeTypeVariable); ok && variable.Name == "context" && of.Value == attributeClient {
			path = "context.client"
		}
	}
	valid, known := attributes[path]
	if !known { // an argument of a call may have any name
		if all := c.policies.members[fold(attribute)]; !slices.Contains(all, attribute) {
			c.policies.members[fold(attribute)] = append(all, attribute)
		}
		return true
	}
	if !slices.Contains(valid, attribute) {
		hint := elsewhere[path+"."+attribute]
		switch {
		case hint != "":
			hint = "write " + hint
		default:
			hint = nearHint(attribute, valid)
		}
		c.fail(attribute, fmt.Sprintf("policy: %s has no %s", path, attribute), hint)
	}
	r := &c.policies.reads
	switch path + "." + attribute {
	case "context." + attributeArgs:
		r.args = true
	case "context." + attributeVia:
		r.transport = true
	}
	return path == "context.client"
}

// claims records each comparison in a condition that depends on scopes, or on the name or version of the client. It
// refuses to compare the client with the requested thing: a client can take any name, and so could belong to any
// number of classes (see Policies.Class).
func (c *checker) claims(n internal.IsNode) {
	ofClient := asks(n, isClient)
	if !ofClient && !asks(n, isScopes) {
		return
	}
	c.policies.reads.client = c.policies.reads.client || ofClient
	switch n := n.(type) {
	case internal.NodeTypeAnd:
		c.claims(n.Left)
		c.claims(n.Right)
	case internal.NodeTypeOr:
		c.claims(n.Left)
		c.claims(n.Right)
	case internal.NodeTypeNot:
		c.claims(n.Arg)
	case internal.NodeTypeIfThenElse:
		c.claims(n.If)
		c.claims(n.Then)
		c.claims(n.Else)
	default:
		switch asked := asksWhat(n); {
		case asked && ofClient:
			c.fail(attributeClient, "policy: context.client is compared with what is asked for", `compare it with text: context.client.name like "claude*"`)
			return
		case asked:
			c.policies.reads.scopes = true
			return
		}
		c.policies.claims = append(c.policies.claims, rule{Policy: cedar.NewPolicyFromAST(ast.Permit().When(ast.Node{Node: internal.NewNode(n)}))})
	}
}

// named checks an entity that a policy names, and records it.
func (c *checker) named(uid types.EntityUID, part string, valid []string) {
	if !c.ofType(string(uid.Type), part, valid) {
		return
	}
	switch uid.Type {
	case typeUser:
		c.user(string(uid.ID))
		c.policies.users[string(uid.ID)] = true
	case typeGroup:
		c.group(string(uid.ID))
		c.policies.groups[string(uid.ID)] = true
	case typeAction:
		if !slices.Contains(actions, string(uid.ID)) {
			c.fail(string(uid.ID), fmt.Sprintf("policy: there is no Action::%q", string(uid.ID)), nearHint(string(uid.ID), actions))
		}
	case typeTool, typePrompt, typeResource, typeTemplate, typeSkill:
		c.policies.things = append(c.policies.things, uid)
	case typeServer, typeView:
		at := c.place(string(uid.ID))
		c.policies.named = append(c.policies.named, Named{string(uid.Type), string(uid.ID), at})
	}
}

// user refuses the ID of a single key, as the audit log shows it: policies name keys by their names.
func (c *checker) user(id string) {
	if label := identity.Label(id); label != id {
		c.fail(id, fmt.Sprintf("policy: User::%q is the ID of one key", id), fmt.Sprintf("write User::%q", label))
	}
}

// group refuses a group that does not begin with its source: the same name from another source is another group, and
// the configured source may be replaced.
func (c *checker) group(name string) {
	if len(c.sources) == 0 || slices.ContainsFunc(c.sources, func(source string) bool { return identity.Of(source, name) }) {
		return
	}
	var valid []string
	for _, source := range c.sources {
		valid = append(valid, fmt.Sprintf("Group::%q", identity.From(source, name[strings.LastIndex(name, "|")+1:])))
	}
	c.fail(name, fmt.Sprintf("policy: Group::%q does not begin with the issuer that says who is in it", name), "write "+strings.Join(valid, " or "))
}

func (c *checker) ofType(name, part string, valid []string) bool {
	if slices.Contains(valid, name) {
		return true
	}
	message := fmt.Sprintf("policy: there is no type %s", name)
	if slices.Contains(allTypes, name) {
		message = fmt.Sprintf("policy: the %s is no %s", part, name)
	}
	c.fail(name, message, nearHint(name, valid))
	return false
}

func nearHint(word string, valid []string) string {
	if near := nearest.Names(word, valid, 1, nearest.Loose); len(near) > 0 {
		return fmt.Sprintf("did you mean %s?", near[0])
	}
	if len(valid) == 0 {
		return ""
	}
	return "known: " + strings.Join(valid, ", ")
}

func (c *checker) fail(word, message, hint string) {
	at := c.place(word)
	at.Message, at.Hint = message, hint
	c.wrong = append(c.wrong, at)
}

// place returns the position of a word of the policy: the library keeps the positions of whole policies only.
func (c *checker) place(word string) *Error {
	start := c.policy.Position.Offset
	body := c.text.Cedar[start:c.end]
	at := 0
	if found := regexp.MustCompile(`(^|\W)` + regexp.QuoteMeta(word) + `($|\W)`).FindStringIndex(body); found != nil {
		at = found[0] + strings.Index(body[found[0]:], word)
	}
	before := c.text.Cedar[:start+at]
	line := strings.Count(before, "\n") + 1
	column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
	return c.text.at(line, column, "", "")
}
