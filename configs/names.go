package configs

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"toolfinch/internal/document"
	"unicode"
	"unicode/utf8"
)

// reservedNames are the names of meta-tools, which no other tool may have.
var reservedNames = []string{
	"retrieve_tools", "call_tool", "call_tool_read", "call_tool_write", "call_tool_destructive",
	"discover_tools", "provision_tools", "unprovision_tools", "execute_tool", "list_provisioned",
	"read_output", "run_script",
}

var exposedName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// claim checks that an exposed name is legal and new. Messages do not repeat the name,
// because it may come from a variable.
func (d *decoder) claim(n *document.Node, label, name string) {
	if !d.checkExposed(n, label, name) {
		return
	}
	if first, taken := d.taken[name]; taken {
		d.fail(n, label+" is the name of another tool already", fmt.Sprintf("of the one on line %d", first.node.Line))
		return
	}
	d.taken[name] = origin{node: n, label: label}
}

func (r *report) failOwn(n *document.Node, label string) {
	r.fail(n, label+" is the name of one of toolfinch's own tools: "+asWritten(n), "choose another one")
}

func (r *report) checkExposed(n *document.Node, label, name string) bool {
	switch {
	case !exposedName.MatchString(name):
		r.mustBe(n, label, "1 to 64 letters, digits, _ and -", "clients and models accept no other names of tools")
		return false
	case slices.Contains(reservedNames, name):
		r.failOwn(n, label)
		return false
	}
	return true
}

// emptyHint is the hint for a file without servers.
const emptyHint = "list servers under mcp_servers"

// noServer notes that the current view names an unknown server.
func (d *decoder) noServer(n *document.Node, message, hint string) {
	d.absent = append(d.absent, d.at(n, message, hint))
}

// knowsServer reports whether a server, enabled or not, has the name. If reading servers
// failed, it returns true, because one error is enough.
func (d *decoder) knowsServer(name string) bool {
	return len(d.known) == 0 && len(d.errors) > 0 || slices.Contains(d.known, name)
}

func (s *serverNames) serverHint(name string) string {
	if len(s.known) == 0 {
		return emptyHint
	}
	const most = 10 // names in a hint
	if len(s.known) > most {
		return nearHint(name, s.known)
	}
	return didYouMean(name, s.known)
}

// serverOf returns the server of server.tool, else of server:tool, else "". The longest
// name wins, because names of servers may have dots and colons.
func (s *serverNames) serverOf(id string) (server string) {
	for _, between := range []string{".", ":"} {
		for _, name := range s.known {
			rest, found := strings.CutPrefix(id, name+between)
			if found && rest != "" && len(name) >= len(server) {
				server = name
			}
		}
		if server != "" {
			break
		}
	}
	return server
}

// switchedOff returns the disabled server whose tool may have the exposed name, or "".
func (s *serverNames) switchedOff(name string) string {
	longest := ""
	for _, server := range s.known {
		if strings.HasPrefix(name, server+"_") && len(server) > len(longest) {
			longest = server
		}
	}
	if s.off[longest] {
		return longest
	}
	return ""
}

const maxName = 64

func (d *decoder) checkName(key *document.Node) {
	name := key.Text
	for i, r := range name {
		if !legalInName(r, i == 0) {
			d.fail(key, fmt.Sprintf("illegal server name %q: %s", shorten(name), nameRule), nameHint(name))
			return
		}
	}
	if n := utf8.RuneCountInString(name); n == 0 || n > maxName {
		d.fail(key, fmt.Sprintf("illegal server name %q: %d characters; %s", shorten(name), n, nameRule), nameHint(name))
	}
}

const nameRule = "1 to 64 letters, digits, spaces and _ - . / @ : beginning with a letter or digit"

func legalInName(r rune, first bool) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || !first && strings.ContainsRune("_-./@: ", r)
}

// nameHint suggests a legal name for an illegal name.
func nameHint(name string) string {
	if legal := legalName(name); legal != "" {
		return fmt.Sprintf("for example %q", legal)
	}
	return ""
}

// legalName returns a legal name that looks like name, "" without a letter or digit.
func legalName(name string) string {
	legal := strings.Map(func(r rune) rune {
		if legalInName(r, false) {
			return r
		}
		return '-'
	}, name)
	legal = strings.TrimLeft(legal, "_-./@: ")
	if r := []rune(legal); len(r) > maxName {
		legal = string(r[:maxName])
	}
	if legal != name {
		legal = strings.TrimRight(legal, "_-./@: ")
	}
	return legal
}

// legalNames returns legal names for servers of another program's file. Two that become one
// are told apart; seen has the names of other blocks.
func legalNames(pairs []document.Pair, seen map[string]*document.Node) (names []string) {
	taken := map[string]bool{}
	for name := range seen {
		taken[name] = true
	}
	for _, p := range pairs {
		taken[p.Key.Text] = true
	}
	for _, p := range pairs {
		name := cmp.Or(legalName(p.Key.Text), "server")
		legal := name
		for n := 2; legal != p.Key.Text && taken[legal]; n++ {
			legal = fmt.Sprintf("%s-%d", name, n)
		}
		taken[legal] = true
		names = append(names, legal)
	}
	return names
}
