package demo

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/mark3labs/mcp-go/server"
	_ "modernc.org/sqlite"
)

const (
	maxTitle = 200     // bytes
	maxNote  = 100_000 // bytes
	maxTags  = 20
	maxTag   = 50 // bytes
)

// Package store has only the SQL of the proxy. AUTOINCREMENT never uses the number of a deleted note again. Tags are
// sorted words with spaces around each word.
const notesSchema = `
CREATE TABLE IF NOT EXISTS numbers (id INTEGER PRIMARY KEY AUTOINCREMENT) STRICT;
CREATE VIRTUAL TABLE IF NOT EXISTS notes USING fts5 (title, text, tags UNINDEXED, added UNINDEXED,
	tokenize = 'porter unicode61 remove_diacritics 2');
`

type notes struct{ db *sql.DB }

type addNoteArgs struct {
	Title string   `json:"title" jsonschema:"Short title, up to 200 bytes"`
	Text  string   `json:"text" jsonschema:"The note, up to 100000 bytes"`
	Tags  []string `json:"tags,omitempty" jsonschema:"Words to file the note under, for example home, up to 20"`
}

type noteArgs struct {
	ID int64 `json:"id" jsonschema:"Number of the note"`
}

type listNotesArgs struct {
	Tag   string `json:"tag,omitempty" jsonschema:"Only notes with this tag"`
	Limit int    `json:"limit,omitempty" jsonschema:"Most notes to return, 1 to 200 (default 20)"`
}

type searchNotesArgs struct {
	listNotesArgs
	Query string `json:"query" jsonschema:"Words that the note must all contain, in the title or the text; beginnings of words suffice"`
}

type note struct {
	ID    int64    `json:"id" jsonschema:"Number of the note"`
	Title string   `json:"title" jsonschema:"Its title"`
	Text  string   `json:"text" jsonschema:"The text"`
	Tags  []string `json:"tags" jsonschema:"Its tags, sorted"`
	Added string   `json:"added" jsonschema:"When it was added (RFC 3339)"`
}

type noteList struct {
	Notes []note `json:"notes" jsonschema:"The notes found; of each text only the part that matters most"`
	Total int    `json:"total" jsonschema:"How many there are, shown or not"`
}

type tagCounts struct {
	Tags map[string]int `json:"tags" jsonschema:"All tags, each with the number of its notes"`
}

func newNotes(dir string) (*server.MCPServer, func() error, error) {
	path, err := filepath.Abs(filepath.Join(dir, "notes.db"))
	if err != nil {
		return nil, nil, err
	}
	path = "/" + strings.TrimPrefix(filepath.ToSlash(path), "/") // paths with a drive letter do not begin with a slash
	uri := (&url.URL{Scheme: "file", Path: path}).String()
	db, err := sql.Open("sqlite", uri+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(1) // SQLite allows one writer, and there are few callers
	if _, err := db.Exec(notesSchema); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("notes.db: %w", err), db.Close())
	}
	n := &notes{db}
	s := newServer("notes", "A notebook. Notes have a number, a title, a text and tags, and stay until they are deleted.")
	add(s, "add", "Add a note", "Saves a new note with a title, a text and tags, to be remembered and found later.", adds, n.add)
	add(s, "get", "Read a note", "Returns one note with its whole text.", reads, n.get)
	add(s, "delete", "Delete a note", "Deletes a note for good.", replaces, n.delete)
	add(s, "list", "List notes", "Lists the notes, the latest first, all or those with a tag.", reads, n.list)
	add(s, "search", "Search notes", "Searches title and text of all notes for words; the best match comes first.", reads, n.search)
	add(s, "list_tags", "List tags", "Lists all tags in use and how many notes have each.", reads, n.listTags)
	return s, db.Close, nil
}

func (n *notes) add(ctx context.Context, in addNoteArgs) (note, error) {
	if strings.TrimSpace(in.Title) == "" {
		return note{}, errors.New("the title is empty")
	}
	if err := errors.Join(atMost(maxTitle, "the title", in.Title), atMost(maxNote, "the text", in.Text)); err != nil {
		return note{}, err
	}
	tags, err := tagged(in.Tags)
	if err != nil {
		return note{}, err
	}
	result, err := n.db.ExecContext(ctx, `INSERT INTO numbers DEFAULT VALUES`)
	if err != nil {
		return note{}, err
	}
	id, err := result.LastInsertId()
	if err != nil {
		return note{}, err
	}
	out := note{id, in.Title, in.Text, tags, time.Now().UTC().Format(time.RFC3339)}
	_, err = n.db.ExecContext(ctx, `INSERT INTO notes (rowid, title, text, tags, added) VALUES (?, ?, ?, ?, ?)`,
		out.ID, out.Title, out.Text, " "+strings.Join(out.Tags, " ")+" ", out.Added)
	return out, err
}

