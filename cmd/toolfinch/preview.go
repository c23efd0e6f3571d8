package main

import (
	"fmt"
	"strings"

	"toolfinch/configs"
	"toolfinch/configs/clients"
	"toolfinch/internal/rawjson"
)

// preview shows the removed and added lines of a file. Each edit changes one place, so the equal lines before and after
// it are left out.
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

// shortened removes the common words at both ends of two long lines, and a line that is then empty. A whole file may
// be one line, and may contain secrets of other servers.
func shortened(a, b string) (gone, come []string) {
	const long = 120
	x, y := []rune(a), []rune(b)
	if max(len(x), len(y)) <= long {
		return []string{a}, []string{b}
	}
	inWord := func(r rune) bool { return !strings.ContainsRune(" \t\"{}[],:", r) }
	same, end := common(x, y)
	changed := same+end < min(len(x), len(y)) // false if text was only inserted or only removed
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

// common counts the equal elements at the beginning of two lists, and the equal elements at the end of their rests.
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

// hideValues hides possible secrets in data. It hides the values of the servers in all contents, because an edit may be
// on the same line as another server.
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
			continue // cannot happen: after such an error nothing is shown
		}
		for _, s := range servers {
			for _, texts := range []map[string]string{s.Env, s.Headers} {
				for _, value := range texts {
					if !strings.Contains(strings.ReplaceAll(value, "$${", ""), "${") { // a value that names a variable is no secret
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
