package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"toolfinch/internal/rawjson"
)

// maxFrontmatter bounds YAML frontmatter as written, and again with its aliases resolved.
const maxFrontmatter = 64 << 10

// Frontmatter returns the YAML between the first line of a Markdown text, ---, and the next such line, as a JSON
// object: numbers as they are written, dates as text.
func Frontmatter(markdown []byte) (json.RawMessage, error) {
	yaml, _, ok := cutFrontmatter(markdown)
	switch {
	case !ok:
		return nil, errors.New("it has no frontmatter: YAML between a first line --- and a second one")
	case len(yaml) > maxFrontmatter:
		return nil, fmt.Errorf("its frontmatter has %d bytes, more than %d", len(yaml), maxFrontmatter)
	}
	clean, bad := cleanText(yaml)
	if bad != nil {
		return nil, fmt.Errorf("its frontmatter: %s", bad.Message)
	}
	root, problems := parseYAML(clean)
	if len(problems) > 0 {
		p := problems[0]
		p.Line++ // the line --- is not in yaml
		return nil, &p
	}
	if root.Kind != Mapping {
		return nil, fmt.Errorf("its frontmatter is %s, not a mapping", root.Kind)
	}
	left := maxFrontmatter
	if err := root.plain(&left); err != nil {
		return nil, err
	}
	return root.JSON(), nil
}

// plain reports a duplicate key, or that aliases make more than left bytes of the tree.
func (n *Node) plain(left *int) error {
	if *left -= 1 + len(n.Text); *left < 0 {
		return fmt.Errorf("its frontmatter has more than %d bytes with its aliases resolved", maxFrontmatter)
	}
	for _, item := range n.Items {
		if err := item.plain(left); err != nil {
			return err
		}
	}
	seen := make(map[string]bool, len(n.Pairs))
	for _, p := range n.Pairs {
		if seen[p.Key.Text] {
			return fmt.Errorf("line %d: its frontmatter has the key %.100q twice", p.Key.Line+1, p.Key.Text)
		}
		seen[p.Key.Text] = true
		*left -= len(p.Key.Text)
		if err := p.Value.plain(left); err != nil {
			return err
		}
	}
	return nil
}

// cutFrontmatter splits a Markdown text into its frontmatter and the rest.
func cutFrontmatter(markdown []byte) (yaml, rest []byte, ok bool) {
	at := 0
	markdown = bytes.TrimPrefix(markdown, []byte("\ufeff"))
	for line := range bytes.Lines(markdown) {
		fence := string(bytes.TrimRight(line, " \t\r\n")) == "---"
		switch {
		case at == 0 && !fence:
			return nil, markdown, false
		case at == 0:
			yaml = markdown[len(line):]
		case fence:
			return yaml[:at-(len(markdown)-len(yaml))], markdown[at+len(line):], true
		}
		at += len(line)
	}
	return nil, markdown, false
}

// Bounds of headings: they are search text.
const (
	maxHeadings = 100
	maxHeading  = 200 // bytes
)

var (
	codeFence = regexp.MustCompile("^ {0,3}(`{3,}[^`]*|~{3,}.*)$")
	atx       = regexp.MustCompile(`^ {0,3}#{1,6}(?:[ \t]+(.*?))??(?:[ \t]+#*)?[ \t]*$`)
)

// Headings returns the first headings of a Markdown text that are marked with # and stand outside of fenced code.
func Headings(markdown []byte) (headings []string) {
	_, body, _ := cutFrontmatter(markdown)
	fence := "" // that opened the code around the line
	for raw := range bytes.Lines(body) {
		line := strings.TrimRight(string(raw), "\r\n")
		if marks := codeFence.FindStringSubmatch(line); marks != nil {
			mark := marks[1][:1]
			run := marks[1][:len(marks[1])-len(strings.TrimLeft(marks[1], mark))]
			switch {
			case fence == "":
				fence = run
			case strings.HasPrefix(run, fence) && strings.TrimSpace(marks[1]) == run:
				fence = ""
			}
			continue
		}
		if fence != "" {
			continue
		}
		if m := atx.FindStringSubmatch(line); m != nil && m[1] != "" {
			if headings = append(headings, rawjson.Head(m[1], maxHeading)); len(headings) == maxHeadings {
				return headings
			}
		}
	}
	return headings
}
