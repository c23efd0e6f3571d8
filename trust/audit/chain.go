package audit

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"toolfinch/internal/leeway"
	"toolfinch/trust"
)

// chain is the files of a log. Several processes may write one: each takes a lock for
// as long as it writes, and goes on where the last line of the file is.
type chain struct {
	settings Settings
	key      []byte
	replica  string // of the lines

	lock  *flock.Flock
	file  *os.File // the one that is written; nil: not open
	size  int64    // of the file, as far as this process knows
	first time.Time
	head
	synced bool      // all that this process wrote is on the disk
	wait   time.Time // when to try again to put the file aside
	note   *Line
}

// head is the end of a chain.
type head struct {
	seq  uint64
	hash string
}

const (
	lockSuffix = ".lock"
	headSuffix = ".head"
)

// lockWait bounds the wait for another process that writes.
const lockWait = 5 * time.Second

// hold takes the lock.
func (c *chain) hold() (release func(), err error) {
	if c.lock == nil {
		c.lock = flock.New(c.settings.File+lockSuffix, flock.SetPermissions(0o600))
	}
	ctx, cancel := context.WithTimeout(context.Background(), leeway.Of(lockWait))
	defer cancel()
	if _, err := c.lock.TryLockContext(ctx, 5*time.Millisecond); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("another process has held the lock for %v", lockWait)
		}
		return nil, err
	}
	return func() { _ = c.lock.Unlock() }, nil
}

// try opens the file, so that what is wrong with it is said at the start.
func (c *chain) try() error {
	release, err := c.hold()
	if err != nil {
		return err
	}
	defer release()
	return c.open()
}

// append writes lines, and returns how many were written. Their file is as it was
// before a line that could not be written whole.
func (c *chain) append(lines []Line) (n int, err error) {
	if len(lines) == 0 {
		return 0, nil
	}
	release, err := c.hold()
	if err != nil {
		return 0, err
	}
	defer release()
	if err := c.open(); err != nil {
		return 0, err
	}
	for n < len(lines) {
		if c.note != nil { // before anything else: it is about what is there
			if _, err := c.write([]Line{*c.note}); err != nil {
				return n, err
			}
			c.note = nil
		}
		if err := c.rotate(); err != nil {
			return n, err
		}
		wrote, err := c.write(lines[n:])
		if n += wrote; err != nil {
			return n, err
		}
	}
	return n, nil
}

// atOnce is how many bytes are written at once.
const atOnce = 256 << 10

// write writes as many lines as fit the file, one at least, at once.
func (c *chain) write(lines []Line) (n int, err error) {
	var text []byte
	next := c.head
	first := c.first
	for _, line := range lines {
		line.Seq, line.Prev, line.PID, line.Replica = next.seq+1, next.hash, pid, c.replica
		line.Time = line.Time.UTC()
		encoded, hash, err := line.encode(c.key)
		if err != nil {
			return 0, fmt.Errorf("line %d: %w", line.Seq, err)
		}
		if n > 0 && (len(text)+len(encoded) > atOnce || c.size+int64(len(text)+len(encoded)) > int64(c.settings.MaxSize)) {
			break
		}
		if first.IsZero() {
			first = time.Now()
		}
		text = append(text, encoded...)
		next = head{line.Seq, hash}
		n++
	}
	if wrote, err := c.file.Write(text); err != nil {
		if wrote > 0 { // half a line would look like a forgery
			err = errors.Join(err, c.file.Truncate(c.size))
		}
		return 0, err
	}
	c.size += int64(len(text))
	c.head, c.first, c.synced = next, first, false
	return n, nil
}

var pid = os.Getpid()

// open has the file open, and the head that of its last line, whoever wrote it.
func (c *chain) open() error {
	now, err := os.Stat(c.settings.File)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if c.file != nil {
		mine, err := c.file.Stat()
		if now != nil && err == nil && os.SameFile(mine, now) && now.Size() == c.size {
			return nil
		}
		if now == nil || err != nil || !os.SameFile(mine, now) { // another process rotated it, or somebody removed it
			_ = c.file.Close()
			c.file = nil
		}
	}
	if c.file == nil {
		if c.file, err = os.OpenFile(c.settings.File, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600); err != nil {
			c.file = nil
			return err
		}
	}
	if err := c.resume(); err != nil {
		_ = c.file.Close()
		c.file = nil
		return err
	}
	return nil
}

