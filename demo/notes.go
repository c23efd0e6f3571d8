package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
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

// The notes are this server's own; the proxy's SQL is in package store.
const notesSchema = `
CREATE TABLE IF NOT EXISTS notes (
	id      INTEGER PRIMARY KEY AUTOINCREMENT,
	title   TEXT NOT NULL,
	text    TEXT NOT NULL,
	created TEXT NOT NULL,
	updated TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS tags (
	note INTEGER NOT NULL REFERENCES notes (id) ON DELETE CASCADE,
	tag  TEXT NOT NULL,
	PRIMARY KEY (note, tag)
) STRICT, WITHOUT ROWID;
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (title, text, content = notes, content_rowid = id,
	tokenize = 'porter unicode61 remove_diacritics 2');
CREATE TRIGGER IF NOT EXISTS note_added AFTER INSERT ON notes BEGIN
	INSERT INTO words (rowid, title, text) VALUES (new.id, new.title, new.text);
END;
CREATE TRIGGER IF NOT EXISTS note_deleted AFTER DELETE ON notes BEGIN
	INSERT INTO words (words, rowid, title, text) VALUES ('delete', old.id, old.title, old.text);
END;
CREATE TRIGGER IF NOT EXISTS note_changed AFTER UPDATE OF title, text ON notes BEGIN
	INSERT INTO words (words, rowid, title, text) VALUES ('delete', old.id, old.title, old.text);
	INSERT INTO words (rowid, title, text) VALUES (new.id, new.title, new.text);
END;
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

type updateNoteArgs struct {
	noteArgs
	Title *string `json:"title,omitempty" jsonschema:"New title; left as it is if missing"`
	Text  *string `json:"text,omitempty" jsonschema:"New text in place of the old one; left as it is if missing"`
}

type tagNoteArgs struct {
	noteArgs
	Add    []string `json:"add,omitempty" jsonschema:"Tags to put on the note"`
	Remove []string `json:"remove,omitempty" jsonschema:"Tags to take off the note"`
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
	ID      int64    `json:"id" jsonschema:"Number of the note"`
	Title   string   `json:"title" jsonschema:"Its title"`
	Text    string   `json:"text" jsonschema:"The whole note"`
	Tags    []string `json:"tags" jsonschema:"Its tags, sorted"`
	Created string   `json:"created" jsonschema:"When it was added (RFC 3339)"`
	Updated string   `json:"updated" jsonschema:"When it was last changed (RFC 3339)"`
}

type noteLine struct {
	ID      int64    `json:"id" jsonschema:"Number of the note"`
	Title   string   `json:"title" jsonschema:"Its title"`
	Excerpt string   `json:"excerpt" jsonschema:"The part of the text that matters most"`
	Tags    []string `json:"tags" jsonschema:"Its tags, sorted"`
	Updated string   `json:"updated" jsonschema:"When it was last changed (RFC 3339)"`
}

type noteLines struct {
	Notes []noteLine `json:"notes" jsonschema:"The notes found"`
	Total int        `json:"total" jsonschema:"How many there are, shown or not"`
}

type tagCount struct {
	Tag   string `json:"tag" jsonschema:"The tag"`
	Notes int    `json:"notes" jsonschema:"How many notes have it"`
}

type tagCounts struct {
	Tags []tagCount `json:"tags" jsonschema:"All tags, sorted"`
}

func newNotes(dir string) (*server.MCPServer, func() error, error) {
	path, err := filepath.Abs(filepath.Join(dir, "notes.db"))
	if err != nil {
		return nil, nil, err
	}
	path = filepath.ToSlash(path)
	if path[0] != '/' {
		path = "/" + path // a drive letter
	}
	uri := (&url.URL{Scheme: "file", Path: path}).String()
	db, err := sql.Open("sqlite", uri+"?_busy_timeout=5000&_journal_mode=WAL&_synchronous=NORMAL&_foreign_keys=on&_txlock=immediate")
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(1) // one writer, and a caller or two
	if _, err := db.Exec(notesSchema); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("notes.db: %w", err), db.Close())
	}
	n := &notes{db}
	s := newServer("notes", "A notebook. Notes have a number, a title, a text and tags, and stay until they are deleted.")
	add(s, "add", "Add a note", "Saves a new note with a title, a text and tags, to be remembered and found later.", adds, n.add)
	add(s, "get", "Read a note", "Returns one note with its whole text.", reads, n.get)
	add(s, "update", "Change a note", "Replaces the title or the text of a note.", replaces, n.update)
	add(s, "delete", "Delete a note", "Deletes a note for good.", replaces, n.delete)
	add(s, "list", "List notes", "Lists the notes, the latest first, all or those with a tag.", reads, n.list)
	add(s, "search", "Search notes", "Searches title and text of all notes for words; the best match comes first.", reads, n.search)
	add(s, "tag", "Tag a note", "Puts tags on a note or takes them off.", sets, n.tag)
	add(s, "list_tags", "List tags", "Lists all tags in use and how many notes have each.", reads, n.listTags)
	return s, db.Close, nil
}

func (n *notes) add(ctx context.Context, in addNoteArgs) (note, error) {
	if err := checkNote(in.Title, in.Text); err != nil {
		return note{}, err
	}
	var id int64
	err := n.write(ctx, func(tx *sql.Tx) error {
		now := time.Now().UTC().Format(time.RFC3339)
		result, err := tx.ExecContext(ctx, `INSERT INTO notes (title, text, created, updated) VALUES (?, ?, ?, ?)`, in.Title, in.Text, now, now)
		if err != nil {
			return err
		}
		if id, err = result.LastInsertId(); err != nil {
			return err
		}
		return putTags(ctx, tx, id, in.Tags)
	})
	if err != nil {
		return note{}, err
	}
	return n.get(ctx, noteArgs{id})
}

func (n *notes) get(ctx context.Context, in noteArgs) (note, error) {
	out := note{ID: in.ID}
	var tags string
	err := n.db.QueryRowContext(ctx, `SELECT title, text, created, updated, `+tagsOf+` FROM notes WHERE id = ?`, in.ID).
		Scan(&out.Title, &out.Text, &out.Created, &out.Updated, &tags)
	if errors.Is(err, sql.ErrNoRows) {
		return out, noSuchNote(in.ID)
	}
	out.Tags = strings.Fields(tags)
	return out, err
}

func (n *notes) update(ctx context.Context, in updateNoteArgs) (note, error) {
	if in.Title == nil && in.Text == nil {
		return note{}, errors.New("nothing to change: give a title or a text")
	}
	old, err := n.get(ctx, in.noteArgs)
	if err != nil {
		return note{}, err
	}
	if in.Title != nil {
		old.Title = *in.Title
	}
	if in.Text != nil {
		old.Text = *in.Text
	}
	if err := checkNote(old.Title, old.Text); err != nil {
		return note{}, err
	}
	err = n.write(ctx, func(tx *sql.Tx) error {
		return one(in.ID)(tx.ExecContext(ctx,
			`UPDATE notes SET title = coalesce(?, title), text = coalesce(?, text), updated = ? WHERE id = ?`,
			in.Title, in.Text, time.Now().UTC().Format(time.RFC3339), in.ID))
	})
	if err != nil {
		return note{}, err
	}
	return n.get(ctx, in.noteArgs)
}

func (n *notes) delete(ctx context.Context, in noteArgs) (noteArgs, error) {
	return in, n.write(ctx, func(tx *sql.Tx) error {
		return one(in.ID)(tx.ExecContext(ctx, `DELETE FROM notes WHERE id = ?`, in.ID))
	})
}

func (n *notes) tag(ctx context.Context, in tagNoteArgs) (note, error) {
	if len(in.Add)+len(in.Remove) == 0 {
		return note{}, errors.New("nothing to change: give tags to add or to remove")
	}
	if _, err := n.get(ctx, in.noteArgs); err != nil {
		return note{}, err
	}
	err := n.write(ctx, func(tx *sql.Tx) error {
		for _, tag := range in.Remove {
			if _, err := tx.ExecContext(ctx, `DELETE FROM tags WHERE note = ? AND tag = ?`, in.ID, tagged(tag)); err != nil {
				return err
			}
		}
		return putTags(ctx, tx, in.ID, in.Add)
	})
	if err != nil {
		return note{}, err
	}
	return n.get(ctx, in.noteArgs)
}

const (
	// A tag has no white space, so a space parts them.
	tagsOf = `coalesce((SELECT group_concat(tag, ' ' ORDER BY tag) FROM tags WHERE note = notes.id), '')`
	has    = `(?1 = '' OR EXISTS (SELECT 1 FROM tags WHERE note = notes.id AND tag = ?1))`
)

func (n *notes) list(ctx context.Context, in listNotesArgs) (noteLines, error) {
	return n.lines(ctx, in, `
		SELECT id, title, substr(text, 1, 120), `+tagsOf+`, updated, count(*) OVER ()
		FROM notes WHERE `+has+` ORDER BY updated DESC, id DESC LIMIT ?2`)
}

func (n *notes) search(ctx context.Context, in searchNotesArgs) (noteLines, error) {
	match := words(in.Query)
	if match == "" {
		return noteLines{Notes: []noteLine{}}, errors.New("the query has no word to search for")
	}
	// A word in the title counts three times as much as one in the text.
	return n.lines(ctx, in.listNotesArgs, `
		SELECT id, notes.title, snippet(words, 1, '', '', '...', 24), `+tagsOf+`, updated,
			(SELECT count(*) FROM words JOIN notes ON notes.id = words.rowid WHERE words MATCH ?3 AND `+has+`)
		FROM words JOIN notes ON notes.id = words.rowid
		WHERE words MATCH ?3 AND `+has+` ORDER BY bm25(words, 3, 1), id LIMIT ?2`, match)
}

// words turns what a caller asks into an FTS5 query: every word, quoted, so that
// nothing in it is an operator, and as a beginning.
func words(query string) string {
	fields := strings.FieldsFunc(query, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r) })
	for i, word := range fields {
		fields[i] = `"` + word + `"*`
	}
	return strings.Join(fields, " ")
}

func (n *notes) lines(ctx context.Context, in listNotesArgs, query string, more ...any) (noteLines, error) {
	out := noteLines{Notes: []noteLine{}}
	limit, err := within("limit", in.Limit, 20, 200)
	if err != nil {
		return out, err
	}
	rows, err := n.db.QueryContext(ctx, query, append([]any{tagged(in.Tag), limit}, more...)...)
	if err != nil {
		return out, err
	}
	defer rows.Close()
	for rows.Next() {
		var line noteLine
		var tags string
		if err := rows.Scan(&line.ID, &line.Title, &line.Excerpt, &tags, &line.Updated, &out.Total); err != nil {
			return out, err
		}
		line.Tags = strings.Fields(tags)
		out.Notes = append(out.Notes, line)
	}
	return out, rows.Err()
}

func (n *notes) listTags(ctx context.Context, _ struct{}) (tagCounts, error) {
	out := tagCounts{Tags: []tagCount{}}
	rows, err := n.db.QueryContext(ctx, `SELECT tag, count(*) FROM tags GROUP BY tag ORDER BY tag`)
	if err != nil {
		return out, err
	}
	defer rows.Close()
	for rows.Next() {
		var t tagCount
		if err := rows.Scan(&t.Tag, &t.Notes); err != nil {
			return out, err
		}
		out.Tags = append(out.Tags, t)
	}
	return out, rows.Err()
}

func (n *notes) write(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := n.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func putTags(ctx context.Context, tx *sql.Tx, id int64, tags []string) error {
	for _, tag := range tags {
		switch t := tagged(tag); {
		case t == "" || len(t) > maxTag || strings.ContainsFunc(t, unicode.IsSpace):
			return fmt.Errorf("tag %q: a tag is one word of 1 to %d bytes", tag, maxTag)
		default:
			if _, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO tags (note, tag) VALUES (?, ?)`, id, t); err != nil {
				return err
			}
		}
	}
	var count int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM tags WHERE note = ?`, id).Scan(&count); err != nil {
		return err
	}
	if count > maxTags {
		return fmt.Errorf("a note has at most %d tags; this would be %d", maxTags, count)
	}
	return nil
}

// tagged is how a tag is kept: "#Home" and "home" are one.
func tagged(tag string) string {
	return strings.ToLower(strings.TrimPrefix(strings.TrimSpace(tag), "#"))
}

func checkNote(title, text string) error {
	if strings.TrimSpace(title) == "" {
		return errors.New("the title is empty")
	}
	return errors.Join(atMost(maxTitle, "the title", title), atMost(maxNote, "the text", text))
}

func noSuchNote(id int64) error { return fmt.Errorf("there is no note %d", id) }

// one makes a statement that touched no row an error.
func one(id int64) func(sql.Result, error) error {
	return func(result sql.Result, err error) error {
		if err != nil {
			return err
		}
		if count, err := result.RowsAffected(); err != nil || count > 0 {
			return err
		}
		return noSuchNote(id)
	}
}
