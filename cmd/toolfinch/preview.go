package main

import (
	"fmt"
	"strings"

	"toolfinch/configs"
	"toolfinch/configs/clients"
	"toolfinch/internal/rawjson"
)

// preview shows the removed and added lines of a file. Edits are in one place, so equal lines around
// them are left out.
func preview(place string, before, after []byte) string {
	was, is := linesOf(before), linesOf(after)
	same, end := common(was, is)
	var b strings.Builder
	if before == nil {
		fmt.Fprintf(&b, "%s (new)\n", place)
	} else {
		fmt.Fprintf(&b, "%s, line %d\n", place, same+1)
	}
	gone, come := was[same:len(was)-end], is[same:len(is)-end]
	if len(gone) == 1 && len(come) == 1 {
		gone, come = shortened(gone[0], come[0])
	}
	for _, line := range gone {
		b.WriteString("- " + line + "\n")
	}
	for _, line := range come {
		b.WriteString("+ " + line + "\n")
	}
	return b.String()
}

// shortened removes the common words of two long lines, and lines that are then empty: a whole file may
// be one line, with the keys of other servers.
func shortened(a, b string) (gone, come []string) {
	const long = 120
	x, y := []rune(a), []rune(b)
	if max(len(x), len(y)) <= long {
		return []string{a}, []string{b}
	}
	inWord := func(r rune) bool { return !strings.ContainsRune(" \t\"{}[],:", r) }
	same, end := common(x, y)
	changed := same+end < min(len(x), len(y)) // nothing is inserted or removed
	for changed && same > 0 && inWord(x[same-1]) {
		same--
	}
	for changed && end > 0 && inWord(x[len(x)-end]) {
		end--
	}
	piece := func(line []rune) []string {
		if same+end >= len(line) {
			return nil
		}
		return []string{"…" + string(line[same:len(line)-end]) + "…"}
	}
	return piece(x), piece(y)
}

// common counts the equal elements at the beginning of two lists, and at the end of the rest.
func common[T comparable](a, b []T) (same, end int) {
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	for end < min(len(a), len(b))-same && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	return same, end
}

func linesOf(data []byte) []string {
	if len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n"), "\n")
}

// hideValues hides possible secrets of a client's file in data. It reads the servers of all contents,
// because an edit can be on the line of another server.
func hideValues(data []byte, file clients.File, contents ...[]byte) []byte {
	if data == nil || file.Client == nil {
		return data
	}
	text := string(data)
	hide := func(value, shown string) {
		value = strings.ReplaceAll(value, "$${", "${")
		if value != "" && value != shown {
			text = strings.ReplaceAll(text, string(rawjson.Quote(value)), string(rawjson.Quote(shown)))
		}
	}
	for _, data := range contents {
		servers, err := configs.ServersIn(file, data)
		if err != nil {
			continue // the error came before: nothing is shown
		}
		for _, s := range servers {
			for _, texts := range []map[string]string{s.Env, s.Headers} {
				for _, value := range texts {
					if !strings.Contains(strings.ReplaceAll(value, "$${", ""), "${") { // a text that names a variable
						hide(value, "***")
					}
				}
			}
			command, url := configs.Shown(s)
			hide(s.URL, url)
			for i, word := range command[min(1, len(command)):] {
				hide(s.Args[i], word)
			}
		}
	}
	return []byte(text)
}