// resume finds out where the chain ends. What is not as it was left gets a line that
// says so; it is never mended so that nobody can see it.
func (c *chain) resume() error {
	was, known := readHead(c.settings.File+headSuffix, c.key)
	if c.head.seq > was.seq {
		was, known = c.head, true
	}
	tail, err := c.tail()
	if err != nil {
		return err
	}
	c.size, c.first = tail.size, tail.first
	end := tail.head
	if end.seq == 0 && !tail.damaged && tail.size == 0 { // just rotated, by a process that ended then
		if old := rotated(c.settings.File); len(old) > 0 {
			if end, err = endOf(old[len(old)-1], c.key); err != nil {
				return err
			}
		}
	}
	switch {
	case tail.damaged:
		if known && was.seq > end.seq {
			end = was
		}
		c.repaired(map[string]string{"what": "the file did not end with a line of this log: it was put aside"})
		c.head, c.synced = end, false
		return c.aside()
	case known && end.seq < was.seq:
		c.repaired(map[string]string{"what": "lines are missing at the end", "lines": fmt.Sprintf("%d to %d", end.seq+1, was.seq)})
		end = was
	case tail.torn > 0:
		c.repaired(map[string]string{"what": "the last line was not finished: it was removed", "bytes": strconv.Itoa(tail.torn)})
		if err := c.file.Truncate(tail.size); err != nil {
			return err
		}
	}
	c.head = end
	return nil
}

func (c *chain) repaired(details map[string]string) {
	c.note = &Line{Time: time.Now(), Event: trust.EventRepaired, Outcome: trust.Failed, Details: details}
}

// tail is the end of a file.
type tail struct {
	head
	size    int64 // up to the last whole line
	torn    int   // bytes after that
	damaged bool  // the last whole line is none of this log
	first   time.Time
}

// maxLine bounds a line, in bytes: the bounds of its fields, escaped, are below that.
const maxLine = 512 << 10

func (c *chain) tail() (tail, error) { return tailOf(c.file, c.key) }

func tailOf(file *os.File, key []byte) (t tail, err error) {
	info, err := file.Stat()
	if err != nil {
		return t, err
	}
	from := max(0, info.Size()-2*maxLine)
	text, err := io.ReadAll(io.NewSectionReader(file, from, info.Size()-from))
	if err != nil {
		return t, err
	}
	end := bytes.LastIndexByte(text, '\n') + 1
	t.torn = len(text) - end
	t.size = from + int64(end)
	if end == 0 {
		t.damaged = from > 0 // too long for one of ours
		return t, nil
	}
	last := text[bytes.LastIndexByte(text[:end-1], '\n')+1 : end-1]
	line, ok := parse(last)
	if !ok || !intact(key, last) {
		t.damaged = true
		return t, nil
	}
	t.head = head{line.Seq, line.Hash}
	start := make([]byte, min(info.Size(), maxLine))
	if n, err := file.ReadAt(start, 0); err == nil || errors.Is(err, io.EOF) {
		first, _, _ := bytes.Cut(start[:n], []byte{'\n'})
		if line, ok := parse(first); ok {
			t.first = line.Time
		}
	}
	return t, nil
}

// endOf is the head of a file that is not written any more.
func endOf(path string, key []byte) (head, error) {
	file, err := os.Open(path)
	if err != nil {
		return head{}, err
	}
	defer file.Close()
	t, err := tailOf(file, key)
	return t.head, err
}

// rotate puts the file aside if it is full or old, and removes the oldest.
func (c *chain) rotate() error {
	if c.size == 0 || c.size < int64(c.settings.MaxSize) && time.Since(c.first) < c.settings.MaxAge || time.Now().Before(c.wait) {
		return nil
	}
	err := c.aside()
	if errors.Is(err, errNotAside) { // another process has it open, on Windows: a file that grows is better than none
		c.wait = time.Now().Add(time.Minute)
		return c.open()
	}
	return err
}

var errNotAside = errors.New("the file cannot be put aside")

// aside renames the file, and makes another.
func (c *chain) aside() error {
	if err := c.sync(); err != nil {
		return err
	}
	if err := c.file.Close(); err != nil {
		return err
	}
	c.file = nil
	if err := os.Rename(c.settings.File, rotatedName(c.settings.File, time.Now(), max(c.seq, 1))); err != nil {
		return fmt.Errorf("%w: %w", errNotAside, err)
	}
	var err error
	if c.file, err = os.OpenFile(c.settings.File, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600); err != nil {
		c.file = nil
		return err
	}
	c.size, c.first = 0, time.Time{}
	return c.thin()
}