func (n *notes) get(ctx context.Context, in noteArgs) (note, error) {
	out := note{ID: in.ID}
	var tags string
	err := n.db.QueryRowContext(ctx, `SELECT title, text, tags, added FROM notes WHERE rowid = ?`, in.ID).
		Scan(&out.Title, &out.Text, &tags, &out.Added)
	if errors.Is(err, sql.ErrNoRows) {
		err = noSuchNote(in.ID)
	}
	out.Tags = strings.Fields(tags)
	return out, err
}

func (n *notes) delete(ctx context.Context, in noteArgs) (noteArgs, error) {
	result, err := n.db.ExecContext(ctx, `DELETE FROM notes WHERE rowid = ?`, in.ID)
	if err != nil {
		return in, err
	}
	if gone, err := result.RowsAffected(); err != nil || gone > 0 {
		return in, err
	}
	return in, noSuchNote(in.ID)
}

// page is the common end of the queries of list and search.
const page = ` SELECT id, title, excerpt, tags, added, count(*) OVER () FROM found
	WHERE ?1 = '' OR instr(tags, ' ' || ?1 || ' ') ORDER BY rank, id DESC LIMIT ?2`

func (n *notes) list(ctx context.Context, in listNotesArgs) (noteList, error) {
	return n.lines(ctx, in, `WITH found AS (
		SELECT rowid AS id, title, substr(text, 1, 120) AS excerpt, tags, added, 0 AS rank FROM notes)`+page)
}

func (n *notes) search(ctx context.Context, in searchNotesArgs) (noteList, error) {
	match := words(in.Query)
	if match == "" {
		return noteList{Notes: []note{}}, errors.New("the query has no word to search for")
	}
	// Words in the title have three times the weight.
	return n.lines(ctx, in.listNotesArgs, `WITH found AS MATERIALIZED (
		SELECT rowid AS id, title, snippet(notes, 1, '', '', '...', 24) AS excerpt, tags, added, bm25(notes, 3, 1) AS rank
		FROM notes WHERE notes MATCH ?3)`+page, match)
}

// words makes an FTS5 query from a caller's words. Words are quoted, so that none is an operator, and match as prefixes.
func words(query string) string {
	fields := strings.FieldsFunc(query, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r) })
	for i, word := range fields {
		fields[i] = `"` + word + `"*`
	}
	return strings.Join(fields, " ")
}

func (n *notes) lines(ctx context.Context, in listNotesArgs, query string, more ...any) (noteList, error) {
	out := noteList{Notes: []note{}}
	limit := cmp.Or(in.Limit, 20)
	if limit < 1 || limit > 200 {
		return out, fmt.Errorf("limit is %d; it must be from 1 to 200", limit)
	}
	tag := strings.ToLower(strings.TrimPrefix(in.Tag, "#"))
	rows, err := n.db.QueryContext(ctx, query, append([]any{tag, limit}, more...)...)
	if err != nil {
		return out, err
	}
	defer rows.Close()
	for rows.Next() {
		var found note
		var tags string
		if err := rows.Scan(&found.ID, &found.Title, &found.Text, &tags, &found.Added, &out.Total); err != nil {
			return out, err
		}
		found.Tags = strings.Fields(tags)
		out.Notes = append(out.Notes, found)
	}
	return out, rows.Err()
}

func (n *notes) listTags(ctx context.Context, _ struct{}) (tagCounts, error) {
	out := tagCounts{Tags: map[string]int{}}
	rows, err := n.db.QueryContext(ctx, `SELECT tags FROM notes`)
	if err != nil {
		return out, err
	}
	defer rows.Close()
	for rows.Next() {
		var tags string
		if err := rows.Scan(&tags); err != nil {
			return out, err
		}
		for _, tag := range strings.Fields(tags) {
			out.Tags[tag]++
		}
	}
	return out, rows.Err()
}

// tagged returns the tags as stored: sorted, in lower case and without #.
func tagged(tags []string) ([]string, error) {
	out := []string{}
	for _, tag := range tags {
		t := strings.ToLower(strings.TrimPrefix(strings.TrimSpace(tag), "#"))
		if t == "" || len(t) > maxTag || strings.ContainsFunc(t, unicode.IsSpace) {
			return nil, fmt.Errorf("tag %q: a tag is one word of 1 to %d bytes", tag, maxTag)
		}
		out = append(out, t)
	}
	slices.Sort(out)
	if out = slices.Compact(out); len(out) > maxTags {
		return nil, fmt.Errorf("a note has at most %d tags; this would be %d", maxTags, len(out))
	}
	return out, nil
}

func noSuchNote(id int64) error { return fmt.Errorf("there is no note %d", id) }
