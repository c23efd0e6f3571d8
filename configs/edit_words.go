package configs

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/view"
)

// Words that a search finds a tool by end its description, on a line of their own: "{original}\nAlso for: jot, recall".
const (
	wordsLine = tool.AlsoFor
	original  = "{original}"

	maxWords = 40 // of one tool
	maxWord  = 40 // bytes
)

// WordsOf returns the words that AddWords has added to a tool's description, as the servers' settings state it.
func WordsOf(servers []view.UpstreamTools, server, name string) []string {
	at := slices.IndexFunc(servers, func(s view.UpstreamTools) bool { return s.Name == server })
	if at < 0 {
		return nil
	}
	for _, o := range servers[at].Tools {
		if o.Tool == name && o.Description != nil {
			_, words := splitWords(*o.Description)
			return words
		}
	}
	return nil
}

// AddWords adds words to the description of a server's tool, in the tools block under the server, and returns those
// that it had not. Words are letters and digits: a text of a client must not become a variable or a sentence there. An
// unknown server is a *NameError; if a pattern changes the tool, the error wraps ErrPattern.
func AddWords(path, server, name string, words []string) (added []string, err error) {
	err = editWords(path, server, name, func(had []string) ([]string, error) {
		for _, word := range words {
			if word == "" || len(word) > maxWord || strings.ContainsFunc(word, notInWord) {
				return nil, fmt.Errorf("%q is no word of letters and digits", shorten(word))
			}
			if !slices.Contains(had, word) {
				had, added = append(had, word), append(added, word)
			}
		}
		if len(had) > maxWords {
			return nil, fmt.Errorf("%s.%s would be found by more than %d added words", server, name, maxWords)
		}
		return had, nil
	})
	if err != nil {
		return nil, err
	}
	return added, nil
}

// RemoveWords removes words that AddWords has added. Without any, the description is as it was before. If the tool has
// none of the words, or somebody went on writing after them, that is an error.
func RemoveWords(path, server, name string, words []string) error {
	return editWords(path, server, name, func(had []string) ([]string, error) {
		n := len(had)
		if had = slices.DeleteFunc(had, func(word string) bool { return slices.Contains(words, word) }); len(had) == n {
			return nil, fmt.Errorf("%s: the description of %s.%s does not end with %q and any of these words: edit it there", filepath.Base(path), server, name, strings.TrimSpace(wordsLine))
		}
		return had, nil
	})
}

// editWords writes the words that change returns for those that the tool has.
func editWords(path, server, name string, change func(had []string) ([]string, error)) error {
	f, err := openTool(path, server, name)
	if err != nil {
		return err
	}
	if view.IsGlob(name) {
		return f.readsAsPattern()
	}
	if by := view.ChosenBy(f.overrides, name); by != nil && by.Tool != name {
		// An entry of its own would take away what the pattern changes, such as a bound argument.
		return f.decidedBy(by.Tool, ". Write an entry of its own for "+name+" there first")
	}
	description := append(f.entry, "description")
	text := original
	if value := f.At(description...); value != nil && string(value) != "null" {
		text = rawjson.Text(value) // "" blanks the server's text
	}
	before, had := splitWords(text)
	words, err := change(slices.Clone(had))
	switch {
	case err != nil:
		return err
	case slices.Equal(words, had):
		return nil
	case len(words) > 0:
		return f.save(f.put(before+"\n"+wordsLine+strings.Join(words, ", "), description...))
	case before != original:
		return f.save(f.put(before, description...))
	}
	return f.save(f.drop("description"))
}

// splitWords splits a description into its text and the added words.
func splitWords(description string) (text string, words []string) {
	at := strings.LastIndex(description, "\n"+wordsLine)
	if at < 0 {
		return description, nil
	}
	words = strings.Split(description[at+1+len(wordsLine):], ", ")
	if slices.ContainsFunc(words, func(word string) bool { return word == "" || strings.ContainsFunc(word, notInWord) }) {
		return description, nil // somebody wrote this line
	}
	return description[:at], words
}

func notInWord(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) }
