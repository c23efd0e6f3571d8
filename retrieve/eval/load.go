package eval

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"toolfinch/tool"
)

// The files of a set in a folder.
const (
	toolsFile   = "tools.jsonl"
	queriesFile = "queries.jsonl"
)

// maxProblems bounds the reported mistakes of a file.
const maxProblems = 10

// ReadSet reads tools.jsonl and queries.jsonl of a folder.
func ReadSet(name, dir string) (*Set, error) {
	defs, err := ReadTools(filepath.Join(dir, toolsFile))
	if err != nil {
		return nil, err
	}
	queries, err := ReadQueries(filepath.Join(dir, queriesFile))
	if err != nil {
		return nil, err
	}
	return &Set{Name: name, Defs: defs, Queries: queries}, nil
}

// ReadTools reads tool definitions, one JSON object per line, as a server lists them, with the server's name in
// "server". The error names the first malformed and duplicate lines.
func ReadTools(path string) ([]*tool.Def, error) {
	var defs []*tool.Def
	lineOf := map[string]int{}
	err := eachLine(path, func(number int, line []byte) error {
		var head struct {
			Server string `json:"server"`
		}
		if err := json.Unmarshal(line, &head); err != nil {
			return notJSON(err)
		}
		if head.Server == "" {
			return errors.New(`no server: add "server": "NAME"`)
		}
		def, err := tool.ParseDef(head.Server, line)
		if err != nil {
			return err
		}
		if first, twice := lineOf[label(def)]; twice {
			return fmt.Errorf("%s is on line %d already", label(def), first)
		}
		lineOf[label(def)] = number
		defs = append(defs, def)
		return nil
	})
	if err == nil && len(defs) == 0 {
		err = fmt.Errorf("%s: no tools", path)
	}
	return defs, err
}

// ReadQueries reads queries, one JSON object per line: "query", "relevant" (names of tools, see Set.Resolve), and
// optionally "id" (default: the line number) and "kind". The error names the first malformed lines.
func ReadQueries(path string) ([]Query, error) {
	var queries []Query
	lineOf := map[string]int{}
	err := eachLine(path, func(number int, line []byte) error {
		var in struct {
			ID       string   `json:"id"`
			Query    string   `json:"query"`
			Kind     string   `json:"kind"`
			Relevant []string `json:"relevant"`
		}
		if err := json.Unmarshal(line, &in); err != nil {
			return notJSON(err)
		}
		if in.ID == "" {
			in.ID = strconv.Itoa(number)
		}
		if strings.TrimSpace(in.Query) == "" {
			return errors.New("query is empty")
		}
		if len(in.Relevant) == 0 {
			return errors.New(`relevant is empty: name the tools that would do, as "server:name"`)
		}
		if first, twice := lineOf[in.ID]; twice {
			return fmt.Errorf("the id %q is on line %d already", in.ID, first)
		}
		lineOf[in.ID] = number
		queries = append(queries, Query{ID: in.ID, Text: in.Query, Kind: in.Kind,
			Relevant: unique(in.Relevant), Place: place(path, number)})
		return nil
	})
	if err == nil && len(queries) == 0 {
		err = fmt.Errorf("%s: no queries", path)
	}
	return queries, err
}

// notJSON names the key that has a value of the wrong type.
func notJSON(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return fmt.Errorf("%s must not be a %s", wrong.Field, wrong.Value)
	}
	return fmt.Errorf("not a JSON object: %w", err)
}

// eachLine calls do with every line that is not blank and collects the errors, with their places.
func eachLine(path string, do func(number int, line []byte) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var problems []error
	lines := bufio.NewReaderSize(f, 1<<16)
	for number := 1; len(problems) < maxProblems; number++ {
		line, err := lines.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return err
		}
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if text := bytes.TrimSpace(line); len(text) > 0 {
			if problem := do(number, text); problem != nil {
				problems = append(problems, fmt.Errorf("%s: %w", place(path, number), problem))
			}
		}
		if err == io.EOF {
			break
		}
	}
	return errors.Join(problems...)
}

func place(path string, line int) string { return path + ":" + strconv.Itoa(line) }