// thin removes rotated files beyond those to keep, and says up to which line.
func (c *chain) thin() error {
	old := rotated(c.settings.File)
	if c.settings.Keep == 0 || len(old) <= c.settings.Keep {
		return nil
	}
	for _, path := range old[:len(old)-c.settings.Keep] {
		end, err := endOf(path, c.key)
		if err != nil {
			return err
		}
		// First the line: a file that is missing without one was removed by somebody else.
		removed := Line{
			Time: time.Now(), Event: trust.EventRemoved, Outcome: trust.Success,
			Details: map[string]string{"file": filepath.Base(path), "last_seq": strconv.FormatUint(end.seq, 10), "last_hash": end.hash},
		}
		if _, err := c.write([]Line{removed}); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// rotatedName is what a file is called that ends with line seq.
func rotatedName(file string, now time.Time, seq uint64) string {
	ext := filepath.Ext(file)
	return fmt.Sprintf("%s-%s-%d%s", strings.TrimSuffix(file, ext), now.UTC().Format(rotatedTime), seq, ext)
}

const rotatedTime = "20060102T150405Z"

// rotated are the files that were put aside, in the order of their last lines.
func rotated(file string) []string {
	found, _ := os.ReadDir(filepath.Dir(file)) // none can be read: the caller learns that from the file
	ext := filepath.Ext(file)
	stem := strings.TrimSuffix(filepath.Base(file), ext)
	var paths []string
	for _, f := range found {
		rest, ok := strings.CutPrefix(f.Name(), stem+"-")
		rest, named := strings.CutSuffix(rest, ext)
		when, _, numbered := strings.Cut(rest, "-")
		if _, err := time.Parse(rotatedTime, when); !ok || !named || !numbered || err != nil || f.IsDir() {
			continue
		}
		if path := filepath.Join(filepath.Dir(file), f.Name()); seqOf(path) > 0 {
			paths = append(paths, path)
		}
	}
	slices.SortFunc(paths, func(a, b string) int { return cmp.Or(cmp.Compare(seqOf(a), seqOf(b)), strings.Compare(a, b)) })
	return paths
}

// seqOf is the last line of a rotated file, by its name; 0 where that does not say.
func seqOf(path string) uint64 {
	name := strings.TrimSuffix(path, filepath.Ext(path))
	seq, _ := strconv.ParseUint(name[strings.LastIndexByte(name, '-')+1:], 10, 64)
	return seq
}

// Files are those of a log, the oldest first.
func Files(file string) []string {
	files := rotated(file)
	if _, err := os.Stat(file); err == nil {
		files = append(files, file)
	}
	return files
}

// save is sync for callers that do not hold the lock.
func (c *chain) save() error {
	if c.synced || c.file == nil {
		return nil
	}
	release, err := c.hold()
	if err != nil {
		return err
	}
	defer release()
	return c.sync()
}

// sync has the file on the disk, and then notes its end beside it: the note is never
// ahead of the file, whenever the machine stops.
func (c *chain) sync() error {
	if c.synced || c.file == nil {
		return nil
	}
	if err := c.file.Sync(); err != nil {
		return err
	}
	if err := c.writeHead(); err != nil {
		return err
	}
	c.synced = true
	return nil
}

// The file of a head has one line of a fixed length, so that it takes no space to write
// another: the sequence number, the hash, and an HMAC of both.
func headLine(h head, key []byte) string {
	text := fmt.Sprintf("%020d %64s", h.seq, h.hash)
	return text + " " + sum(key, []byte("head "+text)) + "\n"
}

// writeHead notes the end of the chain, unless another process has noted a later one.
func (c *chain) writeHead() error {
	path := c.settings.File + headSuffix
	if was, ok := readHead(path, c.key); ok && was.seq >= c.seq {
		return nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteAt([]byte(headLine(c.head, c.key)), 0)
	return errors.Join(err, file.Close())
}

// readHead reads a head; ok is false where there is none that the key made.
func readHead(path string, key []byte) (h head, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil || len(text) > 1000 {
		return h, false
	}
	fields := strings.Fields(string(text))
	if len(fields) != 3 {
		return h, false
	}
	if h.seq, err = strconv.ParseUint(fields[0], 10, 64); err != nil {
		return head{}, false
	}
	h.hash = fields[1]
	return h, hmac.Equal([]byte(headLine(h, key)), text)
}

func (c *chain) close() error {
	if c.file == nil {
		return nil
	}
	err := errors.Join(c.save(), c.file.Close())
	c.file = nil
	return err
}
