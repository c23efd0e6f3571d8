package clients

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// tomlBlock is the table of servers.
const tomlBlock = "mcp_servers"

// tomlServer is a server as Codex has it.
type tomlServer struct {
	Command     string            `toml:"command"`
	Args        []string          `toml:"args"`
	Env         map[string]string `toml:"env"`
	EnvVars     []any             `toml:"env_vars"` // names, or tables of other meanings
	Cwd         string            `toml:"cwd"`
	URL         string            `toml:"url"`
	Headers     map[string]string `toml:"http_headers"`
	EnvHeaders  map[string]string `toml:"env_http_headers"`
	TokenEnvVar string            `toml:"bearer_token_env_var"`
	Enabled     *bool             `toml:"enabled"`
}

func tomlServers(data []byte) ([]Server, error) {
	var file struct {
		Servers map[string]tomlServer `toml:"mcp_servers"`
	}
	if err := toml.Unmarshal(bytes.TrimPrefix(data, bom), &file); err != nil {
		return nil, tomlError(err)
	}
	var servers []Server
	for _, name := range slices.Sorted(maps.Keys(file.Servers)) {
		t := file.Servers[name]
		s := Server{
			Name: name, Command: t.Command, Args: t.Args, Env: t.Env, Cwd: t.Cwd, URL: t.URL, Headers: t.Headers,
			Disabled: t.Enabled != nil && !*t.Enabled,
		}
		s.translate(literal)
		for _, variable := range t.EnvVars {
			if name, ok := variable.(string); ok {
				set(&s.Env, name, "${"+name+"}")
			}
		}
		for header, variable := range t.EnvHeaders {
			set(&s.Headers, header, "${"+variable+"}")
		}
		if t.TokenEnvVar != "" {
			set(&s.Headers, "Authorization", "Bearer ${"+t.TokenEnvVar+"}")
		}
		s.check()
		servers = append(servers, s)
	}
	return servers, nil
}

// tomlError has the place and the reason; what the library quotes of the file
// may be a secret.
func tomlError(err error) error {
	if decode, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := decode.Position()
		return fmt.Errorf("is not valid TOML or has a value of another kind than is known: line %d, column %d", line, column)
	}
	return errors.New("is not valid TOML")
}

// tomlSet puts the server in a table of its own: where the old one began, else
// at the end.
func tomlSet(data []byte, name string, e Entry) ([]byte, error) {
	newline := "\n"
	if bytes.Contains(data, []byte("\r\n")) {
		newline = "\r\n"
	}
	spans, err := tomlTables(data, name)
	if err != nil {
		return nil, err
	}
	lines := []string{fmt.Sprintf("[%s.%s]", tomlBlock, tomlKey(name))}
	if e.URL != "" {
		lines = append(lines, "url = "+tomlText(e.URL))
	} else {
		args := make([]string, len(e.Args))
		for i, arg := range e.Args {
			args[i] = tomlText(arg)
		}
		lines = append(lines, "command = "+tomlText(e.Command), "args = ["+strings.Join(args, ", ")+"]")
	}
	table := strings.Join(lines, newline) + newline
	var after []byte
	if len(spans) == 0 {
		after = bytes.Clone(data)
		if len(bytes.TrimSpace(bytes.TrimPrefix(data, bom))) > 0 {
			after = append(bytes.TrimRight(after, " \t\r\n"), newline+newline...)
		}
		after = append(after, table...)
	} else {
		after = cutSpans(data, spans[1:])
		after = slices.Concat(after[:spans[0].from], []byte(table), after[spans[0].to:])
	}
	return after, tomlSameBut(data, after, name, true)
}

func tomlRemove(data []byte, name string) ([]byte, error) {
	spans, err := tomlTables(data, name)
	if err != nil {
		return nil, err
	}
	for i, s := range spans {
		before := data[:s.from]
		// Comments directly above, and one empty line.
		for {
			line := before[bytes.LastIndexByte(bytes.TrimSuffix(before, []byte("\n")), '\n')+1:]
			if !bytes.HasPrefix(bytes.TrimSpace(line), []byte("#")) {
				break
			}
			before = before[:len(before)-len(line)]
		}
		for _, blank := range []string{"\r\n\r\n", "\n\n"} {
			if bytes.HasSuffix(before, []byte(blank)) {
				before = before[:len(before)-len(blank)/2]
				break
			}
		}
		spans[i].from = len(before)
	}
	after := cutSpans(data, spans)
	return after, tomlSameBut(data, after, name, false)
}

// span is a range of bytes.
type span struct{ from, to int }

func cutSpans(data []byte, spans []span) []byte {
	after, from := []byte{}, 0
	for _, s := range spans {
		after = append(after, data[from:max(from, s.from)]...)
		from = s.to
	}
	return append(after, data[from:]...)
}

// tomlTables returns where the tables of the server stand, in file order: from
// the header to the end of the last value.
func tomlTables(data []byte, name string) ([]span, error) {
	var p unstable.Parser
	body := bytes.TrimPrefix(data, bom)
	shift := len(data) - len(body)
	p.Reset(body)
	var spans []span
	ours := false
	end := func(limit int) {
		if ours {
			spans[len(spans)-1].to = shift + contentEnd(body, limit)
		}
	}
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind != unstable.Table && e.Kind != unstable.ArrayTable {
			continue
		}
		var key []string
		start := -1
		for it := e.Key(); it.Next(); {
			if start < 0 {
				start = bytes.LastIndexByte(body[:it.Node().Raw.Offset], '\n') + 1
			}
			key = append(key, string(it.Node().Data))
		}
		end(start)
		if ours = len(key) >= 2 && key[0] == tomlBlock && key[1] == name; ours {
			spans = append(spans, span{from: shift + start})
		}
	}
	if p.Error() != nil {
		return nil, errors.New("is not valid TOML")
	}
	end(len(body))
	return spans, nil
}

// contentEnd is where the last line before limit ends that is neither empty nor
// a comment: those belong to what follows.
func contentEnd(data []byte, limit int) int {
	for limit > 0 {
		start := bytes.LastIndexByte(data[:limit-1], '\n') + 1
		if line := bytes.TrimSpace(data[start:limit]); len(line) > 0 && line[0] != '#' {
			break
		}
		limit = start
	}
	return limit
}

// tomlSameBut checks that two documents differ in the one server only, and that
// the second has it or not.
func tomlSameBut(before, after []byte, name string, has bool) error {
	rest := func(data []byte) (map[string]any, bool, error) {
		file := map[string]any{}
		if err := toml.Unmarshal(bytes.TrimPrefix(data, bom), &file); err != nil {
			return nil, false, tomlError(err)
		}
		servers, _ := file[tomlBlock].(map[string]any)
		_, has := servers[name]
		delete(servers, name)
		if len(servers) == 0 {
			delete(file, tomlBlock)
		}
		return file, has, nil
	}
	a, _, err := rest(before)
	if err != nil {
		return err
	}
	b, got, err := rest(after)
	if err != nil || got != has || !reflect.DeepEqual(a, b) {
		return errOthers
	}
	return nil
}

// tomlKey is a key, in quotes where it must be.
func tomlKey(name string) string {
	bare := func(r rune) bool { return r == '-' || r < 128 && isNameByte(byte(r), false) }
	if name != "" && !strings.ContainsFunc(name, func(r rune) bool { return !bare(r) }) {
		return name
	}
	return tomlText(name)
}

// tomlText is a basic string. JSON's escapes are TOML's, but for the one
// character that JSON leaves as it is.
func tomlText(s string) string {
	return strings.ReplaceAll(quote(s), "\x7f", `\u007F`)
}
